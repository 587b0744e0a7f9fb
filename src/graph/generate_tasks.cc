#include "graph/generate_tasks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "core/philox.h"
#include "graph/draws.h"

namespace braid::graph {
namespace {

// What the numbers of these generators are for; none is one of generate.cc.
enum TaskStream : uint32_t { kSizes = 64, kTree, kChords, kClique, kSides, kLinks, kMeansOf, kNoiseOf, kWords, kEnds };

using Pairs = std::set<std::pair<int32_t, int32_t>>;
void add_pair(Pairs& pairs, int64_t a, int64_t b) {
  if (a != b) pairs.emplace(static_cast<int32_t>(std::min(a, b)), static_cast<int32_t>(std::max(a, b)));
}

// The edges of graph g of n nodes, numbered from 0.
Pairs motif_pairs(const MotifGraphs& m, uint64_t g, int64_t n, bool clique) {
  constexpr int64_t kMotif = 5;
  Pairs pairs;
  for (int64_t i = 1; i < n; ++i) add_pair(pairs, i, below(philox({m.seed, kTree}, g, static_cast<uint32_t>(i))[0], i));
  if (clique) {
    std::vector<std::pair<uint32_t, int64_t>> keyed;
    for (int64_t i = 0; i < n; ++i) keyed.emplace_back(philox({m.seed, kClique}, g, static_cast<uint32_t>(i))[0], i);
    std::sort(keyed.begin(), keyed.end());
    for (size_t a = 0; a < kMotif; ++a) {
      for (size_t b = 0; b < a; ++b) add_pair(pairs, keyed[a].second, keyed[b].second);
    }
  }
  for (uint32_t i = 0; std::ssize(pairs) < n + 9; ++i) {
    const auto r = philox({m.seed, kChords}, g, i);
    add_pair(pairs, below(r[0], n), below(r[1], n));
  }
  return pairs;
}

}  // namespace

GraphData motif_graphs(const MotifGraphs& m) {
  GraphData data;
  data.features = 1;
  data.classes = 2;
  data.begin = {0};
  std::vector<Edge> edges;
  for (int64_t g = 0; g < m.graphs; ++g) {
    const auto r = philox({m.seed, kSizes}, static_cast<uint64_t>(g));
    const int64_t least = m.nodes * 3 / 5, n = least + below(r[0], 2 * (m.nodes - least) + 1);
    const bool clique = (r[1] & 1) != 0;
    const auto first = static_cast<int32_t>(data.begin.back());
    for (const auto& [a, b] : motif_pairs(m, static_cast<uint64_t>(g), n, clique)) {
      edges.push_back({first + a, first + b});
      edges.push_back({first + b, first + a});
    }
    data.y.push_back(clique ? 1 : 0);
    data.begin.push_back(first + n);
  }
  data.graph = make_graph(csr_of(data.begin.back(), std::move(edges)));
  data.x.assign(static_cast<size_t>(data.begin.back()), 1);
  choose_training(data, m.train, m.seed);
  return data;
}

GraphData bipartite_blocks(const BlockModel& m, int64_t targets) {
  GraphData data;
  data.features = data.features_dst = m.features;
  const int64_t counts[2] = {m.nodes, targets};
  std::vector<int64_t> classes[2];
  std::vector<std::vector<int32_t>> members(static_cast<size_t>(m.classes));  // that receive
  for (const int side : {0, 1}) {
    for (int64_t i = 0; i < counts[side]; ++i) {
      const auto r = philox({m.seed, kSides}, static_cast<uint64_t>(i), static_cast<uint32_t>(side));
      classes[side].push_back(below(r[0], m.classes));
      if (side == 1) members[static_cast<size_t>(classes[1].back())].push_back(static_cast<int32_t>(i));
    }
  }
  std::vector<Edge> edges;
  for (int64_t e = 0; e < static_cast<int64_t>(static_cast<double>(m.nodes) * m.degree); ++e) {
    const auto r = philox({m.seed, kLinks}, static_cast<uint64_t>(e));
    const int64_t from = below(r[0], m.nodes);
    const auto& own = members[static_cast<size_t>(classes[0][static_cast<size_t>(from)])];
    const bool same = static_cast<double>(uniform(r[1])) < m.homophily && !own.empty();
    const int64_t to = same ? own[static_cast<size_t>(below(r[2], std::ssize(own)))] : below(r[2], targets);
    edges.push_back({static_cast<int32_t>(from), static_cast<int32_t>(to)});
  }
  data.graph = make_graph(bipartite_csr_of(targets, m.nodes, std::move(edges)));
  const double length = m.signal / std::sqrt(static_cast<double>(m.features));
  for (const int side : {0, 1}) {
    const auto normal = [&](TaskStream stream, int64_t at) {
      const uint64_t index = static_cast<uint64_t>(at / 4) + (static_cast<uint64_t>(side) << 48);
      return normal4({m.seed, stream}, index)[static_cast<size_t>(at % 4)];
    };
    std::vector<float>& x = side == 0 ? data.x : data.x_dst;
    for (int64_t i = 0; i < counts[side]; ++i) {
      const int64_t y = classes[side][static_cast<size_t>(i)];
      for (int64_t c = 0; c < m.features; ++c)
        x.push_back(normal(kNoiseOf, i * m.features + c) +
                    static_cast<float>(length * static_cast<double>(normal(kMeansOf, y * m.features + c))));
    }
  }
  return data;
}

namespace {

constexpr std::array<int64_t, 7> kTwinClasses = {351, 217, 418, 818, 426, 298, 180};
constexpr int64_t kTwinEdges = 5278, kTwinWords = 1433, kTwinTrained = 20;

// The sums of weights up to each node of a class; heavier ones have more edges.
std::vector<std::vector<double>> twin_weights(uint64_t seed) {
  std::vector<std::vector<double>> sums;
  uint64_t node = 0;
  for (const int64_t size : kTwinClasses) {
    double sum = 0;
    auto& own = sums.emplace_back();
    for (int64_t i = 0; i < size; ++i, ++node) {
      const auto u = static_cast<double>(uniform(philox({seed, kSizes}, node)[0]));
      own.push_back(sum += std::pow(std::max(u, 1e-3), -0.5));
    }
  }
  return sums;
}

int64_t drawn(const std::vector<double>& sums, uint32_t bits) {
  const double u = static_cast<double>(uniform(bits)) * sums.back();
  return std::min<int64_t>(std::upper_bound(sums.begin(), sums.end(), u) - sums.begin(), std::ssize(sums) - 1);
}

Csr twin_edges(uint64_t seed) {
  const auto weights = twin_weights(seed);
  std::vector<int64_t> first = {0};
  for (const int64_t size : kTwinClasses) first.push_back(first.back() + size);
  std::vector<double> classes;
  classes.reserve(weights.size());
  for (const auto& own : weights) classes.push_back(own.back() + (classes.empty() ? 0 : classes.back()));
  Pairs pairs;
  for (uint64_t e = 0; std::ssize(pairs) < kTwinEdges; ++e) {
    const auto r = philox({seed, kEnds}, e), s = philox({seed, kEnds}, e, 1);
    const auto a = static_cast<size_t>(drawn(classes, r[0]));
    // Of the edges that draw both classes, some stay in one by chance.
    const auto b = static_cast<double>(uniform(r[1])) < 0.775 ? a : static_cast<size_t>(drawn(classes, r[2]));
    add_pair(pairs, first[a] + drawn(weights[a], s[0]), first[b] + drawn(weights[b], s[1]));
  }
  std::vector<Edge> edges;
  for (const auto& [a, b] : pairs) {
    edges.push_back({a, b});
    edges.push_back({b, a});
  }
  return csr_of(first.back(), std::move(edges));
}

}  // namespace

GraphData citation_twin(uint64_t seed) {
  constexpr int64_t kDrawn = 18, kClasses = std::ssize(kTwinClasses), kTopic = kTwinWords / kClasses;
  GraphData data;
  data.features = kTwinWords;
  data.classes = kClasses;
  data.graph = make_graph(twin_edges(seed));
  for (int64_t y = 0, node = 0; y < kClasses; ++y) {
    for (int64_t i = 0; i < kTwinClasses[static_cast<size_t>(y)]; ++i, ++node) {
      data.y.push_back(static_cast<int32_t>(y));
      data.train.push_back(i < kTwinTrained ? 1 : 0);
      data.x.resize(data.x.size() + kTwinWords);
      for (int64_t word = 0; word < kDrawn; ++word) {
        const auto r = philox({seed, kWords}, static_cast<uint64_t>(node), static_cast<uint32_t>(word));
        const bool topic = uniform(r[0]) < 0.25f;
        const int64_t at = topic ? y * kTopic + below(r[1], kTopic) : below(r[1], kTwinWords);
        data.x[static_cast<size_t>(node * kTwinWords + at)] = 1;
      }
    }
  }
  return data;
}

}  // namespace braid::graph
