// What each of several threads gets of a graph: as many rows as the others, or as many edges, for which rows are cut.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/csr.h"

namespace braid::sparse {

enum class Balance : uint8_t { rows, edges };

// `count` graphs whose edges, one after the other, are those of `csr`. By rows a share is whole rows; by edges its
// first and last row may be parts of rows, which two shares then have.
std::vector<graph::Csr> shares_of(const graph::Csr& csr, int64_t count, Balance balance);

}  // namespace braid::sparse
