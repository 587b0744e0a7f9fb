#include "eda/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "math/solve.h"
#include "sys/check.h"

namespace braid::eda {
namespace {

// Numbers of the values, lowest first; equal ones stay in order.
std::vector<size_t> order_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::vector<double> ranks_of(std::span<const double> values) {
  const std::vector<size_t> order = order_of(values);
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
    begin = end;
  }
  return ranks;
}

std::optional<double> spearman(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  if (a.size() < 2) return std::nullopt;
  const std::vector<double> ra = ranks_of(a), rb = ranks_of(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double both = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < ra.size(); ++i) {
    both += (ra[i] - mean) * (rb[i] - mean);
    of_a += (ra[i] - mean) * (ra[i] - mean);
    of_b += (rb[i] - mean) * (rb[i] - mean);
  }
  if (of_a == 0 || of_b == 0) return std::nullopt;
  return both / std::sqrt(of_a * of_b);
}

std::optional<double> determination(std::span<const double> predicted, std::span<const double> values) {
  CHECK(predicted.size() == values.size(), "{} and {} values", predicted.size(), values.size());
  if (values.empty()) return std::nullopt;
  const double mean = mean_of(values);
  double error = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += (predicted[i] - values[i]) * (predicted[i] - values[i]);
    all += (values[i] - mean) * (values[i] - mean);
  }
  if (all == 0) return std::nullopt;
  return 1 - error / all;
}

double top_regret(std::span<const double> predicted, std::span<const double> values, int64_t k) {
  CHECK(predicted.size() == values.size() && !values.empty() && k > 0, "{} values, k = {}", values.size(), k);
  const std::vector<size_t> order = order_of(predicted);
  double best = values[order[0]];
  for (size_t i = 1; i < std::min(order.size(), static_cast<size_t>(k)); ++i) best = std::min(best, values[order[i]]);
  return best / *std::min_element(values.begin(), values.end()) - 1;
}

double chance_regret(std::span<const double> values, int64_t k) {
  CHECK(!values.empty() && k > 0, "{} values, k = {}", values.size(), k);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size()), tries = std::min(static_cast<double>(k), n);
  // The chance that all draws are among those from i on, and then that the i-th is one of them.
  double mean = 0, left = 1;
  for (size_t i = 0; i < sorted.size() && left > 0; ++i) {
    const double rest = n - static_cast<double>(i), without = std::max(0.0, (rest - tries) / rest);
    mean += sorted[i] * left * (1 - without);
    left *= without;
  }
  return mean / sorted[0] - 1;
}

std::vector<double> least_squares(const std::vector<std::vector<double>>& rows, std::span<const double> values,
                                  double ridge) {
  CHECK(!rows.empty() && rows.size() == values.size(), "{} rows, {} values", rows.size(), values.size());
  const size_t width = rows[0].size() + 1;
  std::vector<double> a(width * width), b(width);  // normal equations
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto at = [&](size_t i) { return i + 1 == width ? 1 : rows[r][i]; };
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = 0; j < width; ++j) a[i * width + j] += at(i) * at(j);
      b[i] += at(i) * values[r];
    }
  }
  for (size_t i = 0; i + 1 < width; ++i) a[i * width + i] += ridge;
  CHECK(solve_rows(a, b, static_cast<int64_t>(width)), "a ridge of {}", ridge);
  return b;
}

}  // namespace braid::eda
