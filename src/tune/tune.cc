#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string_view>

#include "codec/codec.h"
#include "core/philox.h"
#include "kernels/linear/linear.h"

namespace braid::tune {
namespace {

constexpr int64_t kFarBytes = int64_t{256} << 20;  // of weights in a pass: more than L3 holds
constexpr double kOperations = 5e9;                // of a pass at most: 10 to 50 ms
constexpr int64_t kWeightRows = 1024;              // of a matrix at least, if it has so many: enough tasks for a team

// Rows of x on both sides of every default, and around what else may be chosen.
constexpr int64_t kLadder[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};

// Of the logarithms of ratios.
Point point_of(int64_t rows, const std::vector<double>& logs) {
  const double middle = median(logs);
  std::vector<double> apart;
  apart.reserve(logs.size());
  for (const double log : logs) apart.push_back(std::abs(log - middle));
  return {rows, std::exp(middle), median(std::move(apart))};
}

// Of a choice that differs from the default at some points.
bool is_sure(double log_gain, double noise) { return log_gain >= std::log(kLeastGain) && log_gain > noise; }

// What a threshold is about: rows of linear_fwd by the start of their name, weights as they lie in files or all, and
// products of linear_fwd alone or of experts, too.
struct Scope {
  const char* name;
  const char* row;
  bool dense, experts;
};
constexpr Scope kScopes[] = {{"panel_stream_rows", "panel_", true, true},
                             {"panel_few_rows", "panel_", false, true},
                             {"panel_task_rows", "panel_", false, false},
                             {"codes_few_rows", "codes_a8", false, true},
                             {"codes_task_rows", "codes_a8", false, false}};

const Scope& scope_of(const Threshold& threshold) {
  for (const Scope& scope : kScopes) {
    if (std::string_view(scope.name) == threshold.name) return scope;
  }
  CHECK(false, "threshold {} has no scope", threshold.name);
  return kScopes[0];
}

// Products with one set of matrices, and the values they read and write.
class Products {
 public:
  Products(const Matrices& matrices, const Options& o, int64_t rows_most) : o_(o), weights_(matrices.weights) {
    const Weight& w = weights_[0];
    x_ = Tensor(arena_, o.x, {rows_most, w.cols});
    y_ = Tensor(arena_, DType::f32, {rows_most, w.rows});
    for (int64_t i = 0; i < x_.view().count(); ++i)
      set_value(i, static_cast<float>(philox({.seed = 1}, static_cast<uint64_t>(i))[0] % 255) / 127.0f - 1.0f);
    ctx_.threads = o.threads;
    ctx_.verbose_dispatch = false;
  }

  LinearFwd op(int64_t rows, const Thresholds* t, size_t i = 0) const {
    const Weight& w = weights_[i];
    // Of a large one the first rows: heads have a gigabyte.
    const double affordable = kOperations / 2 / static_cast<double>(rows) / static_cast<double>(w.cols);
    const int64_t n = std::min(w.rows, std::max(kWeightRows, static_cast<int64_t>(affordable)));
    return {.x = x_.view().slice(0, 0, rows),
            .w = w.rows_of(0, n),
            .y = y_.mut().slice(0, 0, rows).slice(1, 0, n),
            .codes = o_.codes,
            .thresholds = t};
  }
  // What runs with the defaults of ops: a profile or BRAID_OP changes nothing here.
  const Row<LinearFwd>& row() const { return braid::choose(ctx_, op(1, nullptr)); }

  // Every weight once, as far as memory and time allow; the first in any case.
  void pass(const Row<LinearFwd>& row, int64_t rows, const Thresholds* t) {
    int64_t bytes = 0;
    double operations = 0;
    for (size_t i = 0; i < weights_.size() && (i == 0 || (bytes < kFarBytes && operations < kOperations)); ++i) {
      const LinearFwd call = op(rows, t, i);
      run_row(ctx_, call, row);
      bytes += call.w.bytes();
      operations += call.flops();
    }
  }

 private:
  void set_value(int64_t i, float value) {
    const MutView x = x_.mut();
    x.dtype == DType::bf16 ? void(x.as<Bf16>()[i] = to_bf16(value)) : void(x.as<float>()[i] = value);
  }

  Arena arena_;
  Ctx ctx_{.arena = arena_, .forced_rows = {}, .preferred_rows = {}};
  Options o_;
  std::span<const Weight> weights_;
  Tensor x_, y_;
};

bool concerns(const Scope& scope, const Matrices& matrices, const Products& products) {
  const Format format = matrices.weights[0].spec.format;
  if (scope.dense && !codec_of(format).in_place) return false;
  if (matrices.experts && !scope.experts) return false;
  return std::string_view(products.row().name).starts_with(scope.row);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of one call, which is repeated where it is short beside what a clock and a scheduler do.
template <class Call>
double seconds_of(const Call& call) {
  constexpr double kLeast = 3e-3;
  const double begin = now();
  double taken = 0;
  int64_t calls = 0;
  for (; taken < kLeast; taken = now() - begin, ++calls) call();
  return taken / static_cast<double>(calls);
}

std::vector<std::unique_ptr<Products>> products_of(std::span<const Matrices> model, const Options& o, int64_t most) {
  std::vector<std::unique_ptr<Products>> products;
  for (const Matrices& matrices : model) products.push_back(std::make_unique<Products>(matrices, o, most));
  return products;
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Finding choose(const Threshold& threshold, int64_t initial, std::vector<Point> points) {
  Finding found{.threshold = &threshold, .points = std::move(points), .initial = initial, .chosen = initial};
  // The log of the time with a threshold `t` over that of the way above throughout.
  const auto cost = [&](int64_t t) {
    double sum = 0;
    for (const Point& p : found.points) sum -= p.rows <= t ? std::log(p.ratio) : 0;
    return sum;
  };
  std::vector<int64_t> values = {0};
  for (const Point& p : found.points) values.push_back(p.rows);
  int64_t best = initial;
  for (const int64_t value : values) {
    if (value > threshold.most) continue;
    // Of equal ones the nearest to the default.
    const double gain = cost(best) - cost(value);
    if (gain > 1e-9 || (gain > -1e-9 && std::abs(value - initial) < std::abs(best - initial))) best = value;
  }
  double noise = 0, apart = 0;  // where the values differ
  for (const Point& p : found.points) {
    if ((p.rows <= best) != (p.rows <= initial)) noise += p.noise, ++apart;
  }
  if (apart == 0) return found;
  const double log_gain = (cost(initial) - cost(best)) / apart;
  if (!is_sure(log_gain, noise / apart)) return found;
  found.chosen = best;
  found.gain = std::exp(log_gain);
  return found;
}

std::string summary_of(std::span<const Finding> findings) {
  std::string timed, changed, unasked;
  for (const Finding& f : findings) {
    const auto add = [&](std::string& list) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ", f.threshold->name);
    };
    add(f.points.empty() ? unasked : timed);
    if (f.chosen != f.initial) add(changed);
  }
  if (timed.empty()) return "nothing was timed: no product of this model asks for a threshold on this CPU";
  std::string text = fmt::format("timed: {}; {}", timed,
                                 changed.empty() ? "the defaults of these are right here" : "chosen anew: " + changed);
  if (!unasked.empty()) text += fmt::format("; not timed, since no product here asks for them: {}", unasked);
  return text;
}

std::vector<Point> compare(const Threshold& threshold, std::span<const int64_t> rows, int rounds,
                           const Seconds& seconds) {
  std::vector<Point> points;
  for (const int64_t n : rows) {
    if (n > threshold.most) break;
    Thresholds below, above;
    below.*threshold.value = n;
    above.*threshold.value = n - 1;
    seconds(below, n);  // pages and caches
    std::vector<double> logs;
    for (int round = 0; round < rounds; round += 2) {
      const double below_first = seconds(below, n), above_next = seconds(above, n);
      const double above_first = seconds(above, n), below_next = seconds(below, n);
      logs.push_back(std::log(above_next / below_first * (above_first / below_next)) / 2);
    }
    points.push_back(point_of(n, logs));
  }
  return points;
}

Finding confirmed(Finding f, int rounds, const Seconds& seconds) {
  if (f.chosen == f.initial) return f;
  std::vector<int64_t> rows;
  for (const Point& p : f.points) {
    if ((p.rows <= f.chosen) != (p.rows <= f.initial)) rows.push_back(p.rows);
  }
  double sum = 0, noise = 0;
  for (const Point& p : compare(*f.threshold, rows, rounds, seconds)) sum += std::log(p.ratio), noise += p.noise;
  const auto n = static_cast<double>(rows.size());
  const double log_gain = (f.chosen > f.initial ? sum : -sum) / n;
  f.gain = std::exp(log_gain);
  if (!is_sure(log_gain, noise / n)) f.chosen = f.initial, f.gain = 1;
  return f;
}

std::vector<Finding> tune(std::span<const Matrices> model, const Options& o, const Progress& progress) {
  const auto products = products_of(model, o, *std::ranges::max_element(kLadder));
  const Thresholds defaults;
  std::vector<Finding> findings;
  const auto total = static_cast<int64_t>(threshold_table().size() * std::size(kLadder));
  for (const Threshold& threshold : threshold_table()) {
    const Scope& scope = scope_of(threshold);
    std::vector<Products*> concerned;
    for (size_t i = 0; i < products.size(); ++i) {
      if (concerns(scope, model[i], *products[i])) concerned.push_back(products[i].get());
    }
    const auto seconds = [&](const Thresholds& t, int64_t rows) {
      return seconds_of([&] {
        for (Products* p : concerned) p->pass(p->row(), rows, &t);
      });
    };
    std::vector<Point> points;
    for (size_t step = 0; step < std::size(kLadder); ++step) {
      progress(static_cast<int64_t>(findings.size() * std::size(kLadder) + step), total);
      if (concerned.empty()) continue;
      const std::vector<Point> more = compare(threshold, {&kLadder[step], 1}, o.rounds, seconds);
      points.insert(points.end(), more.begin(), more.end());
    }
    const Finding found = choose(threshold, defaults.*threshold.value, std::move(points));
    findings.push_back(confirmed(found, 2 * o.rounds, seconds));
  }
  return findings;
}

std::vector<UnitTime> units(std::span<const Matrices> model, const Options& o, int64_t rows) {
  constexpr int kRounds = 3;
  std::vector<UnitTime> times;
  const auto products = products_of(model, o, rows);
  for (const Row<LinearFwd>& row : LinearFwd::rows()) {
    const auto takes = [&](const auto& p) { return !refusal(row, p->op(rows, nullptr), Device::cpu); };
    if (std::string_view(row.name) == "ref" || !std::ranges::all_of(products, takes)) continue;
    UnitTime time{.row = row.name, .numerics = row.numerics, .rows = rows, .us = std::numeric_limits<double>::max()};
    for (int round = 0; round < kRounds; ++round) {
      const double seconds = seconds_of([&] {
        for (const auto& p : products) p->pass(row, rows, nullptr);
      });
      time.us = std::min(time.us, 1e6 * seconds);
    }
    time.taken = std::ranges::all_of(products, [&](const auto& p) { return &p->row() == &row; });
    times.push_back(time);
  }
  return times;
}

}  // namespace braid::tune
