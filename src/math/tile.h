// The BF16 product on tiles (AMX): y[m, n] = global * sum_k x[m, k] * w[n, k], class "bf16_tile".
//
// Tiles hold 16 rows of 64 bytes. Rows of w, as files store them, are the first operand, so weights are never packed;
// activations are the second and are packed once per call into pairs along k: tile (row block i, step s) is
// packed[i][s][pair p][row r][2] = x[16 i + r, 32 s + 2 p + {0, 1}], zeros beyond the edges. Each (m, n) is summed
// along k in one order, so a result depends on x's row and w's row alone. The walk over tiles (tile_amx-inl.h) is
// compiled twice, for the instructions and for tile_soft.h, which computes the same on any machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"
#include "math/tile_strip.h"

namespace braid::tiles {

// The walk over tiles: with the instructions (only where sys::machine().amx), or in software.
void strip_amx(const Strip& s);
void strip_soft(const Strip& s);

// Rows of x that share a packed buffer, and columns of y (rows of w) of one strip.
inline constexpr int64_t kRowsMax = 512, kStripCols = 32;

int64_t packed_bytes(int64_t rows, int64_t depth);
// Packs rows [16 i, 16 i + 16) of x [M, K] BF16, M <= kRowsMax, for every block i of [begin, end).
void pack(const View& x, int64_t begin, int64_t end, std::byte* packed);

// Workspace of one thread, in bytes.
int64_t workspace(int64_t rows, int64_t depth);
// y [M, N] F32 or BF16, on the calling thread; w [N, K] BF16, rows contiguous.
void product(void (*strip)(const Strip&), const std::byte* packed, const Weight& w, const MutView& y,
             std::span<std::byte> workspace);

}  // namespace braid::tiles
