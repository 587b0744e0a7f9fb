// A graph as ranks divide it in blocks of rows and columns, and the order of nodes that makes these blocks alike
// (Plexus, arXiv 2505.04083). Neighbours have near numbers in most files, so that blocks on the diagonal have most of
// the edges; a random permutation of the nodes, the same of rows and columns, spreads them. Self-loops stay on the
// diagonal of any such permutation, but they are not in a Csr (graph.h), so that one permutation is enough.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param.h"
#include "graph/csr.h"

namespace braid::graph {

// The nodes in a random order: a function of the seed, and of nothing else.
std::vector<int32_t> random_order(int64_t nodes, uint64_t seed);
// Where each node is in an order of them.
std::vector<int32_t> positions_of(std::span<const int32_t> order);

// Rows and columns of a graph whose nodes are taken in `order`; both counted from the first of the block.
Csr block_of(const Csr& csr, std::span<const int32_t> order, const Range& rows, const Range& cols);

// Edges of the fullest of rows x cols blocks, over the mean of all; 1 without edges. `positions` as of positions_of,
// empty: nodes in the order of their numbers.
double imbalance(const Csr& csr, std::span<const int32_t> positions, int64_t rows, int64_t cols);

}  // namespace braid::graph
