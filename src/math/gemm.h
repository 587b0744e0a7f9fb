// Dense products on oneDNN, one thread a call: y[m, n] = global * sum_k x[m, k] * w[n, k] for F32 by F32 and BF16 by
// BF16, with FP32 sums. Classes "f32_gemm" and "bf16_gemm".
//
// oneDNN alone changes bits with the team, the number of rows and the shape: it picks how to cut the depth. So it only
// ever sees tiles of kRows rows (padded with zeros) by at most kCols columns by at most kDepth values, each product of
// which has one depth block; tiles are added up in order. Primitives are made once a thread and shape; scratch is ours.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"

namespace braid {

// Columns are cut at multiples of kGemmCols: callers must cut there too.
inline constexpr int64_t kGemmCols = 192;

// Null when the product of these types exists, else the reason against.
const char* gemm_refusal(DType x, Format w);

// Workspace of one thread, in bytes.
int64_t gemm_workspace(const View& x, const Weight& w);

// x [M, K], w [N, K] of the same type, y [M, N] F32 or BF16; rows contiguous. On the calling thread.
void gemm_product(const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace);

}  // namespace braid
