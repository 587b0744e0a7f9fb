// Weights in codes of 4 to 8 bits, as AVX2 reads them: 32 values of a row at a time.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#pragma once
#include <immintrin.h>

#include <cstring>

#include "codec/codes.h"

#define BRAID_DOT __attribute__((target("avx2,fma,f16c")))
#define BRAID_READ __attribute__((target("avx2,fma,f16c"), always_inline))

namespace braid::codes {
namespace {

constexpr int64_t kHalf = 32;  // values of half a step

// 32 values: codes, their scales by groups of four, and the minimum that is added if blocks have one.
struct Part {
  __m256i codes;
  __m256 scale, min;
};

BRAID_DOT inline float half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
BRAID_DOT inline __m256 halves(const uint8_t* p) {  // one, eight times
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(bits)));
}
BRAID_DOT inline __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
BRAID_DOT inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
BRAID_DOT inline __m256i join(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
BRAID_DOT inline __m256i fours(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
// 16 bytes: the low nibbles are 16 values, the high nibbles the next 16.
BRAID_DOT inline __m256i nibbles(const uint8_t* p) {
  const __m256i twice = _mm256_broadcastsi128_si256(load16(p));
  return fours(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)));
}
BRAID_DOT inline __m256i look_up(const uint8_t* table, __m256i codes) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(table)), codes);
}
// Sixteen where bit i of a word is set.
BRAID_DOT inline __m256i fifths(const uint8_t* p) {
  int bits;
  std::memcpy(&bits, p, sizeof(bits));
  const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), which);
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit), _mm256_set1_epi8(16));
}

// Types: bytes and values of a block, values that share a scale, the offset of codes from their values, or 0 if blocks
// have minima, and the largest code. read(row, i) gives values [32 i, 32 i + 32). Where the scale of a block is a half,
// kScaleAt is its offset, and kMinAt that of a minimum.
//
// Where two codes share a byte, bytes(row, i) gives the 16 bytes of those values and codes(nibbles) looks them up. The
// low and the high nibbles of four bytes are four codes each; kFours[0][d] and kFours[1][d] say which of eight.
constexpr int kHalvesFours[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
struct Q8_0 {
  static constexpr int64_t kBytes = 34, kValues = 32, kGrain = 32;
  static constexpr int kZero = 128, kTop = 255;
  static constexpr int kScaleAt = 0;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {_mm256_xor_si256(load32(p + 2), _mm256_set1_epi8(static_cast<char>(0x80))), halves(p), _mm256_setzero_ps()};
  }
};
struct Q4_0 {
  static constexpr int64_t kBytes = 18, kValues = 32, kGrain = 32;
  static constexpr int kZero = 8, kTop = 15;
  static constexpr int kScaleAt = 0;
  static constexpr auto& kFours = kHalvesFours;
  BRAID_READ static __m128i bytes(const Row& row, int64_t part) { return load16(row.codes + part * kBytes + 2); }
  BRAID_READ static __m256i codes(__m256i nibbles) { return nibbles; }
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {nibbles(p + 2), halves(p), _mm256_setzero_ps()};
  }
};
struct Q4_1 {
  static constexpr int64_t kBytes = 20, kValues = 32, kGrain = 32;
  static constexpr int kZero = 0, kTop = 15;
  static constexpr int kScaleAt = 0, kMinAt = 2;
  static constexpr auto& kFours = kHalvesFours;
  BRAID_READ static __m128i bytes(const Row& row, int64_t part) { return load16(row.codes + part * kBytes + 4); }
  BRAID_READ static __m256i codes(__m256i nibbles) { return nibbles; }
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {nibbles(p + 4), halves(p), halves(p + 2)};
  }
};
struct Q5_0 {
  static constexpr int64_t kBytes = 22, kValues = 32, kGrain = 32;
  static constexpr int kZero = 16, kTop = 31;
  static constexpr int kScaleAt = 0;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {_mm256_or_si256(nibbles(p + 6), fifths(p + 2)), halves(p), _mm256_setzero_ps()};
  }
};
struct Q5_1 {
  static constexpr int64_t kBytes = 24, kValues = 32, kGrain = 32;
  static constexpr int kZero = 0, kTop = 31;
  static constexpr int kScaleAt = 0, kMinAt = 2;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {_mm256_or_si256(nibbles(p + 8), fifths(p + 4)), halves(p), halves(p + 2)};
  }
};
struct Iq4Nl {
  static constexpr int64_t kBytes = 18, kValues = 32, kGrain = 32;
  static constexpr int kZero = 128, kTop = 241;
  // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113, and 128
  alignas(16) static constexpr uint8_t kTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                     129, 141, 153, 166, 181, 197, 217, 241};
  static constexpr int kScaleAt = 0;
  static constexpr auto& kFours = kHalvesFours;
  BRAID_READ static __m128i bytes(const Row& row, int64_t part) { return load16(row.codes + part * kBytes + 2); }
  BRAID_READ static __m256i codes(__m256i nibbles) { return look_up(kTable, nibbles); }
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {look_up(kTable, nibbles(p + 2)), halves(p), _mm256_setzero_ps()};
  }
};
struct Mxfp4 {
  static constexpr int64_t kBytes = 17, kValues = 32, kGrain = 32;
  static constexpr int kZero = 12, kTop = 24;
  alignas(16) static constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  // Half of 2^(e - 127): codes are doubled.
  BRAID_DOT static float factor(uint32_t e) {
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float v;
    std::memcpy(&v, &bits, sizeof(v));
    return v;
  }
  static constexpr auto& kFours = kHalvesFours;
  BRAID_READ static __m128i bytes(const Row& row, int64_t part) { return load16(row.codes + part * kBytes + 1); }
  BRAID_READ static __m256i codes(__m256i nibbles) { return look_up(kTable, nibbles); }
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {look_up(kTable, nibbles(p + 1)), _mm256_set1_ps(factor(p[0])), _mm256_setzero_ps()};
  }
};

// Eight scales or minima of a block of 256, times `factor`.
BRAID_DOT inline __m256 eight_of(uint64_t bytes, float factor) {
  const __m256i eight = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(eight), _mm256_set1_ps(factor));
}
BRAID_DOT inline __m256 all_of(__m256 eight, int64_t i) {
  return _mm256_permutevar8x32_ps(eight, _mm256_set1_epi32(static_cast<int>(i)));
}
// Scales and minima of 6 bits: those of four parts are in the low bits of four bytes each, those of the other four in
// nibbles of four bytes and, with two bits, above the first.
struct SixBits {
  __m256 scales, minima;
  BRAID_READ explicit SixBits(const uint8_t* block) {
    uint32_t a, b, c;
    std::memcpy(&a, block + 4, 4);
    std::memcpy(&b, block + 8, 4);
    std::memcpy(&c, block + 12, 4);
    constexpr uint32_t kSix = 0x3f3f3f3f, kFour = 0x0f0f0f0f, kTwo = 0x03030303;
    const uint32_t upper = (c & kFour) | (a >> 6 & kTwo) << 4, upper_min = (c >> 4 & kFour) | (b >> 6 & kTwo) << 4;
    scales = eight_of((a & kSix) | static_cast<uint64_t>(upper) << 32, half(block));
    minima = eight_of((b & kSix) | static_cast<uint64_t>(upper_min) << 32, -half(block + 2));
  }
  BRAID_READ Part part(__m256i codes, int64_t i) const { return {codes, all_of(scales, i), all_of(minima, i)}; }
};
BRAID_DOT inline __m256i half_bytes(const uint8_t* p, int64_t upper) {
  return fours(_mm256_srl_epi64(load32(p), _mm_cvtsi64_si128(4 * upper)));
}
struct Q4K {
  static constexpr int64_t kBytes = 144, kValues = 256, kGrain = 32;
  static constexpr int kZero = 0, kTop = 15;
  using Factors = SixBits;
  BRAID_READ static Part read(const uint8_t* block, const Factors& factors, int64_t i) {
    return factors.part(half_bytes(block + 16 + i / 2 * 32, i % 2), i);
  }
};
struct Q5K {
  static constexpr int64_t kBytes = 176, kValues = 256, kGrain = 32;
  static constexpr int kZero = 0, kTop = 31;
  using Factors = SixBits;
  BRAID_READ static Part read(const uint8_t* block, const Factors& factors, int64_t i) {
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << i));
    const __m256i fifth = _mm256_cmpeq_epi8(_mm256_and_si256(load32(block + 16), bit), bit);
    const __m256i codes = half_bytes(block + 48 + i / 2 * 32, i % 2);
    return factors.part(_mm256_or_si256(codes, _mm256_and_si256(fifth, _mm256_set1_epi8(16))), i);
  }
};
struct Q6K {
  static constexpr int64_t kBytes = 210, kValues = 256, kGrain = 16;
  static constexpr int kZero = 32, kTop = 63;
  struct Factors {
    __m256 scales[2];
    BRAID_READ explicit Factors(const uint8_t* block) {
      const __m128i bytes = load16(block + 192);
      const __m256 d = halves(block + 208);
      scales[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d);
      scales[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))), d);
    }
  };
  BRAID_READ static Part read(const uint8_t* block, const Factors& factors, int64_t i) {
    const int64_t side = i / 4, quarter = i % 4;
    const __m256i low = half_bytes(block + side * 64 + quarter % 2 * 32, quarter / 2);
    const __m256i twos = _mm256_srl_epi64(load32(block + 128 + side * 32), _mm_cvtsi64_si128(2 * quarter));
    const __m256i high = _mm256_slli_epi16(_mm256_and_si256(twos, _mm256_set1_epi8(3)), 4);
    const __m256i first = _mm256_set1_epi32(static_cast<int>(2 * quarter));
    const __m256i lanes = _mm256_add_epi32(first, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    return {_mm256_or_si256(low, high), _mm256_permutevar8x32_ps(factors.scales[side], lanes), _mm256_setzero_ps()};
  }
};

// Values of E4M3 by their bits, times 2^-8; NaN is 480.
struct E4m3Table {
  float values[256];
  constexpr E4m3Table() : values() {
    for (int bits = 0; bits < 256; ++bits) {
      const int exponent = bits >> 3 & 15, steps = exponent == 0 ? bits & 7 : 8 + (bits & 7);
      const float size = static_cast<float>(steps << (exponent > 0 ? exponent - 1 : 0)) / (1 << 17);
      values[bits] = bits < 128 ? size : -size;
    }
  }
};
constexpr E4m3Table kE4m3;
// Those of the first and of the last 16 of 32 values.
BRAID_DOT inline __m256 two_scales(uint8_t first, uint8_t second) {
  return _mm256_blend_ps(_mm256_broadcast_ss(kE4m3.values + first), _mm256_broadcast_ss(kE4m3.values + second), 0xf0);
}
// Of a GGUF file: 64 values, four scales; eight bytes have the low halves of eight values, then of the next eight.
struct Nvfp4Block {
  static constexpr int64_t kBytes = 36, kValues = 64, kGrain = 16;
  static constexpr int kZero = 12, kTop = 24;
  static uint8_t number(uint8_t bits) { return bits == 0x7f ? 0 : bits & 0x7f; }  // NaN is 0
  static constexpr int kFours[2][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
  BRAID_READ static __m128i bytes(const Row& row, int64_t part) {
    return load16(row.codes + part / 2 * kBytes + 4 + part % 2 * 16);
  }
  BRAID_READ static __m256i codes(__m256i nibbles) { return look_up(Mxfp4::kTable, nibbles); }
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* block = row.codes + part / 2 * kBytes;
    const int64_t side = part % 2;
    const __m128i bytes = load16(block + 4 + 16 * side), high = _mm_srli_epi16(bytes, 4);
    const __m256i codes = fours(join(_mm_unpacklo_epi64(bytes, high), _mm_unpackhi_epi64(bytes, high)));
    return {look_up(Mxfp4::kTable, codes), two_scales(number(block[2 * side]), number(block[2 * side + 1])),
            _mm256_setzero_ps()};
  }
};
// Of a folder: rows of codes, two neighbours in a byte, and rows of scales. A row may end after 16 values.
struct Nvfp4Row {
  static constexpr int64_t kBytes = 8, kValues = 16, kGrain = 16;
  static constexpr int kZero = 12, kTop = 24;
  static constexpr int kFours[2][4] = {{0, 2, 4, 6}, {1, 3, 5, 7}};  // Codes::pairs
  BRAID_READ static bool whole(const Row& row, int64_t part) { return row.depth - part * kHalf >= kHalf; }
  BRAID_READ static __m128i bytes(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * 16;
    return whole(row, part) ? load16(p) : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  BRAID_READ static __m256i codes(__m256i nibbles) { return look_up(Mxfp4::kTable, nibbles); }
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* scales = row.scales + part * 2;
    const __m128i low = bytes(row, part), high = _mm_srli_epi16(low, 4);
    return {codes(fours(join(_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)))),
            two_scales(scales[0], scales[whole(row, part) ? 1 : 0]), _mm256_setzero_ps()};
  }
};

// Values [32 i, 32 i + 32) of a row. Types with blocks of 256 values read their factors once for eight parts.
template <class Type>
concept OfFactors = requires {
  typename Type::Factors;
};
template <class Type>
BRAID_READ inline Part read(const Row& row, int64_t i) {
  if constexpr (OfFactors<Type>) {
    const uint8_t* block = row.codes + i / 8 * Type::kBytes;
    return Type::read(block, typename Type::Factors(block), i % 8);
  } else {
    return Type::read(row, i);
  }
}

}  // namespace
}  // namespace braid::codes
