// SpmmTiles: a graph condensed into dense tiles (TC-GNN, Wang et al., arXiv 2112.02052). Sixteen rows are a window; the
// sources that its edges name, ascending, are numbered anew, sixteen to a tile, so that a matrix unit multiplies a tile
// by sixteen rows of x that are read once for all its edges. Parallel edges take a column each. A tile has at least one
// edge; how many share a row of x says whether this pays (sparse/condense.h).
#pragma once
#include <cstdint>
#include <vector>

#include "core/view.h"

namespace braid {

// Where a product finds them, on the CPU or on a GPU.
struct SpmmTileViews {
  static constexpr int64_t kRows = 16, kCols = 16;
  View window{};  // [windows + 1] I32, the first tile of each
  View source{};  // [tiles, 16] I32; a tile that is not full repeats its last one
  View begin{};   // [tiles + 1] I32, where its edges begin in `cell` and `edge`
  View cell{};    // [E] U8, 16 times the row plus the column within the tile, each once
  View edge{};    // [E] I32, the edge's position in the graph's `col`
};

struct SpmmTiles {
  std::vector<int32_t> window{0}, source{}, begin{0}, edge{};
  std::vector<uint8_t> cell{};

  int64_t tiles() const { return std::ssize(begin) - 1; }
  SpmmTileViews views() const;
};

// Up to 2^31 - 4097 edges; columns of a row do not descend.
SpmmTiles tile_spmm(const View& rowptr, const View& col);

}  // namespace braid
