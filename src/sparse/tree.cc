#include "sparse/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace braid::sparse {
namespace {

constexpr int kDepth = 6;
constexpr int64_t kLeast = 6;       // samples of a leaf
constexpr double kImpossible = 10;  // the cost of a way that cannot run: a factor of e^10
constexpr double kGain = 0.003;     // a split must save more than this a sample

// Logarithms of how much slower than the best each way is, summed over samples.
using Costs = std::array<double, kWays>;

void add_costs(Costs& sum, const Sample& s, double sign) {
  for (int way = 0; way < kWays; ++way) {
    const double cost = std::log1p(s.regret(way));
    sum[static_cast<size_t>(way)] += sign * (std::isfinite(cost) ? cost : kImpossible);
  }
}

int cheapest(const Costs& costs) {
  return static_cast<int>(std::min_element(costs.begin(), costs.end()) - costs.begin());
}
double least(const Costs& costs) { return *std::min_element(costs.begin(), costs.end()); }

struct Split {
  int feature = -1;
  double limit = 0, cost = std::numeric_limits<double>::infinity();
};

Split best_split(std::vector<const Sample*>& list, const Costs& all) {
  Split best;
  for (int f = 0; f < static_cast<int>(std::size(kFeatures)); ++f) {
    const auto value = [f](const Sample* s) { return s->features.*kFeatures[f].value; };
    std::stable_sort(list.begin(), list.end(), [&](const Sample* a, const Sample* b) { return value(a) < value(b); });
    Costs below{}, above = all;
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      add_costs(below, *list[i], 1);
      add_costs(above, *list[i], -1);
      const auto left = static_cast<int64_t>(i) + 1, right = std::ssize(list) - left;
      const double here = value(list[i]), next = value(list[i + 1]);
      if (here == next || left < kLeast || right < kLeast) continue;
      const double cost = least(below) + least(above);
      if (cost < best.cost) best = {f, std::sqrt(std::max(here, 1e-6) * next), cost};
    }
  }
  return best;
}

int grow_node(std::vector<Node>& tree, std::vector<const Sample*> list, int depth) {
  Costs all{};
  for (const Sample* s : list) add_costs(all, *s, 1);
  const int at = static_cast<int>(tree.size());
  tree.push_back({.way = cheapest(all)});
  if (depth == 0 || std::ssize(list) < 2 * kLeast) return at;
  const Split split = best_split(list, all);
  if (split.feature < 0 || least(all) - split.cost < kGain * static_cast<double>(list.size())) return at;
  std::vector<const Sample*> sides[2];
  for (const Sample* s : list) sides[s->features.*kFeatures[split.feature].value <= split.limit ? 0 : 1].push_back(s);
  const int below = grow_node(tree, std::move(sides[0]), depth - 1),
            above = grow_node(tree, std::move(sides[1]), depth - 1);
  tree[static_cast<size_t>(at)] = {.feature = split.feature, .limit = split.limit, .below = below, .above = above};
  return at;
}

}  // namespace

int Sample::best() const {
  return static_cast<int>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
}

std::vector<Node> grow(std::span<const Sample> samples) {
  std::vector<const Sample*> list;
  for (const Sample& s : samples) list.push_back(&s);
  std::vector<Node> tree;
  grow_node(tree, std::move(list), kDepth);
  return tree;
}

int decide(std::span<const Node> tree, const Features& features) {
  size_t at = 0;
  while (tree[at].feature >= 0) {
    const Node& n = tree[at];
    at = static_cast<size_t>(features.*kFeatures[n.feature].value <= n.limit ? n.below : n.above);
  }
  const int way = tree[at].way;
  return possible(ways()[static_cast<size_t>(way)], static_cast<int64_t>(features.width)) ? way : 0;
}

std::string text_of(std::span<const Node> tree) {
  std::string text;
  for (const Node& n : tree) {
    if (n.feature < 0) {
      text += fmt::format("    {{.way = {}}},  // {}\n", n.way, ways()[static_cast<size_t>(n.way)].name);
    } else {
      text += fmt::format("    {{.feature = {}, .limit = {:.4g}, .below = {}, .above = {}}},  // {}\n", n.feature,
                          n.limit, n.below, n.above, kFeatures[n.feature].name);
    }
  }
  return text;
}

Regret regret_of(std::span<const Sample> samples, const std::vector<int>& choices) {
  Regret r;
  double logs = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double regret = samples[i].regret(choices[i]);
    r.mean += regret / static_cast<double>(samples.size());
    r.worst = std::max(r.worst, regret);
    logs += std::log1p(regret) / static_cast<double>(samples.size());
  }
  r.of_best = std::exp(-logs);
  return r;
}

std::vector<int> leave_one_graph_out(std::span<const Sample> samples) {
  std::set<std::string> graphs;
  for (const Sample& s : samples) graphs.insert(s.graph);
  std::vector<int> choices(samples.size(), 0);
  for (const std::string& graph : graphs) {
    std::vector<Sample> others;
    for (const Sample& s : samples) {
      if (s.graph != graph) others.push_back(s);
    }
    const std::vector<Node> tree = grow(others);
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples[i].graph == graph) choices[i] = tree.empty() ? 0 : decide(tree, samples[i].features);
    }
  }
  return choices;
}

}  // namespace braid::sparse
