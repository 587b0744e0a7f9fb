#include "codec/ggml_encode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/dtype.h"
#include "sys/check.h"

namespace braid {
namespace {

using Byte = uint8_t;

float number(int v) { return static_cast<float>(v); }
Byte byte(int v) { return static_cast<Byte>(v); }
// Writes `v` in half precision; returns the rounded value.
float put_half(float v, Byte* p) {
  const F16 half = to_f16(v);
  std::memcpy(p, &half, sizeof(half));
  return to_float(half);
}
// 0 if it overflows FP32; half precision makes such a scale zero anyway.
float inverse(float v) { return std::isfinite(1.0f / v) ? 1.0f / v : 0.0f; }
// To the nearest integer, halves to even. ggml's trick: the sum has no bits below one.
int nearest(float v) {
  const float shifted = v + 12582912.0f;
  return (std::bit_cast<int>(shifted) & 0x007fffff) - 0x00400000;
}

constexpr float kGroupSmallest = 1e-15f;  // below it values count as zeros

// The first value of the largest magnitude, with its sign.
float peak(std::span<const float> x) {
  float amax = 0, max = 0;
  for (const float v : x) {
    if (std::fabs(v) > amax) amax = std::fabs(v), max = v;
  }
  return max;
}

// Codes i and i + half share a byte, the first in its low bits.
void pack_nibbles(const Byte* codes, int half, Byte* out) {
  for (int i = 0; i < half; ++i) out[i] = byte((codes[i] & 15) | (codes[i + half] & 15) << 4);
}
// The fifth bits of 32 codes.
void pack_fifth(const Byte* codes, Byte* out) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  std::memcpy(out, &bits, sizeof(bits));
}

void f32(const float* x, Byte* b) { std::memcpy(b, x, 4); }
void f16(const float* x, Byte* b) { put_half(*x, b); }
void bf16(const float* x, Byte* b) {
  const Bf16 v = to_bf16(*x);
  std::memcpy(b, &v, sizeof(v));
}

void q8_0(const float* x, Byte* b) {
  const float d = std::fabs(peak({x, 32})) / 127, id = inverse(d);
  put_half(d, b);
  for (int i = 0; i < 32; ++i) b[2 + i] = byte(static_cast<int>(std::round(x[i] * id)));
}

// One scale, the value of the largest magnitude at the negative end.
void symmetric(const float* x, int bits, Byte* scale, Byte* codes) {
  const int middle = 1 << (bits - 1);
  const float d = peak({x, 32}) / number(-middle), id = inverse(d);
  put_half(d, scale);
  for (int i = 0; i < 32; ++i)
    codes[i] = byte(std::min(2 * middle - 1, static_cast<int>(x[i] * id + (number(middle) + 0.5f))));
}
// A scale and the least value.
void affine(const float* x, int bits, Byte* scales, Byte* codes) {
  float min = x[0], max = x[0];
  for (int i = 1; i < 32; ++i) min = std::min(min, x[i]), max = std::max(max, x[i]);
  const float d = (max - min) / number((1 << bits) - 1), id = inverse(d);
  put_half(d, scales);
  put_half(min, scales + 2);
  for (int i = 0; i < 32; ++i) codes[i] = byte(std::min((1 << bits) - 1, static_cast<int>((x[i] - min) * id + 0.5f)));
}
void q4_0(const float* x, Byte* b) {
  Byte codes[32];
  symmetric(x, 4, b, codes);
  pack_nibbles(codes, 16, b + 2);
}
void q4_1(const float* x, Byte* b) {
  Byte codes[32];
  affine(x, 4, b, codes);
  pack_nibbles(codes, 16, b + 4);
}
void q5_0(const float* x, Byte* b) {
  Byte codes[32];
  symmetric(x, 5, b, codes);
  pack_fifth(codes, b + 2);
  pack_nibbles(codes, 16, b + 6);
}
void q5_1(const float* x, Byte* b) {
  Byte codes[32];
  affine(x, 5, b, codes);
  pack_fifth(codes, b + 4);
  pack_nibbles(codes, 16, b + 8);
}

// ---- tables of values -----------------------------------------------------------------------------------------------

constexpr std::array<int8_t, 16> kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// The nearer of two neighbours, the upper one on a tie.
int nearest_iq4(float v) {
  const auto above = std::upper_bound(kIq4.begin(), kIq4.end(), v,
                                      [](float value, int8_t entry) { return value < static_cast<float>(entry); });
  if (above == kIq4.begin()) return 0;
  if (above == kIq4.end()) return 15;
  const auto i = static_cast<int>(above - kIq4.begin());
  return v - number(above[-1]) < number(*above) - v ? i - 1 : i;
}

// Fifteen scales around the one that maps the peak to the end of the table; the best weighs errors with x^2.
void iq4_nl(const float* x, Byte* b) {
  constexpr int kTries = 7;
  const float max = peak({x, 32});
  float d = 0, best = 0;
  const auto fit = [&](float id) {  // sums of w q x and of w q^2
    std::pair<float, float> sums{0.0f, 0.0f};
    for (int i = 0; i < 32; ++i) {
      const float q = number(kIq4[static_cast<size_t>(nearest_iq4(id * x[i]))]), w = x[i] * x[i];
      sums.first += w * q * x[i];
      sums.second += w * q * q;
    }
    return sums;
  };
  if (std::fabs(max) >= kGroupSmallest) {
    const auto first = fit(1 / (-max / number(kIq4[0])));
    d = first.second > 0 ? first.first / first.second : 0.0f;
    best = d * first.first;
    for (int i = -kTries; i <= kTries; ++i) {
      const auto sums = fit(number(i + kIq4[0]) / max);
      if (sums.second > 0 && sums.first * sums.first > best * sums.second) {
        d = sums.first / sums.second;
        best = d * sums.first;
      }
    }
  }
  put_half(d, b);
  Byte codes[32];
  const float id = inverse(d);
  for (int i = 0; i < 32; ++i) codes[i] = byte(nearest_iq4(id * x[i]));
  pack_nibbles(codes, 16, b + 2);
}

// Twice E2M1: the first of the nearest entries.
constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
Byte nearest_e2m1(float v, float scale) {
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    if (std::fabs(number(kE2m1Doubled[i]) * scale - v) < std::fabs(number(kE2m1Doubled[best]) * scale - v)) best = i;
  }
  return byte(best);
}
void mxfp4(const float* x, Byte* b) {
  const float amax = std::fabs(peak({x, 32}));
  const int exponent = amax > 0 ? static_cast<int>(std::floor(std::log2(amax))) - 2 + 127 : 0;
  const auto e = static_cast<uint32_t>(std::clamp(exponent, 0, 254));
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  Byte codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = nearest_e2m1(x[i], d);
  b[0] = byte(static_cast<int>(e));
  pack_nibbles(codes, 16, b + 1);
}

// Unsigned E4M3 up to 448, in which 0x7f is NaN; halves round up, as in ggml.
Byte ue4m3(float v) {
  if (!(v > 0)) return 0;
  const auto bits = std::bit_cast<uint32_t>(std::min(v, 448.0f));
  const int exponent = static_cast<int>(bits >> 23) - 127 + 7;
  if (exponent <= 0) return byte(std::min(7, static_cast<int>(v * 512 + 0.5f)));
  const int code = exponent << 3 | static_cast<int>(bits >> 20 & 7);
  return byte(std::min(0x7e, code + static_cast<int>(bits >> 19 & 1)));
}
// Halved: the table has twice the values.
float ue4m3_half(Byte bits) {
  const int exponent = bits >> 3, fraction = bits & 7;
  return 0.5f * (exponent == 0 ? std::ldexp(number(fraction), -9) : std::ldexp(number(8 + fraction), exponent - 10));
}
void nvfp4(const float* x, Byte* b) {
  for (int block = 0; block < 4; ++block, x += 16) {
    b[block] = ue4m3(std::fabs(peak({x, 16})) / 6);
    const float d = ue4m3_half(b[block]);
    Byte codes[16];
    for (int i = 0; i < 16; ++i) codes[i] = nearest_e2m1(x[i], d);
    pack_nibbles(codes, 8, b + 4 + 8 * block);
  }
}

// ---- K-quants: 256 values in groups with scales of few bits --------------------------------------------------

// How the scale of a group of 32 is searched: steps + 1 scales, from (codes - 1 + first) upwards.
struct AffineSearch {
  int codes;  // of a value
  float first, delta;
  int steps;
};
struct AffineFit {
  float scale = 0, least = 0;  // the value of code c is scale * c - least
};

AffineFit fit_affine(const float* x, const float* weights, const AffineSearch& search, Byte* codes) {
  constexpr int kCount = 32;
  const int top = search.codes - 1;
  float min = x[0], max = x[0], sum_w = weights[0], sum_x = weights[0] * x[0];
  for (int i = 1; i < kCount; ++i) {
    min = std::min(min, x[i]), max = std::max(max, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  min = std::min(min, 0.0f);
  std::fill_n(codes, kCount, Byte{0});
  if (max == min) return {0, -min};
  // Codes are counted from the least value of the best fit so far.
  const auto encode = [&](float inverse_scale, Byte* to) {
    for (int i = 0; i < kCount; ++i) to[i] = byte(std::clamp(nearest(inverse_scale * (x[i] - min)), 0, top));
  };
  const auto error_of = [&](float scale, float least, const Byte* of) {
    float error = 0;
    for (int i = 0; i < kCount; ++i) {
      const float diff = scale * number(of[i]) + least - x[i];
      error += weights[i] * (diff * diff);
    }
    return error;
  };
  const float first = number(top) / (max - min);
  encode(first, codes);
  float scale = 1 / first, best = error_of(scale, min, codes);
  for (int step = 0; step <= search.steps; ++step) {
    Byte trial[kCount];
    encode((search.first + search.delta * number(step) + number(top)) / (max - min), trial);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < kCount; ++i) {
      const float w = weights[i], l = number(trial[i]);
      sum_l += w * l;
      sum_l2 += w * l * l;
      sum_xl += w * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float this_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (this_min > 0) this_min = 0, this_scale = sum_xl / sum_l2;
    if (const float error = error_of(this_scale, this_min, trial); error < best) {
      std::copy_n(trial, kCount, codes);
      best = error, scale = this_scale, min = this_min;
    }
  }
  return {scale, -min};
}

// Scale and minimum of eight groups, six bits each in twelve bytes.
void pack_six_bits(const Byte* scales, const Byte* leasts, Byte* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = byte(scales[i] | scales[i + 4] >> 4 << 6);
    out[i + 4] = byte(leasts[i] | leasts[i + 4] >> 4 << 6);
    out[i + 8] = byte((scales[i + 4] & 15) | (leasts[i + 4] & 15) << 4);
  }
}

// What Q4_K and Q5_K have in common: eight groups of 32, their scales and minima in six bits. Leaves the codes of all.
void affine_groups(const float* x, const AffineSearch& search, Byte* head, Byte* codes) {
  AffineFit fits[8];
  float scale_max = 0, least_max = 0;
  for (int group = 0; group < 8; ++group) {
    const float* values = x + 32 * group;
    float squares = 0, weights[32];
    for (int i = 0; i < 32; ++i) squares += values[i] * values[i];
    const float mean = std::sqrt(squares / 32);
    for (int i = 0; i < 32; ++i) weights[i] = mean + std::fabs(values[i]);
    fits[group] = fit_affine(values, weights, search, codes + 32 * group);
    scale_max = std::max(scale_max, fits[group].scale);
    least_max = std::max(least_max, fits[group].least);
  }
  const float per_scale = scale_max > 0 ? 63 / scale_max : 0.0f, per_least = least_max > 0 ? 63 / least_max : 0.0f;
  Byte scales[8], leasts[8];
  for (int group = 0; group < 8; ++group) {
    scales[group] = std::min(Byte{63}, byte(nearest(per_scale * fits[group].scale)));
    leasts[group] = std::min(Byte{63}, byte(nearest(per_least * fits[group].least)));
  }
  const float scale = put_half(scale_max / 63, head), least = put_half(least_max / 63, head + 2);
  pack_six_bits(scales, leasts, head + 4);
  for (int group = 0; group < 8; ++group) {
    const float d = scale * number(scales[group]), m = least * number(leasts[group]);
    if (d == 0) continue;
    for (int i = 32 * group; i < 32 * group + 32; ++i)
      codes[i] = byte(std::clamp(nearest((x[i] + m) / d), 0, search.codes - 1));
  }
}

void q4_k(const float* x, Byte* b) {
  Byte codes[256];
  affine_groups(x, {.codes = 16, .first = -1, .delta = 0.1f, .steps = 20}, b, codes);
  for (int i = 0; i < 4; ++i) pack_nibbles(codes + 64 * i, 32, b + 16 + 32 * i);
}
void q5_k(const float* x, Byte* b) {
  Byte codes[256];
  affine_groups(x, {.codes = 32, .first = -0.5f, .delta = 0.1f, .steps = 15}, b, codes);
  for (int i = 0; i < 32; ++i) {
    int high = 0;
    for (int group = 0; group < 8; ++group) high |= (codes[32 * group + i] >> 4) << group;
    b[16 + i] = byte(high);
  }
  for (int i = 0; i < 4; ++i) pack_nibbles(codes + 64 * i, 32, b + 48 + 32 * i);
}

// The scale of 16 values with codes of six bits around 32, of 19 tried; errors weigh x^2.
float fit_symmetric(const float* x, Byte* codes) {
  constexpr int kCount = 16, kMiddle = 32, kTries = 9;
  const float max = peak({x, kCount});
  std::fill_n(codes, kCount, Byte{0});
  if (std::fabs(max) < kGroupSmallest) return 0;
  float sum_xl = 0, sum_l2 = 0;
  const auto code_of = [&](float inverse_scale, float value) {
    return std::clamp(nearest(inverse_scale * value), -kMiddle, kMiddle - 1);
  };
  const auto fit = [&](float inverse_scale) {
    sum_xl = 0, sum_l2 = 0;
    for (int i = 0; i < kCount; ++i) {
      const float l = number(code_of(inverse_scale, x[i])), w = x[i] * x[i];
      sum_xl += w * x[i] * l;
      sum_l2 += w * l * l;
    }
  };
  const auto keep = [&](float inverse_scale) {
    for (int i = 0; i < kCount; ++i) codes[i] = byte(kMiddle + code_of(inverse_scale, x[i]));
  };
  fit(number(-kMiddle) / max);
  keep(number(-kMiddle) / max);
  float scale = sum_l2 != 0 ? sum_xl / sum_l2 : 0.0f, best = scale * sum_xl;
  for (int i = -kTries; i <= kTries; ++i) {
    if (i == 0) continue;
    const float inverse_scale = -(number(kMiddle) + 0.1f * number(i)) / max;
    fit(inverse_scale);
    if (sum_l2 > 0 && sum_xl * sum_xl > best * sum_l2) {
      keep(inverse_scale);
      scale = sum_xl / sum_l2;
      best = scale * sum_xl;
    }
  }
  return scale;
}

void q6_k(const float* x, Byte* b) {
  Byte codes[256];
  float scales[16];
  for (int group = 0; group < 16; ++group) scales[group] = fit_symmetric(x + 16 * group, codes + 16 * group);
  const float max = peak(scales);
  if (std::fabs(max) < kGroupSmallest) return static_cast<void>(std::memset(b, 0, 210));
  const float per_scale = -128 / max, d = put_half(1 / per_scale, b + 208);
  for (int group = 0; group < 16; ++group) {
    const int scale = std::min(127, nearest(per_scale * scales[group]));
    b[192 + group] = byte(scale);
    const float step = d * number(scale);
    if (step == 0) continue;
    for (int i = 16 * group; i < 16 * group + 16; ++i) codes[i] = byte(std::clamp(nearest(x[i] / step), -32, 31) + 32);
  }
  for (int half = 0; half < 2; ++half) {
    const Byte* from = codes + 128 * half;
    pack_nibbles(from, 64, b + 64 * half);
    for (int i = 0; i < 32; ++i)
      b[128 + 32 * half + i] =
          byte(from[i] >> 4 | from[i + 32] >> 4 << 2 | from[i + 64] >> 4 << 4 | from[i + 96] >> 4 << 6);
  }
}

using Encode = void(const float* values, Byte* block);
Encode* encoder(GgmlType type) {
  struct Row {
    GgmlType type;
    Encode* encode;
  };
  using T = GgmlType;
  static constexpr Row kRows[] = {{T::f32, &f32},     {T::f16, &f16},    {T::bf16, &bf16}, {T::q8_0, &q8_0},
                                  {T::q4_0, &q4_0},   {T::q4_1, &q4_1},  {T::q5_0, &q5_0}, {T::q5_1, &q5_1},
                                  {T::q4_k, &q4_k},   {T::q5_k, &q5_k},  {T::q6_k, &q6_k}, {T::iq4_nl, &iq4_nl},
                                  {T::mxfp4, &mxfp4}, {T::nvfp4, &nvfp4}};
  for (const Row& row : kRows) {
    if (row.type == type) return row.encode;
  }
  return nullptr;
}

}  // namespace

bool encodes(GgmlType type) { return encoder(type) != nullptr; }

float largest_encoded(GgmlType type) {
  const bool wide = type == GgmlType::f32 || type == GgmlType::bf16 || type == GgmlType::mxfp4;
  if (type == GgmlType::nvfp4) return 448 * 6;  // the largest scale times the largest code
  return wide ? std::numeric_limits<float>::max() : 65504;
}

void encode_ggml(GgmlType type, std::span<const float> values, std::byte* blocks) {
  Encode* encode = encoder(type);
  const GgmlTypeRow* row = ggml_type(static_cast<uint32_t>(type));
  CHECK(encode && row && std::ssize(values) % row->values == 0, "type {}, {} values", static_cast<uint32_t>(type),
        values.size());
  auto* block = reinterpret_cast<Byte*>(blocks);
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(row->values), block += row->bytes)
    encode(values.data() + i, block);
}

}  // namespace braid
