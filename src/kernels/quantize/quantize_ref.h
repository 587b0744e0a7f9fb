// Quantises one operand value by value, in floats, by the table of quantize.h. Every step is exact or rounded once, as
// on hardware with these formats, so rows match it bit for bit: the only op whose reference is not in double precision.
#pragma once
#include <cmath>
#include <vector>

#include "core/philox.h"
#include "kernels/quantize/quantize.h"

namespace braid {

// Representable elements: multiples of 2^-mantissa times their power of two, which is at least `least`.
struct ElementRef {
  int mantissa;
  float least, largest;

  float step(float a) const { return std::ldexp(1.0f, std::ilogb(std::max(a, least)) - mantissa); }
  float nearest(float a) const {
    a = std::min(a, largest);
    return std::nearbyint(a / step(a)) * step(a);
  }
  float either(float a, float noise) const {
    a = std::min(a, largest);
    return std::min(std::floor(a / step(a) + noise) * step(a), largest);
  }
};

inline ElementRef element_ref(Encoding e) {
  if (e == Encoding::fp8_e5m2) return {2, 0x1p-14f, 57344};
  if (e == Encoding::mxfp4 || e == Encoding::nvfp4) return {1, 1, 6};
  return {3, 0x1p-6f, 448};
}

inline float scale_ref(Encoding e, float amax, float matrix_amax) {
  constexpr float kLeast = 0x1p-126f;
  if (e == Encoding::nvfp4) {
    const float global = matrix_amax > 0 ? matrix_amax / (6 * 448) : 1.0f;
    const float ratio = std::max(amax / (6 * global), 0x1p-9f);
    return std::max(element_ref(Encoding::fp8_e4m3).nearest(ratio) * global, kLeast);
  }
  if (e == Encoding::mxfp8) {
    const float ratio = amax / 448;
    int power = 0;
    const bool exact = std::frexp(ratio, &power) == 0.5f;
    return ratio < kLeast ? kLeast : std::ldexp(1.0f, exact ? power - 1 : power);
  }
  if (e == Encoding::mxfp4) {
    const float ratio = amax / 4;
    return ratio < kLeast ? kLeast : std::ldexp(1.0f, std::ilogb(ratio));
  }
  return std::max(amax / element_ref(e).largest, kLeast);
}

// Rows [r, r + 16) of v, mixed in place.
inline void hadamard_ref(std::vector<float>& v, int64_t r, int64_t cols) {
  constexpr float kSigns[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (int64_t c = 0; c < cols; ++c) {
    const auto at = [&](int64_t i) -> float& { return v[static_cast<size_t>((r + i) * cols + c)]; };
    for (int64_t i = 0; i < 16; ++i) at(i) *= 0.25f * kSigns[i];
    for (int64_t half = 1; half < 16; half *= 2) {
      for (int64_t i = 0; i < 16; ++i) {
        if (i & half) continue;
        const float a = at(i), b = at(i + half);
        at(i) = a + b;
        at(i + half) = a - b;
      }
    }
  }
}

inline float noise_ref(const Noise& noise, int64_t row, int64_t col) {
  const auto index = static_cast<uint64_t>(noise.row0 + row) << 32 | static_cast<uint64_t>(col / 64 * 16 + col % 16);
  return static_cast<float>(philox(noise.key, index)[static_cast<size_t>(col / 16 % 4)] >> 8) * 0x1p-24f;
}

// x [rows, cols] -> [quantized_rows, cols].
inline std::vector<float> quantize_ref(const OperandSpec& spec, int64_t rows, int64_t cols, std::vector<float> v,
                                       const Noise& noise) {
  const int64_t out = quantized_rows(spec, rows);
  v.resize(static_cast<size_t>(out * cols));
  for (int64_t r = 0; spec.hadamard && r < out; r += 16) hadamard_ref(v, r, cols);
  if (spec.encoding == Encoding::none) return v;
  const ElementRef element = element_ref(spec.encoding);
  const int64_t block = spec.encoding == Encoding::nvfp4                                       ? 16
                        : spec.encoding == Encoding::mxfp8 || spec.encoding == Encoding::mxfp4 ? 32
                                                                                               : 128;
  const bool whole = spec.scaling == Scaling::matrix;
  const int64_t high = whole ? out : spec.scaling == Scaling::along_cols ? 1 : block;
  const int64_t wide = whole ? cols : spec.scaling == Scaling::along_rows ? 1 : block;
  float matrix_amax = 0;
  for (const float x : v) matrix_amax = std::max(matrix_amax, std::fabs(x));
  for (int64_t r0 = 0; r0 < out; r0 += high) {
    for (int64_t c0 = 0; c0 < cols; c0 += wide) {
      const auto each = [&](auto&& visit) {
        for (int64_t r = r0; r < std::min(r0 + high, out); ++r) {
          for (int64_t c = c0; c < std::min(c0 + wide, cols); ++c) visit(r, c, v[static_cast<size_t>(r * cols + c)]);
        }
      };
      float amax = 0;
      each([&](int64_t, int64_t, float x) { amax = std::max(amax, std::fabs(x)); });
      const float scale = scale_ref(spec.encoding, amax, matrix_amax);
      each([&](int64_t r, int64_t c, float& x) {
        const float a = std::fabs(x) / scale;
        const float code = spec.stochastic ? element.either(a, noise_ref(noise, r, c)) : element.nearest(a);
        x = std::isfinite(x) ? std::copysign(code * scale, x) : NAN;
      });
    }
  }
  return v;
}

}  // namespace braid
