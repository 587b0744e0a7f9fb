#include "graph/reorder.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "sys/check.h"

namespace braid::graph {
namespace {

std::span<const int32_t> row(const Csr& csr, int32_t node) {
  const auto i = static_cast<size_t>(node);
  return std::span(csr.col).subspan(static_cast<size_t>(csr.rowptr[i]), static_cast<size_t>(csr.degree(node)));
}

template <class Visit>
void each_neighbour(const Graph& graph, int32_t node, const Visit& visit) {
  for (const int32_t other : row(graph.in, node)) visit(other);
  for (const int32_t other : row(graph.out, node)) visit(other);
}

std::vector<int64_t> degrees_of(const Graph& graph) {
  std::vector<int64_t> degrees;
  for (int64_t i = 0; i < graph.rows(); ++i) degrees.push_back(graph.in.degree(i) + graph.out.degree(i));
  return degrees;
}

// Appends the component of `start` breadth first, neighbours by degree; nodes of `seen` that equal `mark` are known.
void walk(const Graph& graph, int32_t start, std::span<const int64_t> degrees, std::vector<int32_t>& seen, int32_t mark,
          std::vector<int32_t>& out) {
  size_t next = out.size();
  out.push_back(start);
  seen[static_cast<size_t>(start)] = mark;
  for (; next < out.size(); ++next) {
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    each_neighbour(graph, out[next], [&](int32_t other) {
      if (std::exchange(seen[static_cast<size_t>(other)], mark) != mark) out.push_back(other);
    });
    std::stable_sort(out.begin() + first, out.end(), [&](int32_t a, int32_t b) {
      return degrees[static_cast<size_t>(a)] < degrees[static_cast<size_t>(b)];
    });
  }
}

// From each component's node of the lowest degree to the one that a walk reaches last, which lies at its edge, and from
// there again.
std::vector<int32_t> cuthill_mckee(const Graph& graph, std::span<const int32_t> by_degree,
                                   std::span<const int64_t> degrees) {
  std::vector<int32_t> seen(by_degree.size(), 0), order, probe;
  for (const int32_t start : by_degree) {
    if (seen[static_cast<size_t>(start)] == 2) continue;
    probe.clear();
    walk(graph, start, degrees, seen, 1, probe);
    walk(graph, probe.back(), degrees, seen, 2, order);
  }
  std::ranges::reverse(order);
  return order;
}

// A node takes the label that most of its neighbours have, in turn; its own where that is among them.
std::vector<int32_t> labels_of(const Graph& graph) {
  constexpr int kRounds = 20;
  const auto n = static_cast<size_t>(graph.rows());
  std::vector<int32_t> labels(n), near;
  std::iota(labels.begin(), labels.end(), 0);
  std::vector<int64_t> counts(n, 0);
  for (int round = 0; round < kRounds; ++round) {
    size_t changed = 0;
    for (size_t i = 0; i < n; ++i) {
      near.clear();
      each_neighbour(graph, static_cast<int32_t>(i), [&](int32_t other) {
        const int32_t label = labels[static_cast<size_t>(other)];
        if (counts[static_cast<size_t>(label)]++ == 0) near.push_back(label);
      });
      int32_t best = labels[i];
      for (const int32_t label : near) {
        if (counts[static_cast<size_t>(label)] > counts[static_cast<size_t>(best)]) best = label;
      }
      changed += best != labels[i];
      labels[i] = best;
      for (const int32_t label : near) counts[static_cast<size_t>(label)] = 0;
    }
    if (changed * 1000 <= n) break;
  }
  return labels;
}

}  // namespace

std::optional<NodeOrder> node_order_of(std::string_view name) {
  const auto* const at = std::ranges::find(kNodeOrders, name);
  if (at == std::end(kNodeOrders)) return std::nullopt;
  return static_cast<NodeOrder>(at - std::begin(kNodeOrders));
}

std::vector<int32_t> reordered(const Graph& graph, NodeOrder order) {
  CHECK(graph.rows() == graph.cols(), "a graph of {} rows and {} columns", graph.rows(), graph.cols());
  std::vector<int32_t> nodes(static_cast<size_t>(graph.rows()));
  std::iota(nodes.begin(), nodes.end(), 0);
  if (order == NodeOrder::labels) {
    const std::vector<int32_t> labels = labels_of(graph);
    std::ranges::stable_sort(nodes, {}, [&](int32_t node) { return labels[static_cast<size_t>(node)]; });
    return nodes;
  }
  const std::vector<int64_t> degrees = degrees_of(graph);
  const int64_t sign = order == NodeOrder::degree ? -1 : 1;
  std::ranges::stable_sort(nodes, {}, [&](int32_t node) { return sign * degrees[static_cast<size_t>(node)]; });
  return order == NodeOrder::degree ? nodes : cuthill_mckee(graph, nodes, degrees);
}

void permute(GraphData& data, std::span<const int32_t> nodes) {
  const Csr& from = data.graph.in;
  CHECK(std::ssize(nodes) == from.rows && data.begin.empty() && !data.bipartite(), "{} nodes of {}", nodes.size(),
        from.rows);
  std::vector<int32_t> position(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) position[static_cast<size_t>(nodes[i])] = static_cast<int32_t>(i);
  Csr to{.rows = from.rows, .cols = from.cols};
  to.col.reserve(from.col.size());
  for (const int32_t node : nodes) {
    for (const int32_t other : row(from, node)) to.col.push_back(position[static_cast<size_t>(other)]);
    if (!from.weight.empty())
      to.weight.insert(to.weight.end(), from.weight.begin() + from.rowptr[static_cast<size_t>(node)],
                       from.weight.begin() + from.rowptr[static_cast<size_t>(node) + 1]);
    if (!from.loop.empty()) to.loop.push_back(from.loop_of(node));
    sort_last_row(to, to.rowptr.back());
    to.rowptr.push_back(to.edges());
  }
  data.graph = make_graph(std::move(to));
  const auto gathered = [&](auto& values, int64_t width) {
    if (values.empty()) return;
    const auto old = std::exchange(values, {});
    for (const int32_t node : nodes)
      values.insert(values.end(), old.begin() + node * width, old.begin() + (node + 1) * width);
  };
  gathered(data.x, data.features);
  gathered(data.y, 1);
  gathered(data.train, 1);
}

double mean_span(const Csr& csr) {
  double sum = 0;
  for (int32_t i = 0; i < csr.rows; ++i)
    for (const int32_t other : row(csr, i)) sum += std::abs(static_cast<double>(other) - i);
  return csr.edges() > 0 ? sum / static_cast<double>(csr.edges()) : 0;
}

}  // namespace braid::graph
