#include "law/fit.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::law {
namespace {

constexpr int kValuesMin = 3;          // two levels of a column give one difference, for a coefficient and an exponent
constexpr double kSameValue = 0.01;    // in logarithms: counts that rounding to whole batches leaves apart
constexpr double kSamePower = 0.02;    // the same for the distance of tokens from a power of params
constexpr double kExponentMin = 1e-3;  // below it a term is constant over any range that one can train
constexpr uint32_t kStream = 0x1a4;    // of the draws of the bootstrap

std::vector<double> logs(const Runs& runs, double Row::*column) {
  std::vector<double> values;
  for (const Row& r : runs.rows) values.push_back(std::log(r.*column));
  return values;
}

// The least values of the groups that lie together.
std::vector<double> clusters(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<double> firsts;
  for (const double v : values)
    if (firsts.empty() || v - firsts.back() > kSameValue) firsts.push_back(v);
  return firsts;
}

// Root mean square distance of y from its regression on x.
double distance_from_line(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / n;
    mean_y += y[i] / n;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return std::sqrt(std::max(0.0, yy - xy * xy / xx) / n);
}

struct Fault {
  std::string what, got, expected;
};

std::optional<Fault> unidentified(const Runs& runs) {
  for (const auto& [name, column] : {std::pair("params", &Row::params), std::pair("tokens", &Row::tokens)}) {
    const int64_t count = std::ssize(clusters(logs(runs, column)));
    if (count < kValuesMin)
      return Fault{count == 1 ? fmt::format("{} do not vary, which identifies no exponent of them", name)
                              : fmt::format("too few values of {} to identify an exponent and a coefficient", name),
                   fmt::format("{} distinct", count), fmt::format("at least {}", kValuesMin)};
  }
  if (distance_from_line(logs(runs, &Row::params), logs(runs, &Row::tokens)) < kSamePower)
    return Fault{
        "tokens are a power of params in all rows, so that their effects cannot be told apart",
        fmt::format("{:.1f}% of scatter", 100 * distance_from_line(logs(runs, &Row::params), logs(runs, &Row::tokens))),
        "sizes with several counts of tokens each"};
  return std::nullopt;
}

}  // namespace

bool identifies_shapes(const Runs& runs) {
  if (!runs.has_shapes) return false;
  const std::vector<double> widths = logs(runs, &Row::width), depths = logs(runs, &Row::depth);
  return std::min(clusters(widths).size(), clusters(depths).size()) >= kValuesMin &&
         distance_from_line(widths, depths) >= kSamePower;
}

namespace {

bool falls(const Law& law) { return law.alpha > kExponentMin && law.beta > kExponentMin; }

// How often each run is drawn, when as many are drawn as there are.
std::vector<double> draw_runs(const Runs& runs, uint64_t seed, int64_t resample) {
  std::vector<double> weight(static_cast<size_t>(runs.count), 0.0);
  for (int64_t i = 0; i < runs.count; ++i) {
    const auto bits =
        philox({.seed = seed, .stream = kStream}, static_cast<uint64_t>(i), static_cast<uint32_t>(resample));
    const uint64_t all = (uint64_t{bits[0]} << 32) | bits[1];
    weight[static_cast<size_t>(all % static_cast<uint64_t>(runs.count))] += 1;
  }
  return weight;
}

// The rows whose run was drawn, for the checks of identifiability.
Runs drawn_rows(const Runs& runs, const std::vector<double>& weight) {
  Runs drawn{.count = runs.count, .own_flops = runs.own_flops, .has_shapes = runs.has_shapes};
  for (const Row& r : runs.rows)
    if (weight[static_cast<size_t>(r.run)] > 0) drawn.rows.push_back(r);
  return drawn;
}

void bootstrap(const Runs& runs, const std::vector<Law>& starts, const FitOptions& o, Fit& fit) {
  std::vector<std::optional<Law>> laws(static_cast<size_t>(o.resamples));
  std::vector<std::optional<Frontier>> frontiers(laws.size());
  std::vector<std::optional<ShapeLaw>> shapes(laws.size());
  sys::parallel_tasks(o.threads, o.resamples, [&](int64_t i) {
    const std::vector<double> weight = draw_runs(runs, o.seed, i);
    const auto at = static_cast<size_t>(i);
    frontiers[at] = fit_frontier(runs, weight);
    const Runs drawn = drawn_rows(runs, weight);
    if (fit.shapes && identifies_shapes(drawn)) shapes[at] = fit_shapes(runs, weight, o.delta, 1, &fit.shapes->law).law;
    if (unidentified(drawn)) return;
    const Law law = refit_parametric(sample_of(runs, weight), o.delta, starts);
    if (falls(law)) laws[at] = law;
  });
  for (const auto& law : laws)
    if (law) fit.draws.push_back(*law);
  for (const auto& law : shapes)
    if (law) fit.shape_draws.push_back(*law);
  for (const auto& frontier : frontiers)
    if (frontier) fit.frontier_draws.push_back(*frontier);
}

LeftOut leave_sizes_out(const Runs& runs, const std::vector<Law>& starts, const FitOptions& o) {
  const std::vector<double> sizes = clusters(logs(runs, &Row::params));
  const auto size_of = [&](const Row& r) {  // the last that begins at or below it
    return std::upper_bound(sizes.begin(), sizes.end(), std::log(r.params)) - sizes.begin() - 1;
  };
  std::vector<std::optional<Law>> laws(sizes.size());
  sys::parallel_tasks(o.threads, std::ssize(sizes), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    Runs rest = runs;
    std::erase_if(rest.rows, [&](const Row& r) { return size_of(r) == i; });
    if (!rest.rows.empty() && !unidentified(rest)) laws[at] = refit_parametric(sample_of(rest, {}), o.delta, starts);
  });
  LeftOut out;
  int64_t rows = 0;
  for (const Row& r : runs.rows) {
    const auto& law = laws[static_cast<size_t>(size_of(r))];
    if (!law) continue;
    const double error = law->loss(r.params, r.tokens) / r.loss - 1;
    ++rows;
    out.mean += error;
    out.rms += error * error;
    if (std::fabs(error) > std::fabs(out.worst)) {
      out.worst = error;
      out.worst_params = r.params;
    }
  }
  for (const auto& law : laws) out.sizes += law ? 1 : 0;
  if (rows == 0) return out;
  out.mean /= static_cast<double>(rows);
  out.rms = std::sqrt(out.rms / static_cast<double>(rows));
  return out;
}

Range range_of(const Runs& runs, double Row::*column) {
  Range range{.low = runs.rows[0].*column, .high = runs.rows[0].*column};
  for (const Row& r : runs.rows) {
    range.low = std::min(range.low, r.*column);
    range.high = std::max(range.high, r.*column);
  }
  return range;
}

double median_flops_factor(const Runs& runs) {
  std::vector<double> factors;
  for (const Row& r : runs.rows) factors.push_back(r.flops / (r.params * r.tokens));
  std::nth_element(factors.begin(), factors.begin() + std::ssize(factors) / 2, factors.end());
  return factors[factors.size() / 2];
}

std::vector<std::string> warnings_of(const Fit& f, const FitOptions& o) {
  std::vector<std::string> list;
  const double e = f.law.irreducible();
  if (e < 0.01 * f.loss.low)
    list.push_back(fmt::format("E is degenerate ({:.2g}): the rows do not show where the loss levels off", e));
  if (f.shapes && f.shapes->law.irreducible() < 0.01 * f.loss.low)
    list.push_back(fmt::format("E of the law of width and depth is degenerate ({:.2g})", f.shapes->law.irreducible()));
  if (f.sizes < 5) list.push_back(fmt::format("only {} sizes", f.sizes));
  if (f.runs < 8) list.push_back(fmt::format("only {} runs: intervals by resampling them are too narrow", f.runs));
  if (std::ssize(f.draws) < o.resamples)
    list.push_back(fmt::format("{} of {} resamples identify no law and are left out of the intervals",
                               o.resamples - std::ssize(f.draws), o.resamples));
  if (f.starts_near < 0.02)
    list.push_back(
        fmt::format("only {:.1f}% of the best eighth of starts came near the best fit", 100 * f.starts_near));
  if (!f.frontier) {
    list.push_back("fewer than three rows on the hull: no fit by approach 1");
  } else if (!f.draws.empty()) {
    const Range r = interval_of(f.draws, [](const Law& law) { return law.size_exponent(); });
    const double hull = f.frontier->params.exponent;
    if (hull < r.low || hull > r.high)
      list.push_back(
          fmt::format("the approaches disagree: params grow as C^{:.3f} on the hull of {} rows, and as C^{:.3f} to "
                      "C^{:.3f} by the formula: "
                      "its form does not fit these runs, or too few of them are near an optimum",
                      hull, f.frontier->points, r.low, r.high));
  }
  return list;
}

}  // namespace

Range interval(std::vector<double> values, double share) {
  if (values.empty()) return {std::nan(""), std::nan("")};
  std::sort(values.begin(), values.end());
  const auto at = [&](double quantile) {
    const double place = quantile * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t next = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[next] - values[below]);
  };
  return {at(0.5 - 0.5 * share), at(0.5 + 0.5 * share)};
}

void check_identifiable(const Runs& runs, const std::string& name) {
  if (const std::optional<Fault> fault = unidentified(runs))
    fail(printable(name), {.what = fault->what, .got = fault->got, .expected = fault->expected});
}

Fit fit(const Runs& runs, const std::string& name, const FitOptions& o) {
  check_identifiable(runs, name);
  const Sample sample = sample_of(runs, {});
  const ParametricFit found = fit_parametric(sample, o.delta, o.threads);
  if (!falls(found.law))
    fail(printable(name),
         {.what = fmt::format("the loss does not fall with {}", found.law.alpha > kExponentMin ? "tokens" : "params"),
          .got = fmt::format("alpha {:.3g}, beta {:.3g}", found.law.alpha, found.law.beta),
          .expected = "positive exponents"});
  Fit f{.runs = runs.count, .rows = std::ssize(runs.rows), .sizes = std::ssize(clusters(logs(runs, &Row::params)))};
  f.params = range_of(runs, &Row::params);
  f.tokens = range_of(runs, &Row::tokens);
  f.flops = range_of(runs, &Row::flops);
  f.loss = range_of(runs, &Row::loss);
  f.flops_factor = median_flops_factor(runs);
  f.delta = o.delta;
  f.objective = found.objective;
  f.rms = rms_residual(sample, found.law);
  f.starts_near = found.starts_near;
  f.law = found.law;
  f.frontier = fit_frontier(runs, {});
  if (identifies_shapes(runs)) f.shapes = fit_shapes(runs, {}, o.delta, o.threads);
  bootstrap(runs, found.starts, o, f);
  f.left_out = leave_sizes_out(runs, found.starts, o);
  f.warnings = warnings_of(f, o);
  return f;
}

}  // namespace braid::law
