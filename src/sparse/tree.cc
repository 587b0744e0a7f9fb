#include "sparse/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace braid::sparse {
namespace {

constexpr int kDepth = 8;
constexpr int64_t kLeast = 6;       // samples of a leaf
constexpr double kImpossible = 10;  // the cost of a way that cannot run: a factor of e^10
constexpr double kTie = 0.1;        // a way that much slower than the best shares nothing of a sample's vote
constexpr double kGain = 0.003;     // a split must gain more than this a sample

// Of a set of samples.
struct Tally {
  std::array<double, kWays> costs{};  // logarithms of how much slower than the best each way is, summed
  std::array<double, kWays> votes{};  // one a sample, shared among the best way and those close to it
  double samples = 0;

  void add(const Sample& s, double sign) {
    std::array<double, kWays> shares{};
    double all = 0;
    for (size_t way = 0; way < kWays; ++way) {
      const double cost = std::log1p(s.regret(static_cast<int>(way)));
      costs[way] += sign * (std::isfinite(cost) ? cost : kImpossible);
      all += shares[way] = std::max(0.0, 1 - cost / kTie);
    }
    for (size_t way = 0; way < kWays; ++way) votes[way] += sign * shares[way] / all;
    samples += sign;
  }
  int cheapest() const { return static_cast<int>(std::min_element(costs.begin(), costs.end()) - costs.begin()); }
  // What a split lowers: the least cost, or Gini's impurity times samples.
  double loss(Splits by) const {
    if (by == Splits::costs) return *std::min_element(costs.begin(), costs.end());
    double squares = 0;
    for (const double v : votes) squares += v * v;
    return samples - squares / samples;
  }
};

struct Split {
  int feature = -1;
  double limit = 0, loss = std::numeric_limits<double>::infinity();
};

Split best_split(std::vector<const Sample*>& list, const Tally& all, Splits by) {
  Split best;
  for (int f = 0; f < static_cast<int>(std::size(kFeatures)); ++f) {
    const auto value = [f](const Sample* s) { return s->features.*kFeatures[f].value; };
    std::stable_sort(list.begin(), list.end(), [&](const Sample* a, const Sample* b) { return value(a) < value(b); });
    Tally below, above = all;
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      below.add(*list[i], 1);
      above.add(*list[i], -1);
      const auto left = static_cast<int64_t>(i) + 1, right = std::ssize(list) - left;
      const double here = value(list[i]), next = value(list[i + 1]);
      if (here == next || left < kLeast || right < kLeast) continue;
      const double loss = below.loss(by) + above.loss(by);
      if (loss < best.loss) best = {f, std::sqrt(std::max(here, 1e-6) * next), loss};
    }
  }
  return best;
}

int grow_node(std::vector<Node>& tree, std::vector<const Sample*> list, int depth, Splits by) {
  Tally all;
  for (const Sample* s : list) all.add(*s, 1);
  const int at = static_cast<int>(tree.size());
  tree.push_back({.way = all.cheapest()});
  if (depth == 0 || std::ssize(list) < 2 * kLeast) return at;
  const Split split = best_split(list, all, by);
  if (split.feature < 0 || all.loss(by) - split.loss < kGain * all.samples) return at;
  std::vector<const Sample*> sides[2];
  for (const Sample* s : list) sides[s->features.*kFeatures[split.feature].value <= split.limit ? 0 : 1].push_back(s);
  const int below = grow_node(tree, std::move(sides[0]), depth - 1, by),
            above = grow_node(tree, std::move(sides[1]), depth - 1, by);
  const Node &first = tree[static_cast<size_t>(below)], &second = tree[static_cast<size_t>(above)];
  if (first.feature < 0 && second.feature < 0 && first.way == second.way) {  // which side changes nothing
    const int way = first.way;
    tree.resize(static_cast<size_t>(at));
    tree.push_back({.way = way});
    return at;
  }
  tree[static_cast<size_t>(at)] = {.feature = split.feature, .limit = split.limit, .below = below, .above = above};
  return at;
}

}  // namespace

int Sample::best() const {
  return static_cast<int>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
}

std::vector<Node> grow(std::span<const Sample> samples, Splits by) {
  std::vector<const Sample*> list;
  for (const Sample& s : samples) list.push_back(&s);
  std::vector<Node> tree;
  grow_node(tree, std::move(list), kDepth, by);
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
