#include "models/blocks.h"

#include <utility>

namespace braid::models {
namespace {

struct Builder {
  const nn::BlockSource& source;
  const std::shared_ptr<nn::RopeTable>& rope;

  std::unique_ptr<nn::Block> operator()(const nn::Mamba2Spec& spec) const {
    return std::make_unique<nn::Mamba2>(spec, nn::load_mamba2(source, spec));
  }
  std::unique_ptr<nn::Block> operator()(const nn::AttentionSpec& spec) const {
    return std::make_unique<nn::Attention>(spec, nn::load_attention(source, spec), rope);
  }
  std::unique_ptr<nn::Block> operator()(const nn::MlpSpec& spec) const {
    return std::make_unique<nn::Mlp>(spec, nn::load_mlp(source, spec));
  }
  std::unique_ptr<nn::Block> operator()(const nn::MoeSpec& spec) const {
    return std::make_unique<nn::Moe>(spec, nn::load_moe(source, spec));
  }
  std::unique_ptr<nn::Block> operator()(const LinearSpec& spec) const {
    return std::make_unique<nn::LinearBlock>(
        source.get(spec.role, {spec.hidden, spec.hidden}, {.axis = Shard::Axis::cols, .units = spec.hidden}));
  }
};

}  // namespace

std::unique_ptr<nn::Block> build_block(const BlockSpec& spec, const nn::BlockSource& source,
                                       const std::shared_ptr<nn::RopeTable>& rope) {
  return std::visit(Builder{source, rope}, spec);
}

}  // namespace braid::models
