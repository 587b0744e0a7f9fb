#include "law/plan.h"

#include <cmath>

namespace braid::law {

Shape optimum(const Law& law, double flops, double flops_factor) {
  const double log_product = std::log(flops / flops_factor);
  const double log_g = (std::log(law.alpha / law.beta) + law.log_a - law.log_b) / (law.alpha + law.beta);
  const double log_params = log_g + law.size_exponent() * log_product;
  return {.params = std::exp(log_params), .tokens = std::exp(log_product - log_params)};
}

std::optional<double> tokens_to_reach(const Law& law, double params, double loss) {
  const double left = loss - law.irreducible() - std::exp(law.log_a - law.alpha * std::log(params));
  if (!(left > 0)) return std::nullopt;
  return std::exp((law.log_b - std::log(left)) / law.beta);
}

Plan plan(const Fit& fit, double flops) {
  const double k = fit.flops_factor;
  Plan p{.flops = flops, .best = optimum(fit.law, flops, k)};
  p.loss = fit.law.loss(p.best.params, p.best.tokens);
  p.params = interval_of(fit.draws, [&](const Law& law) { return optimum(law, flops, k).params; });
  p.tokens = interval_of(fit.draws, [&](const Law& law) { return optimum(law, flops, k).tokens; });
  p.loss_interval = interval_of(fit.draws, [&](const Law& law) { return law.loss(p.best.params, p.best.tokens); });
  if (fit.frontier) {
    p.on_hull = Shape{.params = fit.frontier->params.at(flops), .tokens = fit.frontier->tokens.at(flops)};
    p.hull_params = interval_of(fit.frontier_draws, [&](const Frontier& f) { return f.params.at(flops); });
    p.hull_tokens = interval_of(fit.frontier_draws, [&](const Frontier& f) { return f.tokens.at(flops); });
  }
  p.extrapolation = flops / fit.flops.high;
  for (const double ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    Deviation d{.ratio = ratio};
    d.shape = {.params = ratio * p.best.params, .tokens = p.best.tokens / ratio};
    d.loss = fit.law.loss(d.shape.params, d.shape.tokens);
    if (const auto tokens = tokens_to_reach(fit.law, d.shape.params, p.loss))
      d.overspend = ratio * *tokens / p.best.tokens;
    p.deviations.push_back(d);
  }
  return p;
}

}  // namespace braid::law
