#include "codec/ggml_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/codes.h"
#include "codec/ggml_iq_blocks.h"
#include "core/dtype.h"
#include "sys/check.h"

namespace braid {
namespace {

using Byte = uint8_t;

float half(const Byte* p) {
  F16 v;
  std::memcpy(&v, p, sizeof(v));
  return to_float(v);
}
uint32_t word(const Byte* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
uint32_t bit(uint32_t bits, int i) { return bits >> i & 1; }
float number(int v) { return static_cast<float>(v); }

void f32(const Byte* b, float* y) { std::memcpy(y, b, 4); }
void f16(const Byte* b, float* y) { *y = half(b); }
void bf16(const Byte* b, float* y) {
  Bf16 v;
  std::memcpy(&v, b, sizeof(v));
  *y = to_float(v);
}

void q8_0(const Byte* b, float* y) {
  const float d = half(b);
  for (int i = 0; i < 32; ++i) y[i] = d * number(static_cast<int8_t>(b[2 + i]));
}

// Values of 4 bits: the low nibbles of 16 bytes, then the high ones.
template <class Value>
void nibbles(const Byte* codes, float* y, Value&& value) {
  for (int i = 0; i < 16; ++i) {
    y[i] = value(i, codes[i] & 15);
    y[i + 16] = value(i + 16, codes[i] >> 4);
  }
}

void q4_0(const Byte* b, float* y) {
  const float d = half(b);
  nibbles(b + 2, y, [&](int, int code) { return d * number(code - 8); });
}
void q4_1(const Byte* b, float* y) {
  const float d = half(b), m = half(b + 2);
  nibbles(b + 4, y, [&](int, int code) { return d * number(code) + m; });
}
void q5_0(const Byte* b, float* y) {
  const float d = half(b);
  const uint32_t high = word(b + 2);
  nibbles(b + 6, y, [&](int i, int code) { return d * number((code | static_cast<int>(bit(high, i)) << 4) - 16); });
}
void q5_1(const Byte* b, float* y) {
  const float d = half(b), m = half(b + 2);
  const uint32_t high = word(b + 4);
  nibbles(b + 8, y, [&](int i, int code) { return d * number(code | static_cast<int>(bit(high, i)) << 4) + m; });
}

constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
void iq4_nl(const Byte* b, float* y) {
  const float d = half(b);
  nibbles(b + 2, y, [&](int, int code) { return d * number(static_cast<int>(kIq4[code])); });
}
void iq4_xs(const Byte* b, float* y) {
  const float d = half(b);
  const uint32_t high = word(b) >> 16;  // two more bits of each of eight scales
  for (int i = 0; i < 8; ++i) {
    const uint32_t scale = (b[4 + i / 2] >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4;
    const float step = d * number(static_cast<int>(scale) - 32);
    nibbles(b + 8 + 16 * i, y + 32 * i, [&](int, int code) { return step * number(static_cast<int>(kIq4[code])); });
  }
}

// Twice E2M1, so that its values are integers; the scales are halved.
constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
void mxfp4(const Byte* b, float* y) {
  const uint32_t e = b[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  nibbles(b + 1, y, [&](int, int code) { return d * number(static_cast<int>(kE2m1Doubled[code])); });
}
// Four blocks of 16 with an unsigned E4M3 scale each; a byte holds values 8 apart.
float ue4m3_half(Byte bits) {
  if (bits == 0 || bits == 0x7f) return 0;
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float value =
      exponent == 0 ? std::ldexp(number(fraction), -9) : std::ldexp(1 + number(fraction) / 8, exponent - 7);
  return value * 0.5f;
}
void nvfp4(const Byte* b, float* y) {
  for (int block = 0; block < 4; ++block) {
    const float d = ue4m3_half(b[block]);
    const Byte* codes = b + 4 + 8 * block;
    for (int i = 0; i < 8; ++i) {
      y[16 * block + i] = d * number(static_cast<int>(kE2m1Doubled[codes[i] & 15]));
      y[16 * block + i + 8] = d * number(static_cast<int>(kE2m1Doubled[codes[i] >> 4]));
    }
  }
}

void q2_k(const Byte* b, float* y) {
  const float d = half(b + 80), m = half(b + 82);
  for (int i = 0; i < 16; ++i) {  // 16 values with a scale and a minimum of four bits each
    const float step = d * number(b[i] & 15), least = m * number(b[i] >> 4);
    const Byte* codes = b + 16 + i / 8 * 32 + i % 2 * 16;
    for (int j = 0; j < 16; ++j) y[16 * i + j] = step * number(codes[j] >> i % 8 / 2 * 2 & 3) - least;
  }
}

void q3_k(const Byte* b, float* y) {
  const float d = half(b + 108);
  const Byte* scales = b + 96;
  for (int i = 0; i < 16; ++i) {
    const int low = scales[i % 8] >> i / 8 * 4 & 15, high = scales[8 + i % 4] >> i / 4 * 2 & 3;
    const float step = d * number((low | high << 4) - 32);
    const Byte *codes = b + 32 + i / 8 * 32 + i % 2 * 16, *mask = b + i % 2 * 16;
    for (int j = 0; j < 16; ++j) {
      const int code = codes[j] >> i % 8 / 2 * 2 & 3, above = mask[j] >> i / 2 & 1;
      y[16 * i + j] = step * number(code - (above ? 0 : 4));
    }
  }
}

// Scale and minimum i of eight, six bits each in twelve bytes.
struct SixBits {
  int scale, least;
};
SixBits six_bits(const Byte* p, int i) {
  if (i < 4) return {p[i] & 63, p[i + 4] & 63};
  return {(p[i + 4] & 15) | p[i - 4] >> 6 << 4, p[i + 4] >> 4 | p[i] >> 6 << 4};
}
void q4_k(const Byte* b, float* y) {
  const float d = half(b), m = half(b + 2);
  for (int i = 0; i < 8; ++i) {
    const SixBits s = six_bits(b + 4, i);
    const float step = d * number(s.scale), least = m * number(s.least);
    const Byte* codes = b + 16 + i / 2 * 32;
    for (int j = 0; j < 32; ++j) y[32 * i + j] = step * number(codes[j] >> i % 2 * 4 & 15) - least;
  }
}
void q5_k(const Byte* b, float* y) {
  const float d = half(b), m = half(b + 2);
  for (int i = 0; i < 8; ++i) {
    const SixBits s = six_bits(b + 4, i);
    const float step = d * number(s.scale), least = m * number(s.least);
    const Byte *codes = b + 48 + i / 2 * 32, *high = b + 16;
    for (int j = 0; j < 32; ++j)
      y[32 * i + j] = step * number((codes[j] >> i % 2 * 4 & 15) | (high[j] >> i & 1) << 4) - least;
  }
}
void q6_k(const Byte* b, float* y) {
  const float d = half(b + 208);
  for (int i = 0; i < 8; ++i) {  // 32 values with two scales
    const Byte *codes = b + i / 4 * 64 + i % 2 * 32, *high = b + 128 + i / 4 * 32;
    const Byte* scales = b + 192 + 2 * i;
    for (int j = 0; j < 32; ++j) {
      const float step = d * number(static_cast<int>(static_cast<int8_t>(scales[j / 16])));
      const int code = (codes[j] >> i % 4 / 2 * 4 & 15) | (high[j] >> i % 4 * 2 & 3) << 4;
      y[32 * i + j] = step * number(code - 32);
    }
  }
}

// Five ternary digits per byte, the first the most significant of a fraction of 256.
int digit(Byte byte, int i) {
  static constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  return (static_cast<Byte>(byte * kPowers[i]) * 3) >> 8;
}
void tq1_0(const Byte* b, float* y) {
  const float d = half(b + 52);
  const auto part = [&](const Byte* bytes, int count, int digits) {
    for (int i = 0; i < digits; ++i) {
      for (int j = 0; j < count; ++j) *y++ = d * number(digit(bytes[j], i) - 1);
    }
  };
  part(b, 32, 5);
  part(b + 32, 16, 5);
  part(b + 48, 4, 4);
}
void tq2_0(const Byte* b, float* y) {
  const float d = half(b + 64);
  for (int i = 0; i < 256; ++i) {
    const int code = b[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    y[i] = d * number(code - 1);
  }
}

using Decode = void(const Byte* block, float* values);
Decode* decoder(GgmlType type) {
  struct Row {
    GgmlType type;
    Decode* decode;
  };
  using T = GgmlType;
  static constexpr Row kRows[] = {{T::f32, &f32},
                                  {T::f16, &f16},
                                  {T::bf16, &bf16},
                                  {T::q8_0, &q8_0},
                                  {T::q4_0, &q4_0},
                                  {T::q4_1, &q4_1},
                                  {T::q5_0, &q5_0},
                                  {T::q5_1, &q5_1},
                                  {T::q2_k, &q2_k},
                                  {T::q3_k, &q3_k},
                                  {T::q4_k, &q4_k},
                                  {T::q5_k, &q5_k},
                                  {T::q6_k, &q6_k},
                                  {T::iq4_nl, &iq4_nl},
                                  {T::iq4_xs, &iq4_xs},
                                  {T::mxfp4, &mxfp4},
                                  {T::nvfp4, &nvfp4},
                                  {T::tq1_0, &tq1_0},
                                  {T::tq2_0, &tq2_0},
                                  {T::iq1_s, &ggml::iq1_s},
                                  {T::iq1_m, &ggml::iq1_m},
                                  {T::iq2_xxs, &ggml::iq2_xxs},
                                  {T::iq2_xs, &ggml::iq2_xs},
                                  {T::iq2_s, &ggml::iq2_s},
                                  {T::iq3_xxs, &ggml::iq3_xxs},
                                  {T::iq3_s, &ggml::iq3_s}};
  for (const Row& row : kRows) {
    if (row.type == type) return row.decode;
  }
  return nullptr;
}

}  // namespace

void decode_ggml(GgmlType type, const std::byte* blocks, std::span<float> values) {
  Decode* decode = decoder(type);
  const GgmlTypeRow* row = ggml_type(static_cast<uint32_t>(type));
  CHECK(decode && row && std::ssize(values) % row->values == 0, "type {}, {} values", static_cast<uint32_t>(type),
        values.size());
  const auto* block = reinterpret_cast<const Byte*>(blocks);
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(row->values), block += row->bytes)
    decode(block, values.data() + i);
}

namespace {

inline void put(float v, float& out) { out = v; }
inline void put(float v, Bf16& out) { out = to_bf16(v); }

// Whole blocks at a time, through a buffer if they are cut or the output is not FP32.
template <class Num>
void decode_blocks(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values) {
  constexpr int64_t kBuffer = 512;  // values: two of the longest blocks
  alignas(64) float buffer[kBuffer];
  const int64_t block = w.spec.block, bytes = w.codes.dim(1) / (w.cols / block);
  if (codes::decode(w.spec.ggml, w.codes.as<uint8_t>(r), begin, n, values)) return;
  const auto* row = reinterpret_cast<const std::byte*>(w.codes.as<uint8_t>(r));
  for (int64_t i = 0; i < n;) {
    const int64_t first = (begin + i) / block, skip = (begin + i) % block;
    const int64_t blocks = std::min(kBuffer / block, (skip + n - i + block - 1) / block);
    decode_ggml(w.spec.ggml, row + first * bytes, {buffer, static_cast<size_t>(blocks * block)});
    const int64_t count = std::min(n - i, blocks * block - skip);
    for (int64_t j = 0; j < count; ++j) put(buffer[skip + j], values[i + j]);
    i += count;
  }
}

}  // namespace

void decode_ggml_row(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values) {
  decode_blocks(w, r, begin, n, values);
}
void decode_ggml_row(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values) {
  decode_blocks(w, r, begin, n, values);
}

}  // namespace braid
