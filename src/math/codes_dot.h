// A few rows of x times weights in 4-bit codes, as sums of whole numbers: class "w4a16". For the step, which is bound
// by the bytes of the weights: codes are looked up 64 at a time and never become floating point.
//
// A row of x is rounded to whole numbers q of 16 bits, x = s q with |q| <= 32,639, and cut into bytes, q = 256 high +
// low. A code is looked up as u = 2 e2m1 + 12, so that it has no sign. Of four values along k at a time, one dot of
// bytes each for high and low gives sum(u q); the one of low starts at -12 sum(q). That is exact; it is multiplied by
// the scale of its block and added to FP32 sums, 16 of them side by side, which are folded at the end of the row. A
// result depends on x's row and w's row alone. Against the product in BF16 the rounding of x adds 3e-5 of the result's
// size (cpu-kernels.md measured it; math_test holds it).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"

namespace braid::codes {

// Rows of x that one pass over the weights serves.
inline constexpr int64_t kRowsMax = 4;

// Null where w has such codes and this CPU the instructions (AVX-512 with VBMI and VNNI).
const char* refusal(const Weight& w);

int64_t packed_bytes(int64_t rows, int64_t depth);
// Rounds x [M, K] BF16, M <= kRowsMax.
void pack(const View& x, std::byte* packed);

// y [M, N] F32 or BF16, on the calling thread; w [N, K], rows contiguous.
void product(const std::byte* packed, const Weight& w, const MutView& y);

// The rows of codes_dot_avx512.cc. 192 bytes for 64 values along k: 64 high, 64 low, 16 starts of I32.
inline constexpr int64_t kStep = 64, kStepBytes = 192;
float pack_row_avx512(const Bf16* x, int64_t depth, std::byte* packed);  // -> s
struct Row {
  const uint8_t *codes, *scales;
  int64_t depth;
  const std::byte* packed[kRowsMax];
};
// sums[m] = sum_k 2 e2m1 * scale 2^-8 * q
void nvfp4_row_avx512(const Row& row, int64_t rows, float* sums);

}  // namespace braid::codes
