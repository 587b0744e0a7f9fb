#include "prune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "sys/error.h"

namespace braid::prune {
namespace {

constexpr int64_t kGrid = int64_t{1} << 18;  // combinations of sizes, each counted
constexpr int64_t kSizes = 5;                // of an axis at most
constexpr double kSlack = 0.08;              // of a target, that may be left unused if others use it better
constexpr int kRounds = 3;                   // of candidates that are measured, if all before were too slow

constexpr const char* kMeasures[] = {"params", "active", "gib", "tok_s"};
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

double of(const Candidate& c, Measure what) {
  switch (what) {
    case Measure::params:
      return static_cast<double>(c.cost.params);
    case Measure::active:
      return static_cast<double>(c.cost.active);
    case Measure::gib:
      return static_cast<double>(c.bytes) / kGib;
    default:
      return c.tokens_s;
  }
}

bool meets(const Candidate& c, Measure what, double limit) {
  return what == Measure::tok_s ? of(c, what) >= limit : of(c, what) <= limit;
}

// Not much smaller than was asked for: a small sample can flatter a small model.
bool is_near(const Candidate& c, Measure what, double limit) {
  return what == Measure::tok_s ? of(c, what) <= limit * (1 + kSlack) : of(c, what) >= limit * (1 - kSlack);
}

std::string text_of(Measure what, double value, double whole) {
  const std::string number = what == Measure::gib     ? fmt::format("{:.4g} GiB", value)
                             : what == Measure::tok_s ? fmt::format("{:.4g} tokens/s", value)
                                                      : fmt::format("{:.0f} parameters", value);
  return fmt::format("{} ({:.1f}% of the whole)", number, 100 * value / whole);
}

double limit_of(const Candidate& whole, const Target& t) { return t.share ? t.value * of(whole, t.what) : t.value; }

void refuse_met(const Candidate& whole, const SearchOptions& options) {
  const Target& t = options.target;
  if (meets(whole, t.what, limit_of(whole, t)))
    fail(options.asked,
         {.what = "the model meets it as it is", .got = text_of(t.what, of(whole, t.what), of(whole, t.what))});
}

// Refuses a target that nothing meets, with what comes nearest to it.
[[noreturn]] void offer(const Candidate& whole, const Candidate& nearest, const SearchOptions& options) {
  const Measure what = options.target.what;
  const double reached = of(nearest, what), all = of(whole, what), share = reached / all;
  const bool speed = what == Measure::tok_s;
  const std::string target = fmt::format("--target {}={:.3f}{}", kMeasures[static_cast<size_t>(what)],
                                         speed ? std::floor(share * 1000) / 1000 : std::ceil(share * 1000) / 1000,
                                         what == Measure::params || what == Measure::active ? "" : "x");
  fail(
      options.asked,
      {.what = fmt::format("no combination of cuts has {} {}", speed ? "at least" : "at most",
                           text_of(what, limit_of(whole, options.target), all)),
       .got = fmt::format("{} {}", text_of(what, reached, all), speed ? "of the smallest, measured" : "as the nearest"),
       .hint = fmt::format("{}, more axes, or a lower --min-width or --min-depth",
                           options.asked == std::string_view("--target") ? target : "a larger budget")});
}

class Searcher {
 public:
  Searcher(const std::array<AxisRange, kAxes>& ranges, const Candidate& whole, const CostModel& costs,
           const SearchOptions& options, const Trials& trials, const std::function<bool(int64_t, int64_t)>& progress)
      : ranges_(ranges), whole_(whole), costs_(costs), options_(options), trials_(trials), progress_(progress) {
    limit_ = limit_of(whole, options.target);
    refuse_met(whole, options);
    choose_grid();
  }

  Found run() {
    Found found;
    if (!check_reachable() || !measure_single(found.single)) return {};
    for (int round = 0; found.tried.empty(); ++round) {
      found.tried = combinations(false);
      if (found.tried.empty() || round == kRounds) found.tried = {least_};
      if (!measure(found.tried)) return {};
      if (is_speed()) drop_slow(found.tried);
    }
    std::stable_sort(found.tried.begin(), found.tried.end(),
                     [](const Candidate& a, const Candidate& b) { return a.loss < b.loss; });
    return found;
  }

 private:
  struct Point {
    int64_t size = 0;
    double loss = 0;  // added by this cut alone
  };

  bool is_speed() const { return options_.target.what == Measure::tok_s; }

  // Error where no combination meets the target. Sizes are counted; of speed, the smallest combination is measured,
  // which is then one that does. False: stopped.
  bool check_reachable() {
    if (!is_speed()) {
      combinations(true);
      return true;
    }
    std::vector<size_t> last;
    for (const auto& points : grid_) last.push_back(points.size() - 1);
    least_ = candidate(last);
    least_.tokens_s = trials_.tokens_s(least_.sizes);
    if (!meets(least_, Measure::tok_s, limit_)) offer(whole_, least_, options_);
    return step();
  }

  // As many sizes for each axis as keep the number of combinations small.
  void choose_grid() {
    int64_t count = 0;
    for (int64_t most = kSizes; most >= 2; --most) {
      grid_.clear();
      count = 1;
      for (const Axis a : options_.axes) {
        std::vector<Point>& points = grid_.emplace_back();
        for (const int64_t size : sizes_of(ranges_[static_cast<size_t>(a)], most)) points.push_back({size});
        count *= std::ssize(points);
      }
      if (count <= kGrid) break;
    }
    total_ = options_.candidates + is_speed();
    for (const auto& points : grid_) total_ += std::ssize(points) - 1;
  }

  bool step() {
    total_ = std::max(total_, ++done_);
    return progress_(done_, total_);
  }

  bool measure_single(std::vector<SingleCut>& list) {
    for (size_t i = 0; i < grid_.size(); ++i) {
      for (size_t k = 1; k < grid_[i].size(); ++k) {
        Sizes sizes = options_.base;
        sizes[options_.axes[i]] = grid_[i][k].size;
        const double loss = trials_.loss(sizes);
        grid_[i][k].loss = loss - whole_.loss;
        list.push_back({options_.axes[i], grid_[i][k].size, loss});
        if (!step()) return false;
      }
    }
    return true;
  }

  bool measure(std::vector<Candidate>& list) {
    double reached = 0;  // of the estimate, at most
    for (Candidate& c : list) {
      const double estimate = std::exchange(c.tokens_s, is_least(c) ? least_.tokens_s : trials_.tokens_s(c.sizes));
      if (is_speed()) reached = std::max(reached, c.tokens_s / estimate);
      c.loss = trials_.loss(c.sizes);
      if (!step()) return false;
    }
    if (is_speed()) correction_ *= reached;
    return true;
  }
  bool is_least(const Candidate& c) const { return least_.tokens_s > 0 && c.sizes == least_.sizes; }

  // Decoding reads the active parameters, and does what does not depend on them: the time of a token, linear between
  // the whole and the smallest combination.
  double estimated_tokens_s(const Candidate& c) const {
    const auto active = [](const Candidate& m) { return static_cast<double>(m.cost.active); };
    const double range = active(whole_) - active(least_), whole_s = 1 / whole_.tokens_s;
    const double share = range > 0 ? (active(whole_) - active(c)) / range : 0;
    return correction_ / (whole_s + share * (1 / least_.tokens_s - whole_s));
  }

  Candidate candidate(std::span<const size_t> at) const {
    Candidate c{.sizes = options_.base};
    for (size_t i = 0; i < at.size(); ++i) {
      const Point& p = grid_[i][at[i]];
      c.predicted += p.loss;
      if (at[i] > 0) c.sizes[options_.axes[i]] = p.size;
    }
    c.cost = costs_.of(c.sizes);
    if (trials_.bytes) c.bytes = trials_.bytes(c.sizes);
    if (least_.tokens_s > 0) c.tokens_s = estimated_tokens_s(c);
    return c;
  }

  // Those that meet the target, the best few by their predicted loss: of those near it, if there are such. `any`: one
  // is enough. None only of a speed, by the estimate.
  std::vector<Candidate> combinations(bool any) const {
    std::vector<Candidate> best;
    bool near = false;
    std::vector<size_t> at(grid_.size(), 0);
    const auto less = [](const Candidate& a, const Candidate& b) { return a.predicted < b.predicted; };
    Candidate nearest = whole_;
    const Measure what = options_.target.what;
    for (bool more = true; more;) {
      Candidate c = candidate(at);
      if (of(c, what) < of(nearest, what)) nearest = c;
      const bool close = is_near(c, what, limit_);
      if (meets(c, what, limit_) && (close || !near)) {
        if (close && !near) best.clear();
        near = close;
        best.push_back(c);
        if (any) return best;
        std::push_heap(best.begin(), best.end(), less);  // the worst on top
        if (std::ssize(best) > options_.candidates) {
          std::pop_heap(best.begin(), best.end(), less);
          best.pop_back();
        }
      }
      size_t i = 0;
      while (i < at.size() && ++at[i] == grid_[i].size()) at[i++] = 0;
      more = i < at.size();
    }
    if (best.empty() && !is_speed()) offer(whole_, nearest, options_);
    std::sort_heap(best.begin(), best.end(), less);
    return best;
  }

  void drop_slow(std::vector<Candidate>& list) const {
    std::erase_if(list, [&](const Candidate& c) { return !meets(c, Measure::tok_s, limit_); });
  }

  const std::array<AxisRange, kAxes>& ranges_;
  const Candidate& whole_;
  const CostModel& costs_;
  const SearchOptions& options_;
  const Trials& trials_;
  const std::function<bool(int64_t, int64_t)>& progress_;
  double limit_ = 0;
  Candidate least_;        // the smallest combination, measured; without tokens/s where the target is not a speed
  double correction_ = 1;  // of estimated tokens/s, from the candidates that were measured
  std::vector<std::vector<Point>> grid_;  // by axis of the options; the whole first
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

Target parse_target(const std::string& text) {
  const auto refuse = [&] {
    fail("--target", {.what = "no such target",
                      .got = printable(text),
                      .expected = "params=, active=, gib= or tok_s= and a number",
                      .hint = "params=0.75, active=2e9, gib=4, gib=75%, tok_s=1.3x"});
  };
  const size_t equals = text.find('=');
  if (equals == std::string::npos) refuse();
  const auto* const found = std::find(std::begin(kMeasures), std::end(kMeasures), text.substr(0, equals));
  if (found == std::end(kMeasures)) refuse();
  Target t{.what = static_cast<Measure>(found - std::begin(kMeasures))};
  const std::string number = text.substr(equals + 1);
  char* end = nullptr;
  t.value = std::strtod(number.c_str(), &end);
  const std::string unit = end;
  if (end == number.c_str() || !std::isfinite(t.value) || t.value <= 0 || t.value > 1e18) refuse();
  if (unit == "%") t.value /= 100;
  if (!unit.empty() && unit != "%" && unit != "x") refuse();
  const bool counts = t.what == Measure::params || t.what == Measure::active;
  if (counts && unit.empty() && t.value > 1 && t.value != std::floor(t.value))
    fail("--target", {.what = "is neither a share of the parameters nor a number of them",
                      .got = printable(text),
                      .expected = "a share up to 1, a whole number above it, or a percentage",
                      .hint = fmt::format("{}=0.75, which keeps 75%", *found)});
  t.share = !unit.empty() || (counts && t.value <= 1);
  return t;
}

void check_target(const std::array<AxisRange, kAxes>& ranges, const Candidate& whole, const CostModel& costs,
                  std::span<int64_t> order, const SearchOptions& options,
                  const std::function<int64_t(const Sizes&)>& bytes) {
  refuse_met(whole, options);
  const Measure what = options.target.what;
  if (what == Measure::tok_s) return;
  Candidate least{.sizes = options.base};
  for (const Axis a : options.axes) least.sizes[a] = ranges[static_cast<size_t>(a)].least;
  Sizes alone = least.sizes;
  alone[Axis::layers] = 1;
  std::vector<std::pair<double, int64_t>> layers;  // what one of them and all outside layers take, and its index
  for (int64_t i = 0; i < std::ssize(order); ++i) {
    order[0] = i;
    const Candidate one{.cost = costs.of(alone), .bytes = what == Measure::gib ? bytes(alone) : 0};
    layers.emplace_back(of(one, what), i);
  }
  std::ranges::sort(layers);
  std::ranges::transform(layers, order.begin(), [](const auto& layer) { return layer.second; });
  least.cost = costs.of(least.sizes);
  if (what == Measure::gib) least.bytes = bytes(least.sizes);
  if (!meets(least, what, limit_of(whole, options.target))) offer(whole, least, options);
}

std::vector<int64_t> sizes_of(const AxisRange& range, int64_t most) {
  const int64_t steps = (range.full - range.least) / range.step, n = std::min(most - 1, std::max<int64_t>(1, steps));
  std::vector<int64_t> sizes = {range.full};
  for (int64_t i = 1; i <= n; ++i) {
    const int64_t size = range.least + (steps * (n - i) + n / 2) / n * range.step;
    if (size < sizes.back()) sizes.push_back(size);
  }
  return sizes;
}

Found search(const std::array<AxisRange, kAxes>& ranges, const Candidate& whole, const CostModel& costs,
             const SearchOptions& options, const Trials& trials,
             const std::function<bool(int64_t, int64_t)>& progress) {
  return Searcher(ranges, whole, costs, options, trials, progress).run();
}

}  // namespace braid::prune
