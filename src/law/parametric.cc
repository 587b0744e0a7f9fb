#include "law/parametric.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sys/parallel.h"

namespace braid::law {
namespace {

constexpr int kStepsOfStart = 200, kStepsOfRefit = 300, kStepsOfPolish = 3000;
constexpr size_t kPolished = 16, kRefitStarts = 8;

Vector vector_of(const Law& law) { return {law.alpha, law.beta, law.log_a, law.log_b, law.log_e}; }
Law law_of(const Vector& x) { return {x[0], x[1], x[2], x[3], x[4]}; }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The objective as the minimiser sees it: logarithms relative to their means, which nearly uncouples coefficients from
// exponents, and a value of order one.
class Centred {
 public:
  Centred(const Sample& sample, double delta)
      : sample_(sample),
        delta_(delta),
        mean_params_(mean(sample.log_params)),
        mean_tokens_(mean(sample.log_tokens)),
        scale_(1 / (delta * std::accumulate(sample.weight.begin(), sample.weight.end(), 0.0))) {
    for (double& x : sample_.log_params) x -= mean_params_;
    for (double& x : sample_.log_tokens) x -= mean_tokens_;
  }

  Minimum from(const Law& start, int steps) const {
    Vector x = vector_of(start);
    x[2] -= x[0] * mean_params_;
    x[3] -= x[1] * mean_tokens_;
    const auto function = [this](const Vector& at, Vector& gradient) {
      const double value = huber_sum(sample_, delta_, law_of(at), &gradient);
      for (double& g : gradient) g *= scale_;
      return value * scale_;
    };
    Minimum found = minimize(function, x, steps);
    found.x[2] += found.x[0] * mean_params_;
    found.x[3] += found.x[1] * mean_tokens_;
    return found;
  }

 private:
  Sample sample_;
  double delta_, mean_params_, mean_tokens_, scale_;
};

std::vector<Law> grid_of_starts() {
  std::vector<Law> grid;
  for (int alpha = 0; alpha < 5; ++alpha)
    for (int beta = 0; beta < 5; ++beta)
      for (int a = 0; a < 6; ++a)
        for (int b = 0; b < 6; ++b)
          for (int e = -2; e < 3; ++e) grid.push_back({0.5 * alpha, 0.5 * beta, 5.0 * a, 5.0 * b, 0.5 * e});
  return grid;
}

// Indices by ascending value; equal values by index.
std::vector<size_t> ranking(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order;
}

std::vector<Law> promising_starts(const Sample& sample, double delta, int threads) {
  const std::vector<Law> grid = grid_of_starts();
  std::vector<double> values(grid.size());
  sys::parallel_tasks(threads, std::ssize(grid), [&](int64_t i) {
    values[static_cast<size_t>(i)] = huber_sum(sample, delta, grid[static_cast<size_t>(i)]);
  });
  const std::vector<size_t> order = ranking(values);
  std::vector<Law> starts;
  for (size_t i = 0; i < grid.size() / 8; ++i) starts.push_back(grid[order[i]]);
  return starts;
}

}  // namespace

double Law::irreducible() const { return std::exp(log_e); }

double Law::loss(double params, double tokens) const {
  return std::exp(log_e) + std::exp(log_a - alpha * std::log(params)) + std::exp(log_b - beta * std::log(tokens));
}

Sample sample_of(const Runs& runs, std::span<const double> weight_of_run) {
  Sample s;
  for (const Row& row : runs.rows) {
    const double weight = weight_of_run.empty() ? 1 : weight_of_run[static_cast<size_t>(row.run)];
    if (weight == 0) continue;
    s.log_params.push_back(std::log(row.params));
    s.log_tokens.push_back(std::log(row.tokens));
    s.log_loss.push_back(std::log(row.loss));
    s.weight.push_back(weight);
  }
  return s;
}

double huber_sum(const Sample& s, double delta, const Law& law, Vector* gradient) {
  double sum = 0;
  Vector g{};
  for (size_t i = 0; i < s.weight.size(); ++i) {
    // log(e^u + e^v + e^w) without overflow.
    const double u = law.log_a - law.alpha * s.log_params[i], v = law.log_b - law.beta * s.log_tokens[i];
    const double top = std::max({u, v, law.log_e});
    const double eu = std::exp(u - top), ev = std::exp(v - top), ew = std::exp(law.log_e - top);
    const double total = eu + ev + ew;
    const double residual = top + std::log(total) - s.log_loss[i];
    const double size = std::fabs(residual);
    sum += s.weight[i] * (size <= delta ? 0.5 * size * size : delta * (size - 0.5 * delta));
    const double slope = s.weight[i] * std::clamp(residual, -delta, delta) / total;
    g[0] -= slope * eu * s.log_params[i];
    g[1] -= slope * ev * s.log_tokens[i];
    g[2] += slope * eu;
    g[3] += slope * ev;
    g[4] += slope * ew;
  }
  if (gradient != nullptr) *gradient = g;
  return sum;
}

double rms_residual(const Sample& s, const Law& law) {
  double sum = 0, weights = 0;
  for (size_t i = 0; i < s.weight.size(); ++i) {
    const double predicted = std::log(law.loss(std::exp(s.log_params[i]), std::exp(s.log_tokens[i])));
    const double residual = predicted - s.log_loss[i];
    sum += s.weight[i] * residual * residual;
    weights += s.weight[i];
  }
  return std::sqrt(sum / weights);
}

ParametricFit fit_parametric(const Sample& sample, double delta, int threads) {
  const Centred objective(sample, delta);
  const std::vector<Law> starts = promising_starts(sample, delta, threads);
  std::vector<Minimum> ends(starts.size());
  sys::parallel_tasks(threads, std::ssize(starts), [&](int64_t i) {
    ends[static_cast<size_t>(i)] = objective.from(starts[static_cast<size_t>(i)], kStepsOfStart);
  });
  std::vector<double> values;
  values.reserve(ends.size());
  for (const Minimum& m : ends) values.push_back(m.value);
  const std::vector<size_t> order = ranking(values);

  Minimum best = ends[order[0]];
  for (size_t i = 0; i < std::min(kPolished, order.size()); ++i) {
    const Minimum polished = objective.from(law_of(ends[order[i]].x), kStepsOfPolish);
    if (polished.value < best.value) best = polished;
  }
  ParametricFit fit{.law = law_of(best.x)};
  fit.objective = huber_sum(sample, delta, fit.law);
  const auto is_near = [&](size_t i) { return values[i] <= 1.01 * best.value; };
  const auto near = static_cast<size_t>(std::count_if(order.begin(), order.end(), is_near));
  fit.starts_near = static_cast<double>(near) / static_cast<double>(order.size());
  fit.starts.push_back(fit.law);
  const size_t others = std::min(near, kRefitStarts - 1);
  for (size_t i = 0; i < others; ++i) fit.starts.push_back(starts[order[i * near / others]]);
  return fit;
}

Law refit_parametric(const Sample& sample, double delta, std::span<const Law> starts) {
  const Centred objective(sample, delta);
  Minimum best = objective.from(starts[0], kStepsOfRefit);
  for (const Law& start : starts.subspan(1)) {
    const Minimum m = objective.from(start, kStepsOfRefit);
    if (m.value < best.value) best = m;
  }
  return law_of(objective.from(law_of(best.x), kStepsOfPolish).x);
}

}  // namespace braid::law
