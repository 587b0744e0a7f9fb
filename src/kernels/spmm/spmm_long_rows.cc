#include "kernels/spmm/spmm_long_rows.h"

#include <algorithm>

#include "kernels/spmm/spmm.h"

namespace braid {
namespace {

// body(row, pieces) of every long row.
template <class Body>
void for_each_long_row(const View& rowptr, const Body& body) {
  const auto* starts = rowptr.as<int64_t>();
  for (int64_t i = 0; i + 1 < rowptr.dim(0); ++i) {
    const int64_t edges = starts[i + 1] - starts[i];
    if (edges > kSpmmPiece) body(i, (edges + kSpmmPiece - 1) / kSpmmPiece);
  }
}

}  // namespace

SpmmPiece SpmmLongRows::piece(const View& rowptr, int64_t k) const {
  const auto after =
      std::upper_bound(list.begin(), list.end(), k, [](int64_t p, const SpmmLongRow& r) { return p < r.first; });
  const SpmmLongRow& r = *(after - 1);
  const auto* starts = rowptr.as<int64_t>();
  const int64_t begin = starts[r.row] + (k - r.first) * kSpmmPiece;
  return {.row = r.row, .begin = begin, .end = std::min(begin + kSpmmPiece, starts[r.row + 1])};
}

SpmmLongCount count_long_rows(const View& rowptr) {
  SpmmLongCount n;
  for_each_long_row(rowptr, [&](int64_t, int64_t pieces) { ++n.rows, n.pieces += pieces; });
  return n;
}

SpmmLongRows list_long_rows(const View& rowptr, std::span<std::byte>& space) {
  auto* list = reinterpret_cast<SpmmLongRow*>(space.data());
  size_t rows = 0;
  int64_t pieces = 0;
  for_each_long_row(rowptr, [&](int64_t row, int64_t own) {
    list[rows++] = {row, pieces};
    pieces += own;
  });
  space = space.subspan(rows * sizeof(SpmmLongRow));
  return {.list = {list, rows}, .pieces = pieces};
}

}  // namespace braid
