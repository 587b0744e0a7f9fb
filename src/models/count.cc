#include "models/count.h"

#include <algorithm>

#include "models/inventory.h"

namespace braid::models {
namespace {

// Values of the experts that are inactive for a token.
int64_t idle(const BlockSpec& spec) {
  const auto* moe = std::get_if<nn::MoeSpec>(&spec);
  if (!moe) return 0;
  return (moe->experts - moe->top_k) * (moe->gated ? 3 : 2) * moe->width * moe->expert_hidden();
}

// visit(spec) for all routed experts of a config, those of the prediction block too.
template <class AnyConfig, class Visit>
void each_moe(AnyConfig& config, const Visit& visit) {
  const auto of = [&](auto& layers) {
    for (auto& layer : layers) {
      for (auto& part : layer.parts) {
        if (auto* moe = std::get_if<nn::MoeSpec>(&part.block)) visit(*moe);
      }
    }
  };
  of(config.layers);
  if (config.mtp) of(config.mtp->layers);
}

// Experts of every layer that has any; 1 where these differ.
int64_t common_experts(const Config& config) {
  int64_t experts = 0;
  each_moe(config, [&](const nn::MoeSpec& moe) { experts = experts == 0 || experts == moe.experts ? moe.experts : 1; });
  return std::max<int64_t>(1, experts);
}

}  // namespace

// Of many experts that are all alike one is listed: the others, each with its row of the router, multiply it.
Parameters count_parameters(const Config& config) {
  const int64_t experts = common_experts(config);
  Config one = config;
  if (experts > 1) each_moe(one, [](nn::MoeSpec& moe) { moe.experts = 1; });
  Parameters p;
  for (const TensorSpec& tensor : inventory(one)) {
    const bool expert = tensor.expert >= 0;
    const bool row = tensor.role == ParamRole::router || tensor.role == ParamRole::router_bias;
    (tensor.mtp ? p.mtp : p.total) += (expert || row ? experts : 1) * tensor.shape.count();
    p.tensors += expert ? experts : 1;
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
