// The product that walks both operands across their depth: c[m, n] (+)= sum_k a(m, k) * b[k, n], with b's rows and c's
// rows contiguous. Backward needs no other: gradients of data (b is the weight as it lies in memory) and of weights (k
// runs over tokens). Every sum is one chain over k that starts from c or from zero, so no blocking changes a bit, nor
// does cutting k into several calls; of the class "bf16_dot" at even k.
//
//   f32, bf16   a F32, b F32 or BF16 and widened, FMAs
//   bf16_dot    pairs of k: a holds two BF16 values at (m, k / 2); vdpbf16ps. With an odd depth the last pair's second
//               value must be zero.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "math/panel.h"

namespace braid {

struct OuterBlock {
  const void* a = nullptr;        // F32, or pairs of BF16
  int64_t a_row = 0, a_step = 0;  // from m to m + 1, from k (or pair) to the next; in F32s or pairs
  const void* b = nullptr;        // [depth, cols]
  int64_t b_stride = 0;           // elements
  float* c = nullptr;             // [rows, cols]
  int64_t c_stride = 0;
  int64_t rows = 0, cols = 0, depth = 0;
  bool add = false;  // to what is in c
};

// Where c's columns are best cut.
inline constexpr int64_t kOuterCols = 192;

void outer_product(PanelClass c, DType b_type, const OuterBlock& block);

namespace outer {
void wide_f32(const OuterBlock& block);
void wide_bf16(const OuterBlock& block);
void dot_bf16(const OuterBlock& block);
}  // namespace outer

}  // namespace braid
