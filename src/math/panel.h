// The product with a weight of any format, on the calling thread: y[m, n] = global * sum_k x[m, k] * w[n, k].
//
// Both operands are walked along k, the direction in which files store weights, so that an unquantised weight is read
// in place, once, as one stream. Each (m, n) keeps a vector of partial sums, reduced at fixed intervals in a fixed
// tree: a result depends on x's row and w's row alone, not on how many rows or columns are computed together. Weights
// of other formats are decoded a block at a time into `workspace`. Prefill, decode and experts use the same class.
//
//   x F32    class "f32"       weights widened exactly, FP32 products and sums
//   x BF16   class "bf16"      operands widened, FP32 products and sums
//            class "bf16_dot"  vdpbf16ps: sums of pairs of products, rounded to nearest, without subnormals
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"
#include "math/thresholds.h"

namespace braid {

enum class PanelClass : uint8_t { f32, bf16, bf16_dot };

// The class of this machine for activations of a type: every phase of a model uses it.
PanelClass panel_class(DType x);
// Null when this machine can compute the class, else why not.
const char* panel_refusal(PanelClass c);

// Workspace of one thread, in bytes.
int64_t panel_workspace(const Weight& w);

// Work is best cut at multiples of this many rows of w.
inline constexpr int64_t kPanelCols = 48;

// x [M, K] F32 or BF16, w [N, K], y [M, N] F32 or BF16; rows contiguous.
// Thresholds change the time alone.
void panel_product(PanelClass c, const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace,
                   const Thresholds& t = thresholds());
inline void panel_product(const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace) {
  panel_product(panel_class(x.dtype), x, w, y, workspace);
}

}  // namespace braid
