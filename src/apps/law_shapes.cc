#include "apps/law_shapes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "models/count.h"
#include "models/family.h"
#include "sys/error.h"
#include "train/origin.h"

namespace braid::apps {
namespace {

constexpr int64_t kWidthsMax = int64_t{1} << 16, kDepthsMax = 1024;

class Planner {
 public:
  Planner(const law::Fit& fit, double flops, const ShapeSpec& spec)
      : fit_(fit), flops_(flops), spec_(spec), step_(width_step(spec.config)) {}

  // Losses fall up to the best width and rise behind it: a Fibonacci search, which counts one more width a step.
  std::optional<PlannedShape> best_of(int64_t depth) {
    depth_ = depth;
    seen_.clear();
    const int64_t most = kWidthsMax / step_;
    if (most < 1) return std::nullopt;
    int64_t low = 0, short_part = 1, long_part = 1;  // the best is one of low + 1 to low + both - 1
    while (short_part + long_part - 1 < most) {
      short_part = std::exchange(long_part, short_part + long_part);
    }
    const auto loss = [&](int64_t i) { return i > most ? HUGE_VAL : at(i).loss; };
    while (short_part + long_part > 2) {
      if (loss(low + short_part) > loss(low + long_part)) low += short_part;
      long_part = std::exchange(short_part, long_part - short_part);
    }
    (void)at(low + 1);
    // Sizes grow in steps, so losses are nearly unimodal only: the least of all that were counted.
    PlannedShape best =
        std::ranges::min_element(seen_, {}, [](const auto& width) { return width.second.loss; })->second;
    best.narrowest = best.shape.width == step_;
    least_flops_ = std::min(least_flops_, at(1).flops_per_token);
    // At the upper end of the range the optimum lies beyond it.
    if (best.shape.width == most * step_ || best.tokens < 1) return std::nullopt;
    best.interval = fit_.shapes ? law::interval_of(fit_.shape_draws, [&](const auto& l) { return loss_by(l, best); })
                                : law::interval_of(fit_.draws, [&](const auto& l) { return loss_by(l, best); });
    return best;
  }

  // A token costs at least this, of the depths so far.
  double least_flops() const { return least_flops_; }

 private:
  const PlannedShape& at(int64_t index) {
    const auto [found, is_new] = seen_.try_emplace(index);
    PlannedShape& s = found->second;
    if (!is_new) return s;
    s.shape = {.width = index * step_, .depth = depth_};
    const models::Config config = models::read_config(resized(spec_.config, s.shape));
    const models::Parameters n = models::count_parameters(config);
    s.params = static_cast<double>(n.total);
    s.active = static_cast<double>(n.active);
    s.flops_per_token = train::flops_per_token(config, n, spec_.length);
    s.tokens = flops_ / s.flops_per_token;
    for (const models::LayerSpec& layer : config.layers) {
      for (const models::PartSpec& part : layer.parts) {
        if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) s.heads = a->heads;
      }
    }
    s.loss = fit_.shapes ? loss_by(fit_.shapes->law, s) : loss_by(fit_.law, s);
    return s;
  }
  double size_of(const PlannedShape& s) const { return spec_.active ? s.active : s.params; }
  double loss_by(const law::Law& law, const PlannedShape& s) const { return law.loss(size_of(s), s.tokens); }
  double loss_by(const law::ShapeLaw& law, const PlannedShape& s) const {
    return law.loss(static_cast<double>(s.shape.width), static_cast<double>(s.shape.depth), size_of(s), s.tokens);
  }

  const law::Fit& fit_;
  double flops_;
  const ShapeSpec& spec_;
  int64_t step_, depth_ = 0;
  double least_flops_ = HUGE_VAL;
  std::map<int64_t, PlannedShape> seen_;
};

}  // namespace

namespace {

// The loss of so many parameters is that of runs that compute with all of them.
void need_same_params(const law::Fit& fit, const PlannedShape& s) {
  const double each = s.flops_per_token / s.params;
  constexpr double kPart = 0.5;  // of dense models, embeddings alone cost nothing
  if (s.active >= s.params || each >= kPart * fit.flops_factor) return;
  fail("--measure", {.what = "most experts of these shapes rest: a token costs too few FLOPs a parameter for this fit",
                     .got = fmt::format("{:.2g}", each),
                     .expected = fmt::format("about {:.2g}, as in its runs", fit.flops_factor),
                     .hint = "--measure active, or a fit of runs with experts"});
}

}  // namespace

std::vector<PlannedShape> plan_shapes(const law::Fit& fit, double flops, const ShapeSpec& spec) {
  Planner planner(fit, flops, spec);
  const int64_t base = depth_of(spec.config);
  std::set<int64_t> depths;
  for (int k = -6; k <= 6; ++k) {
    const auto depth = std::llround(static_cast<double>(base) * std::pow(2.0, 0.5 * k));
    if (depth >= 1 && depth <= kDepthsMax) depths.insert(depth);
  }
  std::vector<PlannedShape> shapes;
  for (const int64_t depth : depths) {
    if (auto best = planner.best_of(depth)) shapes.push_back(*best);
  }
  if (shapes.empty() && planner.least_flops() > flops)
    fail("--like", {.what = "the budget is too small for this config: its narrowest shape reads no token",
                    .got = fmt::format("{:.3g} FLOPs", flops),
                    .expected = fmt::format("more than {:.3g}, of a token", planner.least_flops())});
  if (shapes.empty())
    fail("--like", {.what = "no width of this config is best for the budget",
                    .got = fmt::format("{:.3g} FLOPs", flops),
                    .expected = fmt::format("an optimum below a width of {}", kWidthsMax)});
  if (!spec.active) need_same_params(fit, *std::ranges::min_element(shapes, {}, &PlannedShape::loss));
  return shapes;
}

}  // namespace braid::apps
