#include "kernels/spmm/spmm_tiles.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "sys/check.h"

namespace braid {
namespace {

constexpr int64_t kRows = SpmmTileViews::kRows;

struct Entry {
  int32_t source, repeat;  // repeat: parallel edges before it
  int32_t row, edge;
  auto column() const { return std::tuple(source, repeat); }
};

// The edges of rows [begin, end), by source.
void collect(const int64_t* rowptr, const int32_t* col, int64_t begin, int64_t end, std::vector<Entry>& entries) {
  entries.clear();
  for (int64_t i = begin; i < end; ++i) {
    int32_t repeat = 0;
    for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e) {
      CHECK(e == rowptr[i] || col[e - 1] <= col[e], "the columns of row {} descend", i);
      repeat = e > rowptr[i] && col[e] == col[e - 1] ? repeat + 1 : 0;
      entries.push_back({col[e], repeat, static_cast<int32_t>(i - begin), static_cast<int32_t>(e)});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.column(), a.row) < std::tuple(b.column(), b.row);
  });
}

void add_window(const std::vector<Entry>& entries, bool masks, SpmmTiles& t) {
  int64_t column = -1;  // within the tile; the first edge opens one
  for (size_t k = 0; k < entries.size(); ++k) {
    const Entry& e = entries[k];
    if (k == 0 || e.column() != entries[k - 1].column()) {
      column = k == 0 ? 0 : (column + 1) % t.cols;
      if (column == 0 && masks) t.mask.insert(t.mask.end(), kRows, 0);
      if (column == 0 && !masks) t.begin.push_back(t.begin.back());
      t.source.push_back(e.source);
    }
    if (masks) {
      t.mask[t.mask.size() - static_cast<size_t>(kRows - e.row)] |= uint32_t{1} << column;
    } else {
      t.cell.push_back(static_cast<uint8_t>(t.cols * e.row + column));
      t.edge.push_back(e.edge);
      ++t.begin.back();
    }
  }
  while (std::ssize(t.source) % t.cols != 0) t.source.push_back(t.source.back());
  t.window.push_back(static_cast<int32_t>(t.tiles()));
}

}  // namespace

SpmmTileViews SpmmTiles::views() const {
  if (cols == SpmmTileViews::kCpuCols)
    return {.window = view_of(window.data(), {std::ssize(window)}),
            .source = view_of(source.data(), {tiles(), cols}),
            .mask = view_of(reinterpret_cast<const int32_t*>(mask.data()), {tiles(), kRows})};
  return {.window = view_of(window.data(), {std::ssize(window)}),
          .source = view_of(source.data(), {tiles(), cols}),
          .begin = view_of(begin.data(), {std::ssize(begin)}),
          .cell = view_of(cell.data(), {std::ssize(cell)}),
          .edge = view_of(edge.data(), {std::ssize(edge)})};
}

SpmmTiles tile_spmm(const View& rowptr, const View& col, Device device) {
  const int64_t rows = rowptr.dim(0) - 1, edges = col.dim(0);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 4096;  // a block's threads count past the last edge
  CHECK(edges <= kMost, "{} edges are too many for tiles", edges);
  const bool masks = device == Device::cpu;
  SpmmTiles t;
  t.cols = masks ? SpmmTileViews::kCpuCols : SpmmTileViews::kCols;
  t.cell.reserve(masks ? 0 : static_cast<size_t>(edges) + 1);  // of a graph without edges views point somewhere, too
  t.edge.reserve(masks ? 0 : static_cast<size_t>(edges) + 1);
  t.source.reserve(1);
  t.mask.reserve(1);
  std::vector<Entry> entries;
  for (int64_t first = 0; first < rows; first += kRows) {
    collect(rowptr.as<int64_t>(), col.as<int32_t>(), first, std::min(first + kRows, rows), entries);
    add_window(entries, masks, t);
  }
  return t;
}

}  // namespace braid
