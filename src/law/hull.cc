#include "law/hull.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace braid::law {
namespace {

struct LogPoint {
  double flops, loss;
};

LogPoint log_point(const Row& r) { return {std::log(r.flops), std::log(r.loss)}; }

// Whether b is above or on the line from a to c.
bool above(const Row& ra, const Row& rb, const Row& rc) {
  const LogPoint a = log_point(ra), b = log_point(rb), c = log_point(rc);
  return (b.flops - a.flops) * (c.loss - a.loss) <= (b.loss - a.loss) * (c.flops - a.flops);
}

// Least squares in logarithms.
PowerLaw power_law(const std::vector<Row>& rows, double Row::*y) {
  const auto n = static_cast<double>(rows.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (const Row& r : rows) {
    mean_x += std::log(r.flops) / n;
    mean_y += std::log(r.*y) / n;
  }
  for (const Row& r : rows) {
    const double dx = std::log(r.flops) - mean_x;
    xx += dx * dx;
    xy += dx * (std::log(r.*y) - mean_y);
  }
  return {.exponent = xy / xx, .intercept = mean_y - xy / xx * mean_x};
}

}  // namespace

double PowerLaw::at(double x) const { return std::exp(intercept + exponent * std::log(x)); }

std::vector<Row> lower_hull(std::vector<Row> rows) {
  const auto key = [](const Row& r) { return std::tuple(r.flops, r.loss, r.params, r.tokens); };
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  std::vector<Row> hull;
  for (const Row& r : rows) {
    // No row is on the falling side of the hull if a cheaper one has its loss: the running minimum of every run.
    if (!hull.empty() && r.loss >= hull.back().loss) continue;
    while (hull.size() > 1 && above(hull[hull.size() - 2], hull.back(), r)) hull.pop_back();
    hull.push_back(r);
  }
  return hull;
}

std::optional<Frontier> fit_frontier(const Runs& runs, std::span<const double> weight_of_run) {
  std::vector<Row> rows;
  for (const Row& r : runs.rows)
    if (weight_of_run.empty() || weight_of_run[static_cast<size_t>(r.run)] > 0) rows.push_back(r);
  const std::vector<Row> hull = lower_hull(std::move(rows));
  if (hull.size() < 3) return std::nullopt;
  return Frontier{
      .params = power_law(hull, &Row::params), .tokens = power_law(hull, &Row::tokens), .points = std::ssize(hull)};
}

}  // namespace braid::law
