// The BF16 product on tiles (AMX): y[m, n] = global * sum_k x[m, k] * w[n, k], class "bf16_tile", for weights in BF16,
// NVFP4 and FP8, whose values are exact in BF16, and for blocks of GGUF files, whose values are rounded to it.
//
// Tiles hold 16 rows of 64 bytes. Rows of w, as files store them, are the first operand, so weights are never packed:
// BF16 is read in place, codes are decoded 32 rows by 256 values at a time into L1. Activations are the second and are
// packed once per call into pairs along k: tile (row block i, step s) is packed[i][s][pair p][row r][2] = x[16 i + r,
// 32 s + 2 p + {0, 1}], zeros beyond the depth; the last block has only the remaining rows. Each (m, n) is summed along
// k in one order, for NVFP4 that of tile_strip.h, so a result depends on x's row and w's row alone. The walk over tiles
// (tile_amx-inl.h) is compiled twice, for the instructions and for tile_soft.h, which computes the same on any machine.
//
// Codes of NVFP4 and FP8 become BF16 2^-112 times their value, which only moves bits, and activations for them are
// packed 2^64 times as large: sums come out 2^-48 times as large, far from either end of the range of FP32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"
#include "math/tile_strip.h"

namespace braid::tiles {

// With the instructions (only where sys::machine().amx), or in software.
const Walk& walk_amx();
const Walk& walk_soft();

// Rows of x that share a packed buffer, and columns of y (rows of w) of one strip.
inline constexpr int64_t kRowsMax = 512, kStripCols = 32;

const char* refusal(const Weight& w);  // null: of a format that tiles read

bool same_packing(const Weight& a, const Weight& b);  // of x, for weights of one depth

int64_t packed_row_bytes(int64_t depth);  // at most
int64_t packed_bytes(int64_t rows, int64_t depth);
// Packs rows [16 i, 16 i + 16) of x [M, K] BF16, M <= kRowsMax, for every block i of [begin, end), for weights of the
// format of w.
void pack(const Walk& walk, const View& x, const Weight& w, int64_t begin, int64_t end, std::byte* packed);

// Workspace of one thread, in bytes.
int64_t workspace(int64_t rows);
// y [M, N] F32 or BF16, on the calling thread; w [N, K], rows contiguous.
void product(const Walk& walk, const std::byte* packed, const Weight& w, const MutView& y,
             std::span<std::byte> workspace);

}  // namespace braid::tiles
