#include "graph/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/philox.h"
#include "graph/draws.h"
#include "sys/parallel.h"

namespace braid::graph {
namespace {

// What the numbers of a generator are for.
enum Stream : uint32_t { kEdges, kPermutation, kClasses, kMeans, kNoise, kSplit, kStubs };

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

int team_of(int threads) { return threads > 0 ? threads : sys::default_threads(); }

// `count` edges, of which draw(e) is edge e.
template <class Draw>
std::vector<Edge> drawn_edges(int64_t count, int threads, Draw&& draw) {
  std::vector<Edge> edges;
  edges.reserve(static_cast<size_t>(2 * count));  // both ways, in the end
  edges.resize(static_cast<size_t>(count));
  sys::parallel_for(team_of(threads), count, 1 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) edges[static_cast<size_t>(e)] = draw(e);
  });
  return edges;
}

Edge edge_of(int64_t a, int64_t b) { return {static_cast<int32_t>(a), static_cast<int32_t>(b)}; }

// Deviation over mean of the weights ((k + 1/2) / n)^-a, k < n. Beyond the first they are summed in steps that grow.
double spread_of(double n, double a) {
  double sum = 0, squares = 0;
  for (double k = 0, step = 1; k < n; k += step) {
    step = std::min(std::max(1.0, std::floor(k / 256)), n - k);
    const double w = std::pow((k + step / 2) / n, -a);
    sum += step * w;
    squares += step * w * w;
  }
  return std::sqrt(std::max(0.0, n * squares / (sum * sum) - 1));
}

// What weights of n nodes have the spread: the root of the one above.
double exponent_of(int64_t n, double spread) {
  double low = 0, high = 8;
  for (int i = 0; i < 50 && spread > 0; ++i) {
    const double mid = (low + high) / 2;
    (spread_of(static_cast<double>(n), mid) < spread ? low : high) = mid;
  }
  return spread > 0 ? low : 0;
}

// The sums of the weights of nodes 0 to i in [i]; which node has which is drawn.
std::vector<double> weight_sums(int64_t nodes, double spread, uint64_t seed) {
  const double a = exponent_of(nodes, spread), n = static_cast<double>(nodes);
  std::vector<double> sums(static_cast<size_t>(nodes));
  const std::vector<int32_t> order = permutation(nodes, seed);
  for (size_t k = 0; k < order.size(); ++k)
    sums[static_cast<size_t>(order[k])] = std::pow((static_cast<double>(k) + 0.5) / n, -a);
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  return sums;
}

}  // namespace

Csr rmat_graph(int scale, int64_t factor, uint64_t seed, int threads) {
  const int64_t nodes = int64_t{1} << scale;
  const std::vector<int32_t> numbers = permutation(nodes, seed);
  return both_ways(nodes, drawn_edges(nodes * factor, threads, [&](int64_t e) {
                     size_t source = 0, target = 0;
                     for (int bit = 0; bit < scale; ++bit) {
                       const auto r = philox({seed, kEdges}, static_cast<uint64_t>(e), static_cast<uint32_t>(bit / 4));
                       const float u = uniform(r[static_cast<size_t>(bit % 4)]);
                       source = 2 * source + (u >= 0.76f ? 1 : 0);
                       target = 2 * target + ((u >= 0.57f && u < 0.76f) || u >= 0.95f ? 1 : 0);
                     }
                     return Edge{numbers[source], numbers[target]};
                   }));
}

Csr uniform_graph(int64_t nodes, int64_t edges, uint64_t seed, int threads) {
  return both_ways(nodes, drawn_edges(edges, threads, [&](int64_t e) {
                     const auto r = philox({seed, kEdges}, static_cast<uint64_t>(e));
                     return edge_of(below(r[0], nodes), below(r[1], nodes));
                   }));
}

Csr power_law_graph(const PowerLaw& m, int threads) {
  const std::vector<double> sums = weight_sums(m.nodes, m.spread, m.seed);
  const auto count = static_cast<int64_t>(static_cast<double>(m.nodes) * m.degree);
  // Each end of an edge has a random key, by which they are put in order: neighbours there are joined.
  std::vector<std::pair<uint64_t, int32_t>> ends(static_cast<size_t>(count));
  for (int64_t i = 0, begin = 0; i < m.nodes; ++i) {
    const double share = sums[static_cast<size_t>(i)] / sums.back();
    const int64_t end = i + 1 == m.nodes ? count : std::llround(share * static_cast<double>(count));
    for (; begin < end; ++begin) ends[static_cast<size_t>(begin)].second = static_cast<int32_t>(i);
  }
  sys::parallel_for(team_of(threads), count, 1 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      ends[static_cast<size_t>(k)].first = word(philox({m.seed, kStubs}, static_cast<uint64_t>(k)));
  });
  std::sort(ends.begin(), ends.end());
  return both_ways(m.nodes, drawn_edges(count / 2, threads, [&](int64_t e) {
                     return Edge{ends[static_cast<size_t>(2 * e)].second, ends[static_cast<size_t>(2 * e) + 1].second};
                   }));
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

Csr stencil_graph(int64_t side) {
  Csr csr{.rows = side * side * side, .cols = side * side * side};
  csr.rowptr.reserve(static_cast<size_t>(csr.rows) + 1);
  for (int64_t i = 0; i < csr.rows; ++i) {
    const int64_t at[3] = {i / (side * side), i / side % side, i % side};
    for (int64_t k = 0; k < 27; ++k) {
      const int64_t z = at[0] + k / 9 - 1, y = at[1] + k / 3 % 3 - 1, x = at[2] + k % 3 - 1;
      if (k == 13 || std::min({x, y, z}) < 0 || std::max({x, y, z}) >= side) continue;
      csr.col.push_back(static_cast<int32_t>((z * side + y) * side + x));
    }
    csr.rowptr.push_back(csr.edges());
  }
  return csr;
}

Csr band_graph(int64_t nodes, int64_t reach) {
  Csr csr{.rows = nodes, .cols = nodes};
  for (int64_t i = 0; i < nodes; ++i) {
    for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(nodes - 1, i + reach); ++j)
      if (j != i) csr.col.push_back(static_cast<int32_t>(j));
    csr.rowptr.push_back(csr.edges());
  }
  return csr;
}

Csr road_graph(int64_t nodes, uint64_t seed, int threads) {
  constexpr int64_t kPerShortcut = 20, kLongest = 64;
  return both_ways(nodes, drawn_edges(nodes - 1 + nodes / kPerShortcut, threads, [&](int64_t e) {
                     if (e + 1 < nodes) return edge_of(e, e + 1);
                     const auto r = philox({seed, kEdges}, static_cast<uint64_t>(e));
                     const int64_t from = below(r[0], nodes), to = from + 2 + below(r[1], kLongest - 1);
                     return edge_of(from, to % nodes);
                   }));
}

Csr star_graph(int64_t nodes) {
  std::vector<Edge> edges;
  for (int64_t i = 1; i <= nodes / 2 && i < nodes; ++i) edges.push_back(edge_of(0, i));
  return both_ways(nodes, std::move(edges));
}

namespace {

// Which nodes the ends of edges may be, drawn alike or in proportion to weights.
class Ends {
 public:
  Ends(const BlockModel& m, const std::vector<std::vector<int32_t>>& members) : nodes_(m.nodes), members_(members) {
    if (m.spread <= 0) return;
    sums_ = weight_sums(m.nodes, m.spread, m.seed);
    for (const auto& own : members) {
      std::vector<double>& list = own_sums_.emplace_back();
      for (const int32_t i : own)
        list.push_back((list.empty() ? 0 : list.back()) + sums_[static_cast<size_t>(i)] -
                       (i > 0 ? sums_[static_cast<size_t>(i) - 1] : 0));
    }
  }
  int64_t any(uint32_t bits) const { return sums_.empty() ? below(bits, nodes_) : drawn(sums_, bits); }
  int64_t of_class(int32_t y, uint32_t bits) const {
    const auto& own = members_[static_cast<size_t>(y)];
    const int64_t at = sums_.empty() ? below(bits, std::ssize(own)) : drawn(own_sums_[static_cast<size_t>(y)], bits);
    return own[static_cast<size_t>(at)];
  }

 private:
  static int64_t drawn(const std::vector<double>& sums, uint32_t bits) {
    const double u = std::ldexp(static_cast<double>(bits), -32) * sums.back();
    return std::min<int64_t>(std::upper_bound(sums.begin(), sums.end(), u) - sums.begin(), std::ssize(sums) - 1);
  }
  int64_t nodes_;
  const std::vector<std::vector<int32_t>>& members_;
  std::vector<double> sums_{};
  std::vector<std::vector<double>> own_sums_{};
};

}  // namespace

GraphData block_model(const BlockModel& m, int threads) {
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
  const Ends ends(m, members);
  const auto edges = static_cast<int64_t>(static_cast<double>(m.nodes) * m.degree / 2);
  data.graph = make_graph(both_ways(m.nodes, drawn_edges(edges, threads, [&](int64_t e) {
                                      const auto r = philox({m.seed, kEdges}, static_cast<uint64_t>(e));
                                      const int64_t i = ends.any(r[0]);
                                      const bool same = uniform(r[1]) < m.homophily;
                                      return edge_of(i, same ? ends.of_class(data.y[static_cast<size_t>(i)], r[2])
                                                             : ends.any(r[2]));
                                    })));
  const auto normal = [&](Stream stream, int64_t at) {
    return normal4({m.seed, stream}, static_cast<uint64_t>(at / 4))[static_cast<size_t>(at % 4)];
  };
  const double length = m.signal / std::sqrt(static_cast<double>(m.features));
  data.x.resize(static_cast<size_t>(m.nodes * m.features));
  sys::parallel_for(team_of(threads), m.nodes, 64, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * m.features; at < end * m.features; ++at) {
      const int64_t i = at / m.features, c = at % m.features;
      const double mean = static_cast<double>(normal(kMeans, data.y[static_cast<size_t>(i)] * m.features + c));
      data.x[static_cast<size_t>(at)] = normal(kNoise, at) + static_cast<float>(length * mean);
    }
  });
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
