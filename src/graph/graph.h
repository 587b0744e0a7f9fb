// Graph: a Csr with what forward and backward passes need besides: its transpose, the permutation of edges between the
// two, and inverse degrees. Self-loops stay outside: layers that need them add their own as a term of each row, which
// costs no index, and a transpose or a partition sees no diagonal.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/csr.h"

namespace braid::graph {

struct Graph {
  Csr in;                               // row i: who sends to node i
  Csr out;                              // row j: who receives from node j
  std::vector<int32_t> order{};         // of an edge of `out`: its position in `in`
  std::vector<float> inverse_degree{};  // [in.rows], 1 / degree; 0 without edges

  int64_t rows() const { return in.rows; }
  int64_t cols() const { return in.cols; }
  int64_t edges() const { return in.edges(); }
  View order_view() const { return Csr::ids_view(order); }
  View inverse_degree_view() const { return view_of(inverse_degree.data(), {in.rows}); }
};

// By a counting sort, so that sources ascend in every row of the transpose. `csr` was checked.
Graph make_graph(Csr csr);

struct Edge {
  int32_t source, target;
};
struct WeightedEdge {
  int32_t source, target;
  float weight;
};
// Sorts the edges by target, then source. Parallel edges become one and self-loops are left out; `removed`, if not
// null, counts both. Numbers of nodes were checked.
Csr csr_of(int64_t nodes, std::vector<Edge> edges, int64_t* removed = nullptr);
// The same with the weights, of which those of parallel edges are added up, as PyTorch Geometric's sums do; of
// self-loops the last becomes Csr::loop. Where `repeats` are of the two directions of one edge, each of which was added
// up, they must agree: an Error at `where` if not.
enum class Repeats : uint8_t { sum, agree };
Csr weighted_csr_of(int64_t nodes, std::vector<WeightedEdge> edges, std::string_view where, Repeats repeats,
                    int64_t* removed = nullptr);
// With two types of nodes, which have numbers of their own: from `sources` to `targets`.
Csr bipartite_csr_of(int64_t targets, int64_t sources, std::vector<Edge> edges);
// Takes the self-loops out of a Csr: returns how many there were. Of those with a weight the last of a node becomes
// Csr::loop.
int64_t remove_self_loops(Csr& csr);

}  // namespace braid::graph
