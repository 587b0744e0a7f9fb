#include "prune/cost.h"

#include <algorithm>
#include <map>
#include <utility>

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

// How many units of each label a block has.
struct UnitsOf {
  std::array<int64_t, kLabels>& units;

  int64_t& at(Label label) const { return units[static_cast<size_t>(label)]; }
  void operator()(const nn::Mamba2Spec& m) const { at(Label::mamba_heads) = m.heads, at(Label::inner) = m.inner(); }
  void operator()(const nn::AttentionSpec& a) const { at(Label::q_heads) = a.heads, at(Label::kv_heads) = a.kv_heads; }
  void operator()(const nn::MlpSpec& f) const { at(Label::ffn) = f.width; }
  void operator()(const nn::MoeSpec& e) const {
    at(Label::ffn) = e.shared_width;
    at(Label::experts) = e.experts;
    at(Label::expert_ffn) = e.width;
    at(Label::latent) = e.latent;
  }
  void operator()(const models::LinearSpec&) const {}
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

FileBytes::FileBytes(const Config& config, const Layouts& layouts, std::span<const int64_t> order,
                     const std::function<int64_t(const models::TensorSpec&)>& value_bytes)
    : config_(config), order_(order), full_(full_sizes(config)) {
  of_layer_.resize(1 + config.layers.size() + (config.mtp ? config.mtp->layers.size() : 0));
  std::map<std::pair<int, ParamRole>, size_t> of_experts;  // of a layer: the term of all of them
  for (const std::string& name : layouts.names()) {
    const Layout& l = layouts.of(name);
    std::vector<Term>& terms = of_layer_.at(static_cast<size_t>(l.spec.layer + 1));
    Term term{.rows = l.rows, .cols = l.cols, .value_bytes = value_bytes(l.spec), .each_expert = l.stack};
    if (l.spec.expert >= 0) {
      const auto [known, is_new] = of_experts.try_emplace({l.spec.layer, l.spec.role}, terms.size());
      if (!is_new) {
        int64_t& widest = terms[known->second].value_bytes;
        widest = std::max(widest, term.value_bytes);
        continue;
      }
      term.each_expert = true;
    }
    terms.push_back(std::move(term));
  }
}

int64_t FileBytes::bytes_of(const std::vector<Term>& terms, const Units& units) {
  const auto extent = [&](const std::vector<Piece>& pieces) {
    int64_t sum = 0;
    for (const Piece& p : pieces)
      sum += p.width * (p.label == Label::none ? p.units : units[static_cast<size_t>(p.label)]);
    return sum;
  };
  int64_t bytes = 0;
  for (const Term& t : terms) {
    const int64_t count = t.each_expert ? units[static_cast<size_t>(Label::experts)] : 1;
    bytes += count * extent(t.rows) * extent(t.cols) * t.value_bytes;
  }
  return bytes;
}

FileBytes::Units FileBytes::units_of(const models::LayerSpec* layer, const Resizer& resizer) const {
  Units units{};
  units[static_cast<size_t>(Label::hidden)] = resizer.hidden();
  if (!layer) return units;
  for (const models::PartSpec& part : layer->parts) std::visit(UnitsOf{units}, resizer(part.block));
  return units;
}

int64_t FileBytes::of(const Sizes& sizes) const {
  const Resizer resizer(full_, sizes);
  int64_t bytes = bytes_of(of_layer_[0], units_of(nullptr, resizer));
  const auto add = [&](size_t index, const models::LayerSpec& layer) {
    bytes += bytes_of(of_layer_[index + 1], units_of(&layer, resizer));
  };
  const int64_t kept = sizes[Axis::layers] > 0 ? sizes[Axis::layers] : std::ssize(order_);
  for (int64_t i = 0; i < kept; ++i) {
    const auto layer = static_cast<size_t>(order_[static_cast<size_t>(i)]);
    add(layer, config_.layers[layer]);
  }
  for (size_t i = 0; config_.mtp && i < config_.mtp->layers.size(); ++i)
    add(config_.layers.size() + i, config_.mtp->layers[i]);
  return bytes;
}

}  // namespace braid::prune
