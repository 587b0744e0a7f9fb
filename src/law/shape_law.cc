#include "law/shape_law.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "law/minimize.h"
#include "sys/parallel.h"

namespace braid::law {
namespace {

constexpr size_t kAll = 2 * kTerms + 1;  // exponents, logarithms of factors, that of E
using Shape9 = std::array<double, kAll>;
constexpr int kShapeSteps = 300, kShapePolishSteps = 4000;
constexpr size_t kShapesPolished = 8;

struct ShapePoint {
  std::array<double, kTerms> log_x{};  // relative to the mean, which nearly uncouples factors from exponents
  double log_loss = 0, weight = 0;
};

struct Sample9 {
  std::vector<ShapePoint> points{};
  std::array<double, kTerms> mean{};
  double mean_loss = 0, weight = 0;
};

Sample9 sample9_of(const Runs& runs, std::span<const double> weight_of_run) {
  Sample9 s;
  for (const Row& r : runs.rows) {
    const double weight = weight_of_run.empty() ? 1 : weight_of_run[static_cast<size_t>(r.run)];
    if (weight == 0) continue;
    s.points.push_back(
        {{std::log(r.width), std::log(r.depth), std::log(r.params), std::log(r.tokens)}, std::log(r.loss), weight});
    s.weight += weight;
  }
  for (const ShapePoint& p : s.points) {
    for (size_t k = 0; k < kTerms; ++k) s.mean[k] += p.weight * p.log_x[k] / s.weight;
    s.mean_loss += p.weight * p.log_loss / s.weight;
  }
  for (ShapePoint& p : s.points) {
    for (size_t k = 0; k < kTerms; ++k) p.log_x[k] -= s.mean[k];
  }
  return s;
}

// The mean of Huber losses over delta, and its gradient.
double objective(const Sample9& s, double delta, const Shape9& x, Shape9& gradient) {
  double sum = 0;
  gradient = {};
  for (const ShapePoint& p : s.points) {
    std::array<double, kTerms + 1> term{};
    for (size_t k = 0; k < kTerms; ++k) term[k] = x[kTerms + k] - x[k] * p.log_x[k];
    term[kTerms] = x[kAll - 1];
    const double top = *std::max_element(term.begin(), term.end());
    double total = 0;
    for (double& t : term) total += t = std::exp(t - top);
    const double residual = top + std::log(total) - p.log_loss, size = std::fabs(residual);
    sum += p.weight * (size <= delta ? 0.5 * size * size : delta * (size - 0.5 * delta));
    const double slope = p.weight * std::clamp(residual, -delta, delta) / total;
    for (size_t k = 0; k < kTerms; ++k) {
      gradient[k] -= slope * term[k] * p.log_x[k];
      gradient[kTerms + k] += slope * term[k];
    }
    gradient[kAll - 1] += slope * term[kTerms];
  }
  const double scale = 1 / (delta * s.weight);
  for (double& g : gradient) g *= scale;
  return sum * scale;
}

// At the mean of the rows E has half of the loss or most of it, and the terms the rest alike or tokens most of it.
std::vector<Shape9> starts_at(const Sample9& s) {
  std::vector<Shape9> starts;
  for (const double share : {0.5, 0.8}) {
    for (const double of_tokens : {0.25, 0.7}) {
      for (int bits = 0; bits < 16; ++bits) {
        Shape9 x{};
        for (size_t k = 0; k < kTerms; ++k) {
          x[k] = (bits >> k & 1) != 0 ? 0.8 : 0.3;
          const double part = k + 1 == kTerms ? of_tokens : (1 - of_tokens) / (kTerms - 1);
          x[kTerms + k] = s.mean_loss + std::log((1 - share) * part);
        }
        x[kAll - 1] = s.mean_loss + std::log(share);
        starts.push_back(x);
      }
    }
  }
  return starts;
}

ShapeLaw law9_of(const Sample9& s, const Shape9& x) {
  ShapeLaw law{.log_e = x[kAll - 1]};
  for (size_t k = 0; k < kTerms; ++k) {
    law.exponent[k] = x[k];
    law.log_factor[k] = x[kTerms + k] + x[k] * s.mean[k];
  }
  return law;
}

Shape9 vector9_of(const Sample9& s, const ShapeLaw& law) {
  Shape9 x{};
  for (size_t k = 0; k < kTerms; ++k) {
    x[k] = law.exponent[k];
    x[kTerms + k] = law.log_factor[k] - law.exponent[k] * s.mean[k];
  }
  x[kAll - 1] = law.log_e;
  return x;
}

}  // namespace

double ShapeLaw::irreducible() const { return std::exp(log_e); }

double ShapeLaw::loss(double width, double depth, double params, double tokens) const {
  const std::array<double, kTerms> x = {width, depth, params, tokens};
  double sum = std::exp(log_e);
  for (size_t k = 0; k < kTerms; ++k) sum += std::exp(log_factor[k] - exponent[k] * std::log(x[k]));
  return sum;
}

ShapeFit fit_shapes(const Runs& runs, std::span<const double> weight_of_run, double delta, int threads,
                    const ShapeLaw* start) {
  const Sample9 s = sample9_of(runs, weight_of_run);
  const auto function = [&](const Shape9& x, Shape9& gradient) { return objective(s, delta, x, gradient); };
  const std::vector<Shape9> starts = start ? std::vector{vector9_of(s, *start)} : starts_at(s);
  std::vector<MinimumOf<kAll>> ends(starts.size());
  sys::parallel_tasks(threads, std::ssize(starts), [&](int64_t i) {
    ends[static_cast<size_t>(i)] = minimize<kAll>(function, starts[static_cast<size_t>(i)], kShapeSteps);
  });
  std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
  MinimumOf<kAll> best = ends[0];
  for (size_t i = 0; i < std::min(kShapesPolished, ends.size()); ++i) {
    const MinimumOf<kAll> polished = minimize<kAll>(function, ends[i].x, kShapePolishSteps);
    if (polished.value < best.value) best = polished;
  }
  ShapeFit fit{.law = law9_of(s, best.x), .objective = best.value * delta * s.weight};
  for (const Row& r : runs.rows) {
    const double weight = weight_of_run.empty() ? 1 : weight_of_run[static_cast<size_t>(r.run)];
    const double residual = std::log(fit.law.loss(r.width, r.depth, r.params, r.tokens)) - std::log(r.loss);
    fit.rms += weight * residual * residual / s.weight;
  }
  fit.rms = std::sqrt(fit.rms);
  return fit;
}

}  // namespace braid::law
