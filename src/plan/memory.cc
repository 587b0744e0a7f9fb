#include "plan/memory.h"

#include <variant>

namespace braid::plan {
namespace {

double in_double(int64_t n) { return static_cast<double>(n); }

struct BraidSaves {
  const ElementBytes& b;
  double h;
  bool rope;
  std::vector<Saved> list;

  void norm() {
    list.push_back({"norm input", b.stream * h});
    list.push_back({"norm output", b.product * h, false, true});
  }
  void mlp(double width, bool gated, const char* up, const char* act) {
    list.push_back({up, b.activations * width * (gated ? 2 : 1), true});
    list.push_back({act, b.product * width, true, true});
  }
  void operator()(const nn::Mamba2Spec& m) {
    norm();
    const double d = in_double(m.inner()), bc = in_double(2 * m.groups * m.state);
    list.push_back({"in_proj output", b.activations * (2 * d + bc + in_double(m.heads)), true});
    list.push_back({"convolution", b.activations * (d + bc), true, true});
    list.push_back({"scan", b.activations * d, true});
    list.push_back({"gated norm", b.product * d, true, true});
  }
  void operator()(const nn::AttentionSpec& a) {
    norm();
    const double q = in_double(a.heads * a.head_dim), kv = in_double(a.kv_heads * a.head_dim);
    if (a.qk_norm) list.push_back({"q and k before their norms", b.activations * (q + kv), true});
    list.push_back({"q, k", b.activations * (q + kv), true, a.qk_norm && !rope});
    list.push_back({"v", b.activations * kv, true});
    list.push_back({"attention", b.product * q, true});
    list.push_back({"log-sum-exp", 4 * in_double(a.heads), true});
  }
  void operator()(const nn::MlpSpec& m) {
    norm();
    mlp(in_double(m.width), m.gated, "up", "activation");
  }
  void operator()(const nn::MoeSpec& m) {
    norm();
    const double k = in_double(m.top_k), l = in_double(m.latent);
    list.push_back({"router", 4 * in_double(m.experts) + 8 * k});
    if (m.latent > 0) list.push_back({"latent in and out", 2 * b.product * l});
    list.push_back({"experts", b.product * k * in_double(m.width) * (m.gated ? 2 : 1), true});
    if (m.shared_width > 0) mlp(in_double(m.shared_width), m.gated, "shared up", "shared activation");
  }
  void operator()(const models::LinearSpec&) { norm(); }
};

struct CommonSaves {
  double h;
  std::vector<Saved> list;

  void norm() {
    list.push_back({"norm input", 2 * h});
    list.push_back({"norm output", 2 * h, false, true});
  }
  void operator()(const nn::Mamba2Spec& m) {
    norm();
    const double d = in_double(m.inner()), bc = in_double(2 * m.groups * m.state), heads = in_double(m.heads);
    list.push_back({"in_proj output", 2 * (2 * d + bc + heads), true});
    list.push_back({"convolution", 2 * (d + bc), true, true});
    list.push_back({"dt and decay, FP32", 8 * heads, true, true});
    list.push_back({"chunk states, FP32", 4 * d * in_double(m.state) / in_double(m.chunk), true, true});
    list.push_back({"scan", 2 * d, true});
    list.push_back({"gated norm", 2 * d, true, true});
  }
  void operator()(const nn::AttentionSpec& a) {
    norm();
    const double q = in_double(a.heads * a.head_dim), kv = in_double(a.kv_heads * a.head_dim);
    list.push_back({"q, k, v", 2 * q + 4 * kv, true});
    list.push_back({"attention", 2 * q, true});
    list.push_back({"log-sum-exp", 4 * in_double(a.heads), true});
  }
  void mlp(double width, bool gated, const char* up, const char* act) {
    list.push_back({up, (gated ? 4 : 2) * width, true});
    list.push_back({act, 2 * width, true, true});
  }
  void operator()(const nn::MlpSpec& m) {
    norm();
    mlp(in_double(m.width), m.gated, "up", "activation");
  }
  void operator()(const nn::MoeSpec& m) {
    norm();
    const double k = in_double(m.top_k);
    list.push_back({"router", 8 * in_double(m.experts)});
    if (m.latent > 0) list.push_back({"latent in and out", 4 * in_double(m.latent)});
    list.push_back({"routed tokens", 2 * k * in_double(m.expert_hidden()), true});
    mlp(k * in_double(m.width), m.gated, "experts up", "experts activation");
    if (m.shared_width > 0) mlp(in_double(m.shared_width), m.gated, "shared up", "shared activation");
  }
  void operator()(const models::LinearSpec&) { norm(); }
};

struct ClassicSaves {
  double h, length;
  std::vector<Saved> list;

  void operator()(const nn::AttentionSpec& a) {
    list = {{"norm input", 2 * h},
            {"q, k, v input", 2 * h},
            {"q, k", 4 * h, true},
            {"v", 2 * h, true},
            {"softmax, its mask and its dropout", 5 * in_double(a.heads) * length, true, true},
            {"projection input", 2 * h, true},
            {"dropout mask", h}};
  }
  void operator()(const nn::MlpSpec& m) {
    list = {{"norm input", 2 * h},
            {"up input", 2 * h},
            {"activation input", 2 * in_double(m.width), true},
            {"down input", 2 * in_double(m.width), true},
            {"dropout mask", h}};
  }
  template <class Other>
  void operator()(const Other&) {}
};

}  // namespace

std::vector<Saved> braid_saves(const models::PartSpec& part, const models::Config& config, const ElementBytes& bytes) {
  BraidSaves saves{bytes, in_double(config.hidden), config.rope.has_value(), {}};
  std::visit(saves, part.block);
  return saves.list;
}

int64_t saving_passes(const models::Config& config, size_t i) {
  const bool looped = config.loop && i >= config.loop->begin && i < config.loop->end;
  return looped ? config.loop->backward_steps : 1;
}

std::vector<Saved> common_saves(const models::PartSpec& part, const models::Config& config) {
  CommonSaves saves{in_double(config.hidden), {}};
  std::visit(saves, part.block);
  return saves.list;
}

std::vector<Saved> classic_saves(const models::PartSpec& part, const models::Config& config, int64_t length) {
  ClassicSaves saves{in_double(config.hidden), in_double(length), {}};
  std::visit(saves, part.block);
  return saves.list;
}

std::vector<Saved> braid_saves_outside(const models::Config& config, const ElementBytes& bytes) {
  const double h = in_double(config.hidden);
  return {
      {"ids, targets, weights, losses", 16}, {"final norm input", bytes.stream * h}, {"gradient of the loss", 4 * h}};
}

std::span<const PaperShape> paper_shapes() {
  static constexpr PaperShape kShapes[] = {
      {"22B", 6144, 64, 48}, {"175B", 12288, 96, 96}, {"530B", 20480, 128, 105}, {"1T", 25600, 160, 128}};
  return kShapes;
}

models::Config config_of(const PaperShape& shape) {
  models::Config config;
  config.hidden = shape.hidden;
  config.norm = models::NormKind::layer;
  const nn::AttentionSpec attention{
      .hidden = shape.hidden, .heads = shape.heads, .kv_heads = shape.heads, .head_dim = shape.hidden / shape.heads};
  const nn::MlpSpec mlp{.hidden = shape.hidden, .width = 4 * shape.hidden, .act = Act::gelu_tanh};
  for (int64_t i = 0; i < shape.layers; ++i)
    config.layers.push_back({{models::PartSpec{attention, "", ""}, models::PartSpec{mlp, "", ""}}});
  return config;
}

double classic_layer_bytes(const models::Config& config, int64_t length, Recompute::Kind recompute, const Cut& cut) {
  double sum = 0;
  for (const models::PartSpec& part : config.layers.at(0).parts) {
    sum += bytes_per_token(classic_saves(part, config, length), recompute, cut);
    if (recompute == Recompute::Kind::full) break;
  }
  return sum;
}

double bytes_per_token(const std::vector<Saved>& saved, Recompute::Kind recompute, const Cut& cut) {
  double sum = 0;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (recompute == Recompute::Kind::full && i > 0) break;
    if (recompute == Recompute::Kind::selective && saved[i].cheap) continue;
    sum += saved[i].bytes / (saved[i].split || cut.sequence ? in_double(cut.tensor) : 1.0);
  }
  return sum;
}

std::map<char, double> saved_by_letter(const models::Config& config, const ElementBytes& bytes,
                                       Recompute::Kind recompute) {
  std::map<char, double> saved;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    for (const models::PartSpec& part : config.layers[i].parts)
      saved[letter_of(part.block)] +=
          in_double(saving_passes(config, i)) * bytes_per_token(braid_saves(part, config, bytes), recompute);
  }
  return saved;
}

}  // namespace braid::plan
