// SpmmTiles: a graph condensed into dense tiles (TC-GNN, Wang et al., arXiv 2112.02052). Sixteen rows are a window; the
// sources that its edges name, ascending, are numbered anew, sixteen to a tile of a GPU and 32 to one of a CPU, so that
// a matrix unit multiplies a tile by rows of x that are read once for all its edges. Parallel edges take a column each.
// A tile has at least one edge; how many share a row of x says whether this pays (sparse/condense.h).
#pragma once
#include <cstdint>
#include <vector>

#include "core/view.h"

namespace braid {

// Where a product finds them, on the CPU or on a GPU.
struct SpmmTileViews {
  static constexpr int64_t kRows = 16, kCols = 16, kCpuCols = 32;
  View window{};  // [windows + 1] I32, the first tile of each
  View source{};  // [tiles, kCols or kCpuCols] I32; a tile that is not full repeats its last one
  // Of a GPU:
  View begin{};  // [tiles + 1] I32, where its edges begin in `cell` and `edge`
  View cell{};   // [E] U8, 16 times the row plus the column within the tile, each once
  View edge{};   // [E] I32, the edge's position in the graph's `col`
  // Of a CPU, where edges need no list: those of a row are in the order of its tiles and columns.
  View mask{};  // [tiles, 16] I32, the columns that each row has
};

struct SpmmFwd;
bool spmm_tiles_here();  // whether this CPU has what they need
// Why a product does not run on tiles on this CPU; null: it does.
const char* spmm_tiles_refusal(const SpmmFwd& op);

struct SpmmTiles {
  std::vector<int32_t> window{0}, source{}, begin{0}, edge{};
  std::vector<uint8_t> cell{};
  std::vector<uint32_t> mask{};
  int64_t cols = SpmmTileViews::kCols;

  int64_t tiles() const { return std::ssize(source) / cols; }
  SpmmTileViews views() const;
};

// For the CPU or for GPUs. Up to 2^31 - 4097 edges; columns of a row do not descend.
SpmmTiles tile_spmm(const View& rowptr, const View& col, Device device = Device::cuda);

}  // namespace braid
