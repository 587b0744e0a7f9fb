#include "prune/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels/experts/experts.h"
#include "nn/observer.h"
#include "prune/row_pass.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::prune {
namespace {

using models::Config;

// Magnitudes of channels: their mean over a sample, the root of the sum of squares over samples.
class Magnitudes {
 public:
  void resize(size_t n) {
    sum_.resize(n);
    squares_.resize(n);
  }
  void add(size_t i, double v) { sum_[i] += std::fabs(v); }
  void end_sample(int64_t tokens) {
    for (size_t i = 0; i < sum_.size(); ++i) {
      squares_[i] += square(sum_[i] / static_cast<double>(tokens));
      sum_[i] = 0;
    }
  }
  void add_to(std::vector<double>& scores) const {
    scores.resize(squares_.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] += std::sqrt(squares_[i]);
  }

 private:
  std::vector<double> sum_, squares_;
};

// The blocks of a layer, as far as their shapes matter here.
struct Shapes {
  const nn::Mamba2Spec* mamba = nullptr;
  const nn::AttentionSpec* attention = nullptr;
  const nn::MoeSpec* moe = nullptr;
};

class Watch final : public nn::Observer {
 public:
  Watch(const Config& config, ExpertScore kind) : config_(config), kind_(kind) {
    gather(config.layers);
    if (config.mtp) gather(config.mtp->layers);
  }

  void product(const Param& w, const View& x, const View& y) override;
  void norm(const Param& w, const View& x, const View& z, const View& y) override;
  void experts(Ctx& ctx, const nn::ExpertsSeen& seen) override;
  void hidden_states(const std::vector<std::vector<float>>& states);
  void end_sample(int64_t tokens);
  Scores scores() const;

 private:
  using Site = std::tuple<Axis, int, std::string>;  // axis, layer, where in it
  struct Energy {
    std::vector<double> sum{};
    int64_t tokens = 0;
  };
  struct Routed {
    std::vector<double> weighted{};  // [E] sum of weight times norm of the output
    std::vector<int64_t> tokens{};   // [E] that chose it
  };

  void gather(const std::vector<models::LayerSpec>& layers) {
    for (const models::LayerSpec& layer : layers) {
      Shapes s;
      for (const models::PartSpec& part : layer.parts) {
        if (const auto* m = std::get_if<nn::Mamba2Spec>(&part.block)) s.mamba = m;
        if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) s.attention = a;
        if (const auto* e = std::get_if<nn::MoeSpec>(&part.block)) s.moe = e;
      }
      shapes_.push_back(s);
    }
  }
  const Shapes& shapes(int layer) const { return shapes_[static_cast<size_t>(layer)]; }
  void add_channels(Site site, const View& x);
  void add_heads(const Param& w, const View& x);
  void add_energy(const Param& w, const View& x, const View& z);

  const Config& config_;
  ExpertScore kind_;
  std::vector<Shapes> shapes_;
  std::map<Site, Magnitudes> sites_;
  std::map<std::string, const Param*> norms_;  // the use of each norm that counts: a further one is the same channel
  std::map<std::string, Energy> energies_;
  std::map<int, Routed> routed_;
  std::vector<double> cosines_;  // sums over tokens
  int64_t tokens_ = 0;
};

void Watch::add_channels(Site site, const View& x) {
  Magnitudes& m = sites_[std::move(site)];
  std::vector<float> row(static_cast<size_t>(x.dim(1)));
  m.resize(row.size());
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    for (size_t i = 0; i < row.size(); ++i) m.add(i, static_cast<double>(row[i]));
  }
}

void Watch::add_heads(const Param& w, const View& x) {
  const nn::AttentionSpec& a = *shapes(w.layer).attention;
  Magnitudes& m = sites_[{Axis::heads, w.layer, w.name}];
  m.resize(static_cast<size_t>(a.heads));
  std::vector<float> row(static_cast<size_t>(x.dim(1)));
  const auto dim = static_cast<size_t>(a.head_dim);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    for (size_t h = 0; h < row.size() / dim; ++h) {
      double sum = 0;
      for (size_t i = 0; i < dim; ++i) sum += square(static_cast<double>(row[h * dim + i]));
      m.add(h, std::sqrt(sum));
    }
  }
}

void Watch::product(const Param& w, const View& x, const View& y) {
  switch (w.role) {
    case ParamRole::down:
      return add_channels({shapes(w.layer).moe ? Axis::shared_ffn : Axis::ffn, w.layer, w.name}, x);
    case ParamRole::attention_out:
      return add_heads(w, x);
    case ParamRole::mamba_in: {
      const int64_t inner = shapes(w.layer).mamba->inner();
      return add_channels({Axis::mamba_heads, w.layer, w.name}, y.slice(1, inner, inner));
    }
    case ParamRole::latent_in:
      return add_channels({Axis::latent, w.layer, w.name}, y);
    case ParamRole::latent_out:
      return add_channels({Axis::latent, w.layer, w.name}, x);
    default:
      return;
  }
}

void Watch::norm(const Param& w, const View& x, const View& z, const View& y) {
  if (w.role != ParamRole::norm && w.role != ParamRole::gated_norm) return;
  if (norms_.try_emplace(w.name, &w).first->second != &w) return;
  if (w.role == ParamRole::norm && !w.mtp) add_channels({Axis::hidden, -1, w.name}, y);
  if (w.role == ParamRole::gated_norm || config_.norm == models::NormKind::rms) add_energy(w, x, z);
}

void Watch::add_energy(const Param& w, const View& x, const View& z) {
  const auto width = static_cast<size_t>(x.dim(1));
  const size_t groups = z ? static_cast<size_t>(shapes(w.layer).mamba->groups) : 1, size = width / groups;
  std::vector<float> row(width), gate(z ? width : 0);
  Energy& energy = energies_[w.name];
  energy.sum.resize(width);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    if (z) nn::read_row(z, t, gate);
    for (size_t i = 0; i < gate.size(); ++i) row[i] *= gate[i] / (1 + std::exp(-gate[i]));
    for (size_t begin = 0; begin < width; begin += size) {
      double mean = 0;
      for (size_t i = begin; i < begin + size; ++i) mean += square(static_cast<double>(row[i]));
      mean /= static_cast<double>(size);
      for (size_t i = begin; mean > 0 && i < begin + size; ++i)
        energy.sum[i] += square(static_cast<double>(row[i])) / mean;
    }
  }
  energy.tokens += x.dim(0);
}

// The outputs of the chosen experts one by one: as if each token were k tokens with one expert of weight 1.
void Watch::experts(Ctx& ctx, const nn::ExpertsSeen& seen) {
  const Param& any = seen.down[0];
  const int64_t tokens = seen.x.dim(0), chosen = seen.experts.dim(1), width = seen.u.dim(2), inside = seen.x.dim(1);
  Magnitudes& m = sites_[{Axis::expert_ffn, any.layer, ""}];
  m.resize(seen.down.size() * static_cast<size_t>(width));
  const Tensor x(ctx.arena, seen.x.dtype, {tokens * chosen, inside}), one(ctx.arena, DType::f32, {tokens * chosen, 1}),
      y(ctx.arena, DType::f32, x.shape());
  fill(one.mut(), 1);
  std::vector<float> hidden(static_cast<size_t>(width));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < chosen; ++k) {
      std::copy_n(seen.x.data + t * seen.x.stride(0) * size_of(seen.x.dtype), inside * size_of(seen.x.dtype),
                  x.mut().data + (t * chosen + k) * inside * size_of(seen.x.dtype));
      nn::read_hidden(seen, t, k, hidden);
      const auto first = static_cast<size_t>(seen.experts.as<int32_t>(t)[k] * width);
      for (size_t i = 0; i < hidden.size(); ++i) m.add(first + i, static_cast<double>(hidden[i]));
    }
  }
  std::vector<Weight> up, gate, down;
  for (const Param& p : seen.up) up.push_back(p.value);
  for (const Param& p : seen.gate) gate.push_back(p.value);
  for (const Param& p : seen.down) down.push_back(p.value);
  run(ctx, ExpertsFwd{.x = x.view(),
                      .experts = View(seen.experts.data, DType::i32, {tokens * chosen, 1}),
                      .weights = one.view(),
                      .up = up,
                      .gate = gate,
                      .down = down,
                      .y = y.mut(),
                      .act = seen.act});
  Routed& routed = routed_[any.layer];
  routed.weighted.resize(seen.down.size());
  routed.tokens.resize(seen.down.size());
  for (int64_t i = 0; i < tokens * chosen; ++i) {
    double sum = 0;
    const float* out = y.view().as<float>(i);
    for (int64_t c = 0; c < inside; ++c) sum += square(static_cast<double>(out[c]));
    const auto e = static_cast<size_t>(seen.experts.as<int32_t>(i / chosen)[i % chosen]);
    routed.weighted[e] += static_cast<double>(seen.weights.as<float>(i / chosen)[i % chosen]) * std::sqrt(sum);
    ++routed.tokens[e];
  }
}

// The residual stream before the first layer and after each, [T, D].
void Watch::hidden_states(const std::vector<std::vector<float>>& states) {
  cosines_.resize(states.size() - 1);
  const auto width = static_cast<size_t>(config_.hidden);
  for (size_t l = 0; l + 1 < states.size(); ++l) {
    const std::vector<float>&in = states[l], &out = states[l + 1];
    for (size_t begin = 0; begin < in.size(); begin += width) {
      double both = 0, a = 0, b = 0;
      for (size_t i = begin; i < begin + width; ++i) {
        both += static_cast<double>(in[i]) * static_cast<double>(out[i]);
        a += square(static_cast<double>(in[i]));
        b += square(static_cast<double>(out[i]));
      }
      cosines_[l] += a > 0 && b > 0 ? both / std::sqrt(a * b) : 1;
    }
  }
}

void Watch::end_sample(int64_t tokens) {
  for (auto& [site, m] : sites_) m.end_sample(tokens);
  tokens_ += tokens;
}

Scores Watch::scores() const {
  Scores out;
  for (const auto& [site, m] : sites_) m.add_to(out.of[{std::get<0>(site), std::get<1>(site)}]);
  for (const auto& [layer, routed] : routed_) {
    std::vector<double>& scores = out.of[{Axis::experts, layer}];
    for (size_t e = 0; e < routed.weighted.size(); ++e) {
      const int64_t over = kind_ == ExpertScore::all_tokens ? tokens_ : routed.tokens[e];
      scores.push_back(over > 0 ? routed.weighted[e] / static_cast<double>(over) : 0);
    }
  }
  for (const double sum : cosines_) out.of[{Axis::layers, -1}].push_back(1 - sum / static_cast<double>(tokens_));
  for (const auto& [name, energy] : energies_) {
    for (const double sum : energy.sum) out.energy[name].push_back(sum / static_cast<double>(energy.tokens));
  }
  for (const auto& [key, values] : out.of) {
    if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
      throw Error(Fault::failed_run,
                  format_message("prune", {.what = fmt::format("the scores of {} are not finite", name_of(key.first)),
                                           .hint = "another text, or a sound model"}));
  }
  return out;
}

}  // namespace

Scores measured_scores(models::Model& model, std::span<const data::Batch> rows, ExpertScore experts, int threads,
                       const Progress& progress) {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = threads};
  Watch watch(model.config(), experts);
  nn::Probe probe{.want_hidden = true};
  const RowPass pass{.ctx = ctx, .observer = &watch, .probe = &probe};
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const data::Batch& row = rows[static_cast<size_t>(i)];
    probe.hidden.clear();
    pass(model, row, 1, true);
    watch.hidden_states(probe.hidden);
    watch.end_sample(std::ssize(row.ids));
    if (!progress(i + 1)) break;
  }
  return watch.scores();
}

double mean_loss(models::Model& model, std::span<const data::Batch> rows, int threads, const Progress& progress) {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = threads};
  const RowPass pass{.ctx = ctx};
  double sum = 0;
  int64_t targets = 0;
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const data::Batch& row = rows[static_cast<size_t>(i)];
    sum += pass(model, row, 1, false).main;
    targets += row.trained;
    if (!progress(i + 1) && i + 1 < std::ssize(rows)) throw sys::Interrupted();
  }
  const double mean = sum / static_cast<double>(targets);
  if (!std::isfinite(mean))
    throw Error(Fault::failed_run,
                format_message("prune", {.what = "the loss is not finite", .got = fmt::format("{}", mean)}));
  return mean;
}

}  // namespace braid::prune
