// Csr: the edges of a graph by destination. Row i lists the sources of the messages to node i; an edge is identified by
// its position in `col`. Positions and numbers of nodes are 32 bits, so that a column, a permutation or an arg takes
// four bytes per edge; row pointers and all products of sizes are 64 bits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/view.h"

namespace braid::graph {

// Of nodes, of edges: what an I32 can number.
inline constexpr int64_t kMost = (int64_t{1} << 31) - 1;

struct Csr {
  int64_t rows = 0, cols = 0;         // destinations and sources; equal in a graph of one kind of nodes
  std::vector<int64_t> rowptr = {0};  // [rows + 1]
  std::vector<int32_t> col{};         // [edges], not descending within a row; equal neighbours are parallel edges
  std::vector<float> weight{};        // [edges], finite; empty: all are 1
  // [rows], finite: weights of self-loops, which are not edges, as gcn adds them to every node; empty: all are 1.
  std::vector<float> loop{};

  int64_t edges() const { return std::ssize(col); }
  int64_t degree(int64_t row) const { return rowptr[static_cast<size_t>(row) + 1] - rowptr[static_cast<size_t>(row)]; }
  float weight_of(int64_t edge) const { return weight.empty() ? 1 : weight[static_cast<size_t>(edge)]; }
  float loop_of(int64_t row) const { return loop.empty() ? 1 : loop[static_cast<size_t>(row)]; }
  // What ops read; not null without edges either.
  View rowptr_view() const { return view_of(rowptr.data(), {rows + 1}); }
  View col_view() const { return ids_view(col); }

  static View ids_view(const std::vector<int32_t>& ids);
};

// Error, naming the first bad row, unless rowptr starts at 0, never falls and ends at the number of edges, and the
// columns of each row are in range and do not descend. Weights are finite and as many as edges.
void check(const Csr& csr, std::string_view where);

// Sorts the edges from `begin` on, the last row of a Csr that is being made, by source, with their weights.
void sort_last_row(Csr& csr, int64_t begin);

// One pass over the rows: what chooses kernels and what people want to know of a graph.
struct RowStats {
  int64_t rows = 0, edges = 0, most = 0, empty = 0;  // most: the highest degree
  int64_t p99 = 0;                                   // the least degree that 99% of the rows do not exceed
  double mean = 0, deviation = 0, spread = 0;        // of the degrees; spread: deviation over mean
};
RowStats stats_of(const Csr& csr);
std::string describe(const RowStats& stats);  // "437 nodes, 1694 edges, degrees up to 81 (99%: 40), mean 3.9,
                                              // spread 1.2, 20 nodes without incoming edges"

// The smallest and the largest weight of a graph that has them: "weights from 0.1 to 3".
std::string describe_weights(const Csr& csr);

// 64 bits of the structure, to recognise it; weights are not part of it.
uint64_t fingerprint(const Csr& csr);

}  // namespace braid::graph
