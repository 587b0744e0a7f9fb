// Many rows of x times weights in codes of 4 to 8 bits, both as 8-bit integers: class "codes_a8" (--activations int8).
// For prompts and batches on CPUs without tiles, where byte dot products run at two (AVX2 alone) to four times the rate
// of FP32; every instruction set gives the same bits. Weights and CPUs are those of math/codes_dot.h, codes are looked
// up as there: u = value + zero, unsigned.
//
// A row of x is cut into groups of 128 values along k, each rounded to integers q = round(x / s), s = |x|max / 127.
// With blocks b of the weight (16 or 32 values with a scale d and, in some types, a minimum m)
//   y[i, j] = sum over groups of s * sum over blocks of ( d * (sum u q - zero * sum q) + m * sum q )
// The innermost sums are exact; blocks are added in FP32, then groups. A result depends on x's row and w's row alone,
// whatever else is computed: no sum is split over threads, or reduced differently for few rows. The rounding of x adds
// about 0.7% of the result's size where its values are normally distributed. For a few rows of x codes are
// read in place instead of being unpacked into strips, with the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"
#include "math/thresholds.h"

namespace braid::codes::a8 {

// Rows of x that are packed together, and the maximum of one product.
inline constexpr int64_t kBlockRows = 6, kRowsMax = 172 * kBlockRows;
// Columns of y (rows of w) of one strip.
inline constexpr int64_t kStripCols = 32;

// Whether rows packed for one also suit the other.
bool same_packing(const QuantSpec& a, const QuantSpec& b);

int64_t row_bytes(const QuantSpec& weights, int64_t depth);
// Packs n <= kBlockRows rows of BF16, each of `depth` values, to n * row_bytes. Blocks of one operand follow each
// other; all but its last have kBlockRows.
void pack(const Bf16* const* rows, int64_t n, int64_t depth, const QuantSpec& weights, std::byte* packed);

int64_t workspace(int64_t rows);
// y [M, N] F32 or BF16, M <= kRowsMax, on the calling thread; w [N, K], rows contiguous. Thresholds change the time
// alone.
void product(const std::byte* packed, const Weight& w, const MutView& y, std::span<std::byte> workspace,
             const Thresholds& t = thresholds());

}  // namespace braid::codes::a8
