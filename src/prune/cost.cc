#include "prune/cost.h"

namespace braid::prune {
namespace {

using models::Config;

struct Values {
  int64_t all = 0, idle = 0;  // idle: of experts that a token does not choose

  Values operator()(const nn::Mamba2Spec& m) const {
    const int64_t biases = m.proj_bias ? m.in_rows() + m.hidden : 0;
    return {m.hidden * (m.in_rows() + m.inner()) + m.conv_channels() * (m.conv_width + (m.conv_bias ? 1 : 0)) +
                3 * m.heads + m.inner() + biases,
            0};
  }
  Values operator()(const nn::AttentionSpec& a) const {
    const int64_t queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
    return {a.hidden * 2 * (queries + keys) + (a.bias ? queries + 2 * keys : 0) + (a.out_bias ? a.hidden : 0) +
                (a.qk_norm ? 2 * a.head_dim : 0) + (a.qk_bias ? 2 * queries : 0),
            0};
  }
  Values operator()(const nn::MlpSpec& f) const {
    const int64_t in = f.gated ? 2 : 1;
    return {f.hidden * f.width * (in + 1) + (f.bias ? in * f.width + f.hidden : 0), 0};
  }
  Values operator()(const nn::MoeSpec& e) const {
    const int64_t matrices = e.gated ? 3 : 2, each = matrices * e.width * e.expert_hidden();
    const int64_t router = e.experts * (e.hidden + (e.router == RouterKind::sigmoid ? 1 : 0));
    return {router + e.experts * each + matrices * e.shared_width * e.hidden + 2 * e.latent * e.hidden,
            (e.experts - e.top_k) * each};
  }
  Values operator()(const models::LinearSpec& l) const { return {l.hidden * l.hidden, 0}; }
};

}  // namespace

CostModel::CostModel(const Config& config, std::span<const int64_t> order)
    : config_(config), order_(order), full_(full_sizes(config)) {}

Cost CostModel::of(const Sizes& sizes) const {
  const Resizer resizer(full_, sizes);
  const int64_t hidden = resizer.hidden(), norm = hidden * (config_.norm == models::NormKind::rms ? 1 : 2);
  Values stack, mtp;
  const auto add = [&](Values& to, const models::LayerSpec& layer) {
    for (const models::PartSpec& part : layer.parts) {
      const Values own = std::visit(Values{}, resizer(part.block));
      to.all += own.all + norm * (part.after.empty() ? 1 : 2);
      to.idle += own.idle;
    }
  };
  const int64_t kept = sizes[Axis::layers] > 0 ? sizes[Axis::layers] : std::ssize(order_);
  for (int64_t i = 0; i < kept; ++i) add(stack, config_.layers[static_cast<size_t>(order_[static_cast<size_t>(i)])]);
  if (config_.mtp) {
    for (const models::LayerSpec& layer : config_.mtp->layers) add(mtp, layer);
    mtp.all += 2 * hidden * hidden + 3 * norm;
  }
  const int64_t tables = config_.vocab * (config_.tied ? 1 : 2) + config_.learned_positions;
  stack.all += tables * hidden + norm;
  return {.params = stack.all + mtp.all, .active = stack.all - stack.idle};
}

}  // namespace braid::prune
