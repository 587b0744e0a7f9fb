// How rows of x in 8-bit integers and codes of 16 rows of w lie in memory for the dots of math/codes_a8.h.
//
// x: blocks of R <= 6 rows, group after group of 128 values:
//   [R] F32 scales, then two steps of 64 values, each [64 / grain][R] I32 sums of q times Codes::factor over the blocks
//   of w, [16][R][4] q; where Codes::pairs, of eight values the even ones before the odd ones. Values beyond the depth
//   are zero.
// w: units of 16 rows by 64 values: [16][16][4] codes, four along k; [64 / grain][16] F32 scales; the same of minima.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sys/prefetch.h"

namespace braid::codes::a8 {

inline constexpr int64_t kGroup = 128, kStep = 64, kUnitRows = 16, kUnitCodes = kUnitRows * kStep;

constexpr int64_t unit_bytes(int64_t grain, bool minima) {
  return kUnitCodes + kStep / grain * kUnitRows * 4 * (minima ? 2 : 1);
}
constexpr int64_t step_bytes(int64_t grain, int64_t rows) { return rows * (kStep + kStep / grain * 4); }
constexpr int64_t group_bytes(int64_t grain, int64_t rows) {
  return rows * 4 + kGroup / kStep * step_bytes(grain, rows);
}

// Of AVX2 without VNNI: how many quads of codes up to `top`, or above 127 of their digits of 4 bits, have pairs whose
// sums with x fit 16 bits. `top` is at most 64, or above 127.
constexpr int quads_of_a_sum(int top) {
  const int most = 32767 / (2 * 127 * (top > 127 ? 15 : top));
  return most >= 8 ? 8 : most >= 4 ? 4 : 2;
}

// Prefetches part i of n of these bytes. Rows of weights are prefetched in the order of their addresses, so that the
// prefetcher of the CPU runs ahead, which can have more lines under way than one core may ask for. To L2: with 16 or 32
// rows in use and as many ahead an L1 of 32 KiB lost those in use (Zen 4: one row of x took 2.1 times as long; where L1
// has 48 KiB the difference was not measured).
inline void prefetch_part(const void* p, int64_t bytes, int64_t i, int64_t n) {
  const auto* from = static_cast<const std::byte*>(p);
  for (int64_t at = bytes * i / n; at < bytes * (i + 1) / n; at += 64) prefetch_to_l2(from + at);
}

}  // namespace braid::codes::a8
