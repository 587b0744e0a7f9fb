#include "models/count.h"

#include "models/inventory.h"

namespace braid::models {
namespace {

// Values of the experts that are inactive for a token.
int64_t idle(const BlockSpec& spec) {
  const auto* moe = std::get_if<nn::MoeSpec>(&spec);
  if (!moe) return 0;
  return (moe->experts - moe->top_k) * (moe->gated ? 3 : 2) * moe->width * moe->expert_hidden();
}

}  // namespace

Parameters count_parameters(const Config& config) {
  Parameters p;
  for (const TensorSpec& tensor : inventory(config)) {
    (tensor.mtp ? p.mtp : p.total) += tensor.shape.count();
    ++p.tensors;
    if (tensor.role == ParamRole::embedding && !config.tied) p.embedding += tensor.shape.count();
  }
  p.active = p.total;
  for (const LayerSpec& layer : config.layers) {
    for (const PartSpec& part : layer.parts) p.active -= idle(part.block);
  }
  return p;
}

SequenceValues count_sequence(const Config& config) {
  SequenceValues v;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const int64_t runs = config.runs_of(i);
    for (const PartSpec& part : config.layers[i].parts) {
      if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) {
        v.kv_per_token += runs * 2 * a->kv_heads * a->head_dim;
        v.kv_scales_per_token += runs * 2 * a->kv_heads;
      }
      if (const auto* m = std::get_if<nn::Mamba2Spec>(&part.block)) {
        v.ssm += runs * m->heads * m->head_dim * m->state;
        v.conv += runs * (m->conv_width - 1) * m->conv_channels();
      }
    }
  }
  return v;
}

}  // namespace braid::models
