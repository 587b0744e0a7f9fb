#include "apps/law_shapes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

  // Losses fall up to the best width and rise behind it.
  std::optional<PlannedShape> best_of(int64_t depth) {
    depth_ = depth;
    seen_.clear();
    const int64_t most = kWidthsMax / step_;
    if (most < 1) return std::nullopt;
    int64_t low = 1, high = most;
    while (high - low > 2) {
      const int64_t third = std::max<int64_t>(1, (high - low) / 3);
      if (at(low + third).loss <= at(high - third).loss)
        high -= third;
      else
        low += third;
    }
    PlannedShape best = at(low);
    for (int64_t i = low + 1; i <= high; ++i) {
      if (at(i).loss < best.loss) best = at(i);
    }
    // At an end of the range the optimum lies beyond it.
    if (best.shape.width == most * step_ || best.tokens < 1) return std::nullopt;
    best.interval = fit_.shapes ? law::interval_of(fit_.shape_draws, [&](const auto& l) { return loss_by(l, best); })
                                : law::interval_of(fit_.draws, [&](const auto& l) { return loss_by(l, best); });
    return best;
  }

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
    s.flops_per_token = train::flops_per_token(config, spec_.length);
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
  std::map<int64_t, PlannedShape> seen_;
};

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
  if (shapes.empty())
    fail("--like", {.what = "no width of this config is best for the budget",
                    .got = fmt::format("{:.3g} FLOPs", flops),
                    .expected = fmt::format("an optimum below a width of {}", kWidthsMax)});
  return shapes;
}

}  // namespace braid::apps
