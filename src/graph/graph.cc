#include "graph/graph.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sys/error.h"

namespace braid::graph {

Graph make_graph(Csr csr) {
  Graph g{.in = std::move(csr), .out = {}};
  const Csr& in = g.in;
  Csr& out = g.out;
  out.rows = in.cols;
  out.cols = in.rows;
  out.rowptr.assign(static_cast<size_t>(out.rows) + 1, 0);
  out.col.resize(in.col.size());
  g.order.resize(in.col.size());
  for (const int32_t source : in.col) ++out.rowptr[static_cast<size_t>(source) + 1];
  for (size_t i = 1; i < out.rowptr.size(); ++i) out.rowptr[i] += out.rowptr[i - 1];
  std::vector<int64_t> next(out.rowptr.begin(), out.rowptr.end() - 1);
  g.inverse_degree.reserve(static_cast<size_t>(std::max<int64_t>(in.rows, 1)));
  for (int64_t i = 0; i < in.rows; ++i) {
    const int64_t begin = in.rowptr[static_cast<size_t>(i)], end = in.rowptr[static_cast<size_t>(i) + 1];
    g.inverse_degree.push_back(end > begin ? 1 / static_cast<float>(end - begin) : 0);
    for (int64_t e = begin; e < end; ++e) {
      const auto at = static_cast<size_t>(next[static_cast<size_t>(in.col[static_cast<size_t>(e)])]++);
      out.col[at] = static_cast<int32_t>(i);
      g.order[at] = static_cast<int32_t>(e);
    }
  }
  return g;
}

namespace {

template <class E>
bool same(const E& a, const E& b) {
  return a.target == b.target && a.source == b.source;
}

// By target, then source.
template <class E>
void sort_edges(std::vector<E>& edges) {
  std::sort(edges.begin(), edges.end(),
            [](const E& a, const E& b) { return std::tie(a.target, a.source) < std::tie(b.target, b.source); });
}

// `edges` are sorted.
template <class E>
Csr rows_of(int64_t rows, int64_t cols, std::vector<E> edges) {
  edges.erase(std::unique(edges.begin(), edges.end(), &same<E>), edges.end());
  Csr csr{.rows = rows, .cols = cols};
  csr.rowptr.assign(static_cast<size_t>(rows) + 1, 0);
  csr.col.reserve(edges.size());
  for (const E& e : edges) {
    ++csr.rowptr[static_cast<size_t>(e.target) + 1];
    csr.col.push_back(e.source);
    if constexpr (std::is_same_v<E, WeightedEdge>) csr.weight.push_back(e.weight);
  }
  for (size_t i = 1; i < csr.rowptr.size(); ++i) csr.rowptr[i] += csr.rowptr[i - 1];
  return csr;
}

// One of weight 1 need not be kept, unless it follows another of its node.
void set_loop(std::vector<float>& loop, int64_t nodes, int64_t node, float weight) {
  if (loop.empty() && weight == 1) return;
  if (loop.empty()) loop.assign(static_cast<size_t>(nodes), 1);
  loop[static_cast<size_t>(node)] = weight;
}

}  // namespace

Csr csr_of(int64_t nodes, std::vector<Edge> edges, int64_t* removed) {
  const auto before = std::ssize(edges);
  std::erase_if(edges, [](const Edge& e) { return e.source == e.target; });
  sort_edges(edges);
  Csr csr = rows_of(nodes, nodes, std::move(edges));
  if (removed) *removed = before - csr.edges();
  return csr;
}

Csr weighted_csr_of(int64_t nodes, std::vector<WeightedEdge> edges, std::string_view where, Repeats repeats,
                    int64_t* removed) {
  const auto before = std::ssize(edges);
  std::vector<float> loop;
  for (const WeightedEdge& e : edges) {
    if (e.source == e.target) set_loop(loop, nodes, e.source, e.weight);
  }
  std::erase_if(edges, [](const WeightedEdge& e) { return e.source == e.target; });
  sort_edges(edges);
  for (size_t i = 0, first = 0; i < edges.size(); first = i) {  // edges [first, i) are parallel
    double sum = 0;
    for (; i < edges.size() && same(edges[i], edges[first]); ++i) {
      const WeightedEdge &e = edges[i], &one = edges[first];
      sum += static_cast<double>(e.weight);
      if (repeats == Repeats::agree && e.weight != one.weight)
        fail(where, {.what = fmt::format("the edge from node {} to {} has two weights", e.source, e.target),
                     .got = fmt::format("{} and {}", std::min(one.weight, e.weight), std::max(one.weight, e.weight)),
                     .expected = "one in both directions",
                     .hint = "--unweighted if they are times"});
    }
    if (repeats == Repeats::sum) edges[first].weight = static_cast<float>(sum);
  }
  Csr csr = rows_of(nodes, nodes, std::move(edges));
  csr.loop = std::move(loop);
  check(csr, where);
  if (removed) *removed = before - csr.edges();
  return csr;
}

Csr bipartite_csr_of(int64_t targets, int64_t sources, std::vector<Edge> edges) {
  sort_edges(edges);
  return rows_of(targets, sources, std::move(edges));
}

int64_t remove_self_loops(Csr& csr) {
  int64_t kept = 0, begin = 0;
  for (int64_t i = 0; i < csr.rows; ++i) {
    int64_t& end_of_row = csr.rowptr[static_cast<size_t>(i) + 1];
    const int64_t end = end_of_row;
    for (int64_t e = begin; e < end; ++e) {
      if (csr.col[static_cast<size_t>(e)] == i) {
        if (!csr.weight.empty()) set_loop(csr.loop, csr.rows, i, csr.weight_of(e));
        continue;
      }
      if (!csr.weight.empty()) csr.weight[static_cast<size_t>(kept)] = csr.weight[static_cast<size_t>(e)];
      csr.col[static_cast<size_t>(kept++)] = csr.col[static_cast<size_t>(e)];
    }
    end_of_row = kept;
    begin = end;
  }
  const int64_t removed = csr.edges() - kept;
  csr.col.resize(static_cast<size_t>(kept));
  if (!csr.weight.empty()) csr.weight.resize(static_cast<size_t>(kept));
  return removed;
}

}  // namespace braid::graph
