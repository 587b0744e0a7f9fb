// Branch and bound, breadth first: the partial choices of the first layers are extended by every variant of the next
// one, and dropped where another costs no more and scores no more, where the limits cannot be met any longer, or where
// the Lagrangian bound of what is left shows that they do not lead below the best choice known. With one limit this is
// dynamic programming over the Pareto front of cost and score. Where more are left than the width, those with the
// lowest bounds stay; the least bound among the others then bounds what was not looked at. Narrow passes come first:
// the choices that they find prune the wide ones.
#include "compress/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <numeric>
#include <optional>
#include <span>

#include "compress/dual.h"
#include "sys/error.h"

namespace braid::compress {
namespace {

// Prices around the best ones: a partial choice that has spent more or less than the average has others.
constexpr double kFactors[] = {0, 0.5, 0.8, 0.95, 1.05, 1.25, 2};
// A state is compared with so many of those that cost less of the first limit; with one limit the last is enough.
constexpr int64_t kCompared = 64;
constexpr int64_t kNarrowest = 64, kWidening = 32;

struct State {
  std::array<double, kLimitsMax> cost{};
  double score = 0, bound = 0;
  int32_t parent = -1, variant = -1;
};

bool dominates(const State& a, const State& b, size_t limits) {
  for (size_t k = 0; k < limits; ++k) {
    if (a.cost[k] > b.cost[k]) return false;
  }
  return a.score <= b.score;
}

class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem), limits_(static_cast<size_t>(problem.limits)) {
    const Dual dual = maximise_dual(problem);
    variants_ = dual.variants;
    best_ = variants_.empty() ? kInfinity : dual.score;
    bound_ = dual.bound;
    prices_.push_back(dual.prices);
    for (size_t k = 0; k < limits_; ++k) {
      for (double factor : kFactors) {
        prices_.push_back(dual.prices);
        prices_.back()[k] *= factor;
      }
    }
    tabulate();
  }

  // Widens until nothing was left out that could be better.
  void run(const Effort& effort) {
    const int64_t most = std::max<int64_t>(1, std::min(effort.width, effort.partial / problem_.layers()));
    for (int64_t width = std::min(kNarrowest, most); !proven(); width = std::min(width * kWidening, most)) {
      const double left_out = pass(width);
      bound_ = std::max(bound_, std::min(best_, left_out));
      if (left_out >= cut()) bound_ = best_;
      if (width == most) break;
    }
    bound_ = proven() ? best_ : bound_;
  }

  const std::vector<int64_t>& variants() const { return variants_; }  // as Problem numbers them; empty: none found
  double bound() const { return bound_; }

 private:
  double cut() const { return best_ - problem_.tolerance; }
  bool proven() const { return bound_ >= cut(); }

  // What the bounds need of the layers from l on.
  void tabulate() {
    const auto layers = static_cast<size_t>(problem_.layers());
    rest_.assign(layers + 1, std::vector<double>(prices_.size()));
    least_.assign(layers + 1, {});
    order_.resize(problem_.score.size());
    std::iota(order_.begin(), order_.end(), 0);
    for (size_t m = 0; m < prices_.size(); ++m) {
      rest_[layers][m] = -problem_.rounding(prices_[m]);
      for (size_t k = 0; k < limits_; ++k) rest_[layers][m] -= prices_[m][k] * problem_.limit[k];
    }
    for (size_t l = layers; l-- > 0;) {
      const std::span<int32_t> layer = variants_of(l);
      std::ranges::stable_sort(layer, {}, [&](int32_t v) { return problem_.priced(v, prices_[0]); });
      for (size_t m = 0; m < prices_.size(); ++m) {
        double least = kInfinity;
        for (int32_t v : layer) least = std::min(least, problem_.priced(v, prices_[m]));
        rest_[l][m] = rest_[l + 1][m] + least;
      }
      for (size_t k = 0; k < limits_; ++k) {
        double least = kInfinity;
        for (int32_t v : layer) least = std::min(least, problem_.cost_of(v)[k]);
        least_[l][k] = least_[l + 1][k] + least;
      }
    }
  }

  std::span<int32_t> variants_of(size_t l) {
    const auto at = [&](size_t i) { return static_cast<size_t>(problem_.begin[i]); };
    return std::span(order_).subspan(at(l), at(l + 1) - at(l));
  }

  // One pass over the layers. Returns the least bound of the states dropped because they exceeded the width.
  double pass(int64_t width) {
    left_out_ = kInfinity;
    steps_.clear();
    std::vector<State> states(1), next;
    for (size_t l = 0; l < static_cast<size_t>(problem_.layers()); ++l) {
      next.clear();
      price(l);
      for (size_t i = 0; i < states.size(); ++i) {
        extend(states[i], static_cast<int32_t>(i), l, next);
        if (std::ssize(next) >= 4 * width) keep_best(next, 2 * width);
      }
      drop_dominated(next);
      keep_best(next, width);
      states.swap(next);
      std::vector<Step>& steps = steps_.emplace_back();
      for (const State& s : states) steps.push_back({s.parent, s.variant});
    }
    const auto best = std::ranges::min_element(states, {}, &State::score);
    if (best != states.end() && best->score < best_) {
      best_ = best->score;
      trace(best - states.begin());
    }
    return left_out_;
  }

  // Priced scores of a layer's variants, by price within variant.
  void price(size_t l) {
    priced_.clear();
    for (int32_t v : variants_of(l)) {
      for (const std::vector<double>& prices : prices_) priced_.push_back(problem_.priced(v, prices));
    }
  }

  void extend(const State& state, int32_t parent, size_t l, std::vector<State>& next) {
    const size_t count = prices_.size();
    base_.resize(count);
    for (size_t m = 0; m < count; ++m) {
      base_[m] = state.score + rest_[l + 1][m];
      for (size_t k = 0; k < limits_; ++k) base_[m] += prices_[m][k] * state.cost[k];
    }
    const double* priced = priced_.data();
    for (int32_t v : variants_of(l)) {
      double bound = base_[0] + priced[0];
      if (bound >= cut()) return;  // so are those after it: they are sorted by this
      for (size_t m = 1; m < count; ++m) bound = std::max(bound, base_[m] + priced[m]);
      priced += count;
      if (bound >= cut()) continue;
      State s{.score = state.score + problem_.score[static_cast<size_t>(v)],
              .bound = bound,
              .parent = parent,
              .variant = v};
      bool fits = true;
      for (size_t k = 0; k < limits_; ++k) {
        s.cost[k] = state.cost[k] + problem_.cost_of(v)[k];
        fits = fits && s.cost[k] + least_[l + 1][k] <= problem_.limit[k];
      }
      if (fits) next.push_back(s);
    }
  }

  void drop_dominated(std::vector<State>& states) const {
    std::ranges::sort(states, [this](const State& a, const State& b) {
      const auto order = std::lexicographical_compare_three_way(a.cost.begin(), a.cost.begin() + limits_,
                                                                b.cost.begin(), b.cost.begin() + limits_);
      if (std::is_neq(order)) return std::is_lt(order);
      return a.score != b.score ? a.score < b.score : std::pair(a.parent, a.variant) < std::pair(b.parent, b.variant);
    });
    size_t kept = 0;
    for (const State& s : states) {
      const size_t compared = std::min(kept, static_cast<size_t>(limits_ == 1 ? 1 : kCompared));
      const auto end = states.begin() + static_cast<int64_t>(kept);
      if (std::any_of(end - static_cast<int64_t>(compared), end,
                      [&](const State& k) { return dominates(k, s, limits_); }))
        continue;
      states[kept++] = s;
    }
    states.resize(kept);
  }

  void keep_best(std::vector<State>& states, int64_t width) {
    if (std::ssize(states) <= width) return;
    const auto end = states.begin() + width;
    std::ranges::nth_element(states, end, [](const State& a, const State& b) {
      return a.bound != b.bound ? a.bound < b.bound : std::pair(a.parent, a.variant) < std::pair(b.parent, b.variant);
    });
    left_out_ = std::min(left_out_, end->bound);
    states.erase(end, states.end());
  }

  void trace(int64_t at) {
    variants_.assign(steps_.size(), 0);
    for (size_t l = steps_.size(); l-- > 0;) {
      const Step& step = steps_[l][static_cast<size_t>(at)];
      variants_[l] = step.variant;
      at = step.parent;
    }
  }

  struct Step {
    int32_t parent, variant;
  };

  const Problem& problem_;
  const size_t limits_;
  std::vector<std::vector<double>> prices_;  // the best ones first
  std::vector<std::vector<double>> rest_;    // [L + 1, prices] priced scores of the layers from l on, minus the limits
  std::vector<std::array<double, kLimitsMax>> least_;  // [L + 1, limits] the least that these layers cost
  std::vector<int32_t> order_;                         // [V] the variants of each layer by their priced scores
  std::vector<double> priced_, base_;
  std::vector<std::vector<Step>> steps_;  // of the states kept after each layer
  double left_out_ = kInfinity;

  std::vector<int64_t> variants_;
  double best_ = kInfinity, bound_ = -kInfinity;
};

Choice choice_of(const Instance& instance, std::vector<int64_t> variants, double bound) {
  Choice choice{.variants = std::move(variants)};
  for (size_t l = 0; l < instance.layers.size(); ++l)
    choice.score += instance.layers[l][static_cast<size_t>(choice.variants[l])].score;
  choice.bound = std::min(bound, choice.score);
  return choice;
}

// Nothing: no choice was found, and if the bound is infinite there is none.
std::optional<Choice> search(const Instance& instance, const Effort& effort, double& bound) {
  const Problem problem(instance);
  Search search(problem);
  search.run(effort);
  bound = search.bound();
  std::vector<int64_t> variants = search.variants();
  if (variants.empty()) return std::nullopt;
  for (size_t l = 0; l < variants.size(); ++l) variants[l] -= problem.begin[l];
  Choice choice = choice_of(instance, variants, bound);
  if (bound >= choice.score - problem.tolerance) choice.bound = choice.score;
  return choice;
}

// The instance of the least cost of limit k within the limits before it.
Instance least_cost(const Instance& instance, size_t k) {
  Instance out{.layers = instance.layers,
               .limits = {instance.limits.begin(), instance.limits.begin() + static_cast<int64_t>(k)}};
  for (std::vector<Variant>& layer : out.layers) {
    for (Variant& variant : layer) {
      variant.score = variant.cost[k];
      variant.cost.resize(k);
    }
  }
  return out;
}

}  // namespace

std::vector<double> costs_of(const Instance& instance, const std::vector<int64_t>& variants) {
  std::vector<double> sums(instance.limits.size());
  for (size_t l = 0; l < variants.size(); ++l) {
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += instance.layers[l][static_cast<size_t>(variants[l])].cost[k];
  }
  return sums;
}

Choice choose(const Instance& instance, const std::string& where, const Effort& effort) {
  const auto refuse = [&](size_t k, const char* beside, double least) {
    fail(where, {.what = fmt::format("limits[{}] cannot be met{}", k, beside),
                 .got = fmt::to_string(instance.limits[k]),
                 .expected = fmt::format("at least {}", least)});
  };
  // A limit as Problem has it, in the units of the instance.
  const auto within = [&](size_t k, double cost, const Problem& costs) {
    return cost <= instance.limits[k] + costs.tolerance;
  };
  for (size_t k = 0; k < instance.limits.size(); ++k) {
    double least = 0;
    for (const std::vector<Variant>& layer : instance.layers)
      least += std::ranges::min(layer, {}, [k](const Variant& v) { return v.cost[k]; }).cost[k];
    if (!within(k, least, Problem(least_cost(instance, k)))) refuse(k, "", least);
  }
  double bound = 0;
  if (const std::optional<Choice> choice = search(instance, effort, bound)) return *choice;
  // Which limit is the first that those before it leave no room for? If none is, the last question has found a choice.
  for (size_t k = 1; k < instance.limits.size(); ++k) {
    const Instance costs = least_cost(instance, k);
    double least = 0;
    const std::optional<Choice> cheapest = search(costs, effort, least);
    if (!cheapest) break;
    const bool fits = within(k, cheapest->score, Problem(costs));
    if (!within(k, cheapest->bound, Problem(costs))) refuse(k, " beside the limits before it", cheapest->bound);
    if (!fits) break;
    if (k + 1 == instance.limits.size()) return choice_of(instance, cheapest->variants, bound);
  }
  throw Error(Fault::failed_run, format_message(where, {.what = "no choice that meets all limits was found",
                                                        .hint = "higher limits, or fewer variants"}));
}

}  // namespace braid::compress
