// States that are stored in fewer than 32 bits: BF16, F16, or I8 with an FP32 scale for each row (the N values of one p
// of one head). Every call reads them, computes in FP32 and rounds what it writes back stochastically, up with
// probability equal to the fraction cut off: each token rounds the same state again, so errors of round-to-nearest
// would accumulate in one direction (docs/internals/formats.md, States). The draws depend only on key, position, row
// and column, not on slots, threads or the other sequences of a call.
//   BF16, F16   |v| rounded up with the probability of the bits cut off; beyond 65504 F16 saturates
//   I8          scale = max |row| / 127
// BF16 and F16 keep infinities, all types keep NaN; a row of I8 with either is NaN as a whole.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/philox.h"

namespace braid {

// Longest row of a state that is not F32, in values.
inline constexpr int64_t kStoredStatesMax = 1024;
inline constexpr float kStoredF16Max = 65504;

// Sixteen random bits for a value, by the number of tokens in the state, row (head * P + p) and column. A Philox block
// of 16 counters serves 128 columns: column 32 j + 16 k + i of them is half k, low first, of word j of counter i.
inline uint32_t stored_draw(const RandomKey& key, int64_t position, int64_t row, int64_t column) {
  const int64_t block = column / 128, i = column % 16, word = column % 128 / 32, half = column % 32 / 16;
  const uint64_t index = static_cast<uint64_t>(block * 16 + i) | static_cast<uint64_t>(row) << 32;
  return philox(key, index, static_cast<uint32_t>(position))[static_cast<size_t>(word)] >> (16 * half) & 0xffff;
}

// v rounded to a type with `bits` mantissa bits, whose smallest normal number is 2^least.
inline double stored_on_grid(double v, uint32_t draw, int bits, int least) {
  if (!std::isfinite(v)) return v;
  int exponent = 0;
  std::frexp(v, &exponent);
  const double step = std::ldexp(1, std::max(exponent - 1, least) - bits);
  return std::copysign(std::floor(std::fabs(v) / step + draw * 0x1p-16) * step, v);
}

// Rounds a row in place as it would be stored, for references; returns its scale.
inline double store_row_ref(DType type, const RandomKey& key, int64_t position, int64_t row, std::span<double> values) {
  double most = 0;
  for (double& v : values) {
    v = static_cast<double>(static_cast<float>(v));
    most = std::isfinite(v) && !std::isnan(most) ? std::max(most, std::fabs(v)) : NAN;
  }
  const double scale = static_cast<double>(static_cast<float>(most) / 127);
  for (size_t n = 0; n < values.size(); ++n) {
    double& v = values[n];
    const uint32_t draw = stored_draw(key, position, row, static_cast<int64_t>(n));
    if (type == DType::bf16) v = stored_on_grid(v, draw, 7, -126);
    if (type == DType::f16) {
      v = stored_on_grid(v, draw & 0xfff8, 10, -14);
      if (std::isfinite(v)) v = std::clamp(v, -static_cast<double>(kStoredF16Max), static_cast<double>(kStoredF16Max));
    }
    if (type == DType::i8) {
      const double code = scale > 0 ? std::fabs(v) / scale : 0;
      v = std::copysign(std::min(std::floor(code + draw * 0x1p-16), 127.0), v) * scale;
    }
  }
  return scale;
}

}  // namespace braid
