// SpmmPack: a graph's rows in slices of 16 of about equal length, stored transposed, so that a step reads an edge of
// each row (SELL-C-sigma with C = 16 and sigma = all rows; Kreutzer et al., arXiv 1307.6209). Narrow products, which
// wait for one addition after the other, then have up to 16 sums in flight. Every row is still summed in the order of
// its edges. A pack takes 2 to 6 products to make and 4 to 8 bytes per edge: it pays for graphs that are used often.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/view.h"

namespace braid {

struct SpmmPack {
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kPast = 64;  // entries behind the last slice that prefetches may read

  int64_t rows = 0, edges = 0;  // of the graph
  std::vector<int32_t> row{};   // rows of the graph by falling degree, equal ones in order; -1 fills the last slice
  std::vector<int32_t> length{};
  int64_t long_rows = 0;         // the first of `row`, with more than kSpmmPiece edges: in no slice
  std::vector<int64_t> slice{};  // [slices + 1] where the entries of slice s, rows long_rows + 16 s on, begin
  std::vector<int32_t> col{};    // entry [j, lane] of a slice: edge j of that row; beyond its end any source
  std::vector<float> value{};    // of the same edges; empty where the pack was made without

  int64_t slices() const { return std::ssize(slice) - 1; }
};

// The rows of a graph by falling degree, equal ones in order.
std::vector<int32_t> rows_by_degree(const View& rowptr);

// `edge` [E, 1] F32 or empty, in the order of `order` where there is one (as SpmmFwd). None where filling the slices
// would take more than a quarter of the edges again.
std::optional<SpmmPack> pack_spmm(const View& rowptr, const View& col, const View& edge = {}, const View& order = {});

}  // namespace braid
