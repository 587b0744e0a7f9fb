#include "kernels/spmm/spmm_pack.h"

#include <algorithm>
#include <utility>

#include "kernels/spmm/spmm.h"
#include "sys/check.h"

namespace braid {
namespace {

void sort_rows(SpmmPack& p, const View& rowptr) {
  const auto* starts = rowptr.as<int64_t>();
  const auto degree = [&](int32_t i) { return starts[i + 1] - starts[i]; };
  p.row = rows_by_degree(rowptr);
  p.long_rows = std::partition_point(p.row.begin(), p.row.end(), [&](int32_t i) { return degree(i) > kSpmmPiece; }) -
                p.row.begin();
  for (const int32_t i : p.row) p.length.push_back(static_cast<int32_t>(std::min(degree(i), kSpmmPiece + 1)));
  const int64_t missing = (SpmmPack::kLanes - (p.rows - p.long_rows) % SpmmPack::kLanes) % SpmmPack::kLanes;
  p.row.insert(p.row.end(), static_cast<size_t>(missing), -1);
  p.length.insert(p.length.end(), static_cast<size_t>(missing), 0);
}

}  // namespace

// A counting sort, but for the few long rows.
std::vector<int32_t> rows_by_degree(const View& rowptr) {
  const auto* starts = rowptr.as<int64_t>();
  const int64_t rows = rowptr.dim(0) - 1;
  std::vector<int64_t> begin(kSpmmPiece + 1, 0);  // of degree d: where its rows begin, from the longest on
  const auto degree = [&](int64_t i) { return starts[i + 1] - starts[i]; };
  std::vector<int32_t> sorted;
  for (int64_t i = 0; i < rows; ++i) {
    if (degree(i) > kSpmmPiece) {
      sorted.push_back(static_cast<int32_t>(i));
    } else {
      ++begin[static_cast<size_t>(degree(i))];
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return degree(a) > degree(b); });
  int64_t next = std::ssize(sorted);
  for (int64_t d = kSpmmPiece; d >= 0; --d) next += std::exchange(begin[static_cast<size_t>(d)], next);
  sorted.resize(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    if (degree(i) <= kSpmmPiece)
      sorted[static_cast<size_t>(begin[static_cast<size_t>(degree(i))]++)] = static_cast<int32_t>(i);
  }
  return sorted;
}

std::optional<SpmmPack> pack_spmm(const View& rowptr, const View& col, const View& edge, const View& order) {
  SpmmPack p{.rows = rowptr.dim(0) - 1, .edges = col.dim(0)};
  CHECK(!edge || (edge.dim(0) == p.edges && edge.count() == p.edges), "a pack has one value per edge");
  const auto* starts = rowptr.as<int64_t>();
  sort_rows(p, rowptr);
  p.slice = {0};
  for (size_t k = static_cast<size_t>(p.long_rows); k < p.row.size(); k += SpmmPack::kLanes)
    p.slice.push_back(p.slice.back() + SpmmPack::kLanes * p.length[k]);
  const int64_t stored = p.slice.back();
  if (stored > p.edges + p.edges / 4 + SpmmPack::kLanes * kSpmmPiece) return std::nullopt;
  p.col.assign(static_cast<size_t>(stored + SpmmPack::kPast), 0);
  if (edge) p.value.assign(static_cast<size_t>(stored), 0);
  for (int64_t k = p.long_rows; k < std::ssize(p.row); ++k) {
    const int32_t row = p.row[static_cast<size_t>(k)];
    if (row < 0) break;
    const int64_t lane = (k - p.long_rows) % SpmmPack::kLanes,
                  first = p.slice[static_cast<size_t>((k - p.long_rows) / SpmmPack::kLanes)] + lane;
    for (int64_t j = 0; j < p.length[static_cast<size_t>(k)]; ++j) {
      const int64_t e = starts[row] + j;
      const auto at = static_cast<size_t>(first + SpmmPack::kLanes * j);
      p.col[at] = col.as<int32_t>()[e];
      if (edge) p.value[at] = edge.as<float>()[order ? order.as<int32_t>()[e] : e];
    }
  }
  return p;
}

}  // namespace braid
