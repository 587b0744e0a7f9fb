// What dense tiles would make of a graph: TC-GNN's condensing of 16 rows (Wang et al., arXiv 2112.02052), which numbers
// the sources of a window anew, so that its edges fall into few tiles of 16 x 8.
#pragma once
#include <cstdint>
#include <string>

#include "graph/csr.h"

namespace braid::sparse {

struct Condensed {
  int64_t tiles = 0;
  double density = 0;  // of the tiles: edges per element
  // Edges that share a row of x fetched once for a tile. Only this reduces traffic; density alone says how much of a
  // product on tiles is wasted.
  double reuse = 0;
  static constexpr double kLeastReuse = 2;
};
Condensed condensed(const graph::Csr& csr);
std::string describe(
    const Condensed& tiles);  // "as dense tiles of 16 x 8 3.1% full, 0.50 edges share a fetched row (2 would pay)"

}  // namespace braid::sparse
