#include "graph/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/philox.h"
#include "graph/draws.h"

namespace braid::graph {
namespace {

// What the numbers of a generator are for.
enum Stream : uint32_t { kEdges, kPermutation, kClasses, kMeans, kNoise, kSplit };

uint64_t word(const std::array<uint32_t, 4>& r) { return static_cast<uint64_t>(r[0]) << 32 | r[1]; }

Csr both_ways(int64_t nodes, std::vector<Edge> edges) {
  const size_t n = edges.size();
  edges.reserve(2 * n);
  for (size_t i = 0; i < n; ++i) edges.push_back({edges[i].target, edges[i].source});
  return csr_of(nodes, std::move(edges));
}

// The nodes in the order of random keys.
std::vector<int32_t> permutation(int64_t n, uint64_t seed) {
  std::vector<std::pair<uint64_t, int32_t>> keyed;
  keyed.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    keyed.emplace_back(word(philox({seed, kPermutation}, static_cast<uint64_t>(i))), static_cast<int32_t>(i));
  std::sort(keyed.begin(), keyed.end());
  std::vector<int32_t> order;
  order.reserve(keyed.size());
  for (const auto& [key, i] : keyed) order.push_back(i);
  return order;
}

}  // namespace

Csr rmat_graph(int scale, int64_t factor, uint64_t seed) {
  const int64_t nodes = int64_t{1} << scale;
  const std::vector<int32_t> numbers = permutation(nodes, seed);
  std::vector<Edge> edges;
  edges.reserve(static_cast<size_t>(2 * nodes * factor));
  for (int64_t e = 0; e < nodes * factor; ++e) {
    size_t source = 0, target = 0;
    for (int bit = 0; bit < scale; ++bit) {
      const auto r = philox({seed, kEdges}, static_cast<uint64_t>(e), static_cast<uint32_t>(bit / 4));
      const float u = uniform(r[static_cast<size_t>(bit % 4)]);
      source = 2 * source + (u >= 0.76f ? 1 : 0);
      target = 2 * target + ((u >= 0.57f && u < 0.76f) || u >= 0.95f ? 1 : 0);
    }
    edges.push_back({numbers[source], numbers[target]});
  }
  return both_ways(nodes, std::move(edges));
}

Csr uniform_graph(int64_t nodes, int64_t edges, uint64_t seed) {
  std::vector<Edge> list;
  list.reserve(static_cast<size_t>(2 * edges));
  for (int64_t e = 0; e < edges; ++e) {
    const auto r = philox({seed, kEdges}, static_cast<uint64_t>(e));
    list.push_back({static_cast<int32_t>(below(r[0], nodes)), static_cast<int32_t>(below(r[1], nodes))});
  }
  return both_ways(nodes, std::move(list));
}

Csr grid_graph(int64_t width, int64_t height) {
  Csr csr{.rows = width * height, .cols = width * height};
  csr.rowptr.reserve(static_cast<size_t>(csr.rows) + 1);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const int64_t node = y * width + x;
      if (y > 0) csr.col.push_back(static_cast<int32_t>(node - width));
      if (x > 0) csr.col.push_back(static_cast<int32_t>(node - 1));
      if (x + 1 < width) csr.col.push_back(static_cast<int32_t>(node + 1));
      if (y + 1 < height) csr.col.push_back(static_cast<int32_t>(node + width));
      csr.rowptr.push_back(csr.edges());
    }
  }
  return csr;
}

GraphData block_model(const BlockModel& m) {
  GraphData data;
  data.features = m.features;
  data.classes = m.classes;
  std::vector<std::vector<int32_t>> members(static_cast<size_t>(m.classes));
  for (int64_t i = 0; i < m.nodes; ++i) {
    const int64_t y = below(philox({m.seed, kClasses}, static_cast<uint64_t>(i))[0], m.classes);
    data.y.push_back(static_cast<int32_t>(y));
    members[static_cast<size_t>(y)].push_back(static_cast<int32_t>(i));
  }
  choose_training(data, m.train, m.seed);
  std::vector<Edge> edges;
  for (int64_t e = 0; e < static_cast<int64_t>(static_cast<double>(m.nodes) * m.degree / 2); ++e) {
    const auto r = philox({m.seed, kEdges}, static_cast<uint64_t>(e));
    const int64_t i = below(r[0], m.nodes);
    const auto& own = members[static_cast<size_t>(data.y[static_cast<size_t>(i)])];
    const bool same = uniform(r[1]) < m.homophily;
    const int64_t j = same ? own[static_cast<size_t>(below(r[2], std::ssize(own)))] : below(r[2], m.nodes);
    edges.push_back({static_cast<int32_t>(i), static_cast<int32_t>(j)});
  }
  data.graph = make_graph(both_ways(m.nodes, std::move(edges)));
  const auto normal = [&](Stream stream, int64_t at) {
    return normal4({m.seed, stream}, static_cast<uint64_t>(at / 4))[static_cast<size_t>(at % 4)];
  };
  const double length = m.signal / std::sqrt(static_cast<double>(m.features));
  for (int64_t i = 0; i < m.nodes; ++i) {
    for (int64_t c = 0; c < m.features; ++c) {
      const double mean = static_cast<double>(normal(kMeans, data.y[static_cast<size_t>(i)] * m.features + c));
      data.x.push_back(normal(kNoise, i * m.features + c) + static_cast<float>(length * mean));
    }
  }
  return data;
}

void choose_training(GraphData& data, double share, uint64_t seed) {
  data.train.clear();
  for (size_t i = 0; i < data.y.size(); ++i) {
    const bool chosen = static_cast<double>(uniform(philox({seed, kSplit}, i)[0])) < share;
    data.train.push_back(chosen && data.y[i] >= 0 ? 1 : 0);
  }
}

}  // namespace braid::graph
