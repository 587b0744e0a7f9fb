// The dots of codes_dot.h for AVX2, with AVX-VNNI if the CPU has it: bit-identical to the rows for AVX-512, whose 16
// sums are two vectors here, one for each half of a step. Without VNNI codes are widened to 16 bits, and x is not split
// into bytes.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "math/codes_a8_kernel.h"
#include "math/codes_dot.h"
#include "math/codes_pack_avx2-inl.h"

#define BRAID_DOT __attribute__((target("avx2,fma,f16c")))
#define BRAID_READ __attribute__((target("avx2,fma,f16c"), always_inline))

namespace braid::codes {
namespace {

constexpr int64_t kAhead = 2048, kHalf = 32;  // bytes of codes prefetched ahead; values of half a step
constexpr float kLargest = 32639;             // 127 * 256 + 127

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
// have minima, and the largest code. read(row, i) gives values [32 i, 32 i + 32).
struct Q8_0 {
  static constexpr int64_t kBytes = 34, kValues = 32, kGrain = 32;
  static constexpr int kZero = 128, kTop = 255;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {_mm256_xor_si256(load32(p + 2), _mm256_set1_epi8(static_cast<char>(0x80))), halves(p), _mm256_setzero_ps()};
  }
};
struct Q4_0 {
  static constexpr int64_t kBytes = 18, kValues = 32, kGrain = 32;
  static constexpr int kZero = 8, kTop = 15;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {nibbles(p + 2), halves(p), _mm256_setzero_ps()};
  }
};
struct Q4_1 {
  static constexpr int64_t kBytes = 20, kValues = 32, kGrain = 32;
  static constexpr int kZero = 0, kTop = 15;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {nibbles(p + 4), halves(p), halves(p + 2)};
  }
};
struct Q5_0 {
  static constexpr int64_t kBytes = 22, kValues = 32, kGrain = 32;
  static constexpr int kZero = 16, kTop = 31;
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t* p = row.codes + part * kBytes;
    return {_mm256_or_si256(nibbles(p + 6), fifths(p + 2)), halves(p), _mm256_setzero_ps()};
  }
};
struct Q5_1 {
  static constexpr int64_t kBytes = 24, kValues = 32, kGrain = 32;
  static constexpr int kZero = 0, kTop = 31;
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
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t *p = row.codes + part * 16, *scales = row.scales + part * 2;
    const bool whole = row.depth - part * kHalf >= kHalf;
    const __m128i bytes = whole ? load16(p) : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i high = _mm_srli_epi16(bytes, 4);
    const __m256i codes = fours(join(_mm_unpacklo_epi8(bytes, high), _mm_unpackhi_epi8(bytes, high)));
    return {look_up(Mxfp4::kTable, codes), two_scales(scales[0], scales[whole ? 1 : 0]), _mm256_setzero_ps()};
  }
};

// Sums over four codes each of code times q; x as pack_row_avx2 or pack_row_avx2_words left it, of a half step.
struct Vnni {
  __m256i codes;
  BRAID_READ explicit Vnni(__m256i bytes) : codes(bytes) {}
  BRAID_READ static __m256i dot(__m256i acc, __m256i codes, const std::byte* x) {
    const __m256i v = load32(x);
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(v));
    return acc;
  }
  BRAID_READ __m256i times(const std::byte* step, int side, __m256i start) const {
    const __m256i high = dot(_mm256_setzero_si256(), codes, step + kHalf * side);
    return _mm256_add_epi32(dot(start, codes, step + kStep + kHalf * side), _mm256_slli_epi32(high, 8));
  }
};
struct Words {
  __m256i even, odd;
  BRAID_READ explicit Words(__m256i bytes)
      : Words(_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8)) {}
  BRAID_READ Words(__m256i evens, __m256i odds) : even(evens), odd(odds) {}
  BRAID_READ __m256i times(const std::byte* step, int side, __m256i start) const {
    const __m256i first = _mm256_madd_epi16(even, load32(step + kStep * side));
    const __m256i second = _mm256_madd_epi16(odd, load32(step + kStep * side + kHalf));
    return _mm256_add_epi32(_mm256_add_epi32(first, start), second);
  }
};

// The same for Words: codes become signed values in the upper bytes of words, so that no sum of x is needed.
struct Nvfp4Words {
  static constexpr int64_t kBytes = 8, kValues = 16;
  static constexpr int kZero = 12;
  // 2 e2m1. The lower bytes of words look up code 0, or nothing: 0.
  alignas(16) static constexpr int8_t kTable[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t *p = row.codes + part * 16, *scales = row.scales + part * 2;
    const bool whole = row.depth - part * kHalf >= kHalf;
    const __m128i bytes = whole ? load16(p) : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m256i upper = _mm256_setr_epi8(-1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7,  //
                                           -1, 8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15);
    return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), upper),
            two_scales(scales[0], scales[whole ? 1 : 0]), _mm256_setzero_ps()};
  }
  BRAID_READ static Words words(__m256i codes) {
    const __m256i table = _mm256_broadcastsi128_si256(load16(reinterpret_cast<const uint8_t*>(kTable)));
    return {_mm256_shuffle_epi8(table, _mm256_and_si256(codes, _mm256_set1_epi16(0x0f00))),
            _mm256_shuffle_epi8(table, _mm256_srli_epi16(codes, 4))};
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

// In the order of _mm512_reduce_add_ps.
BRAID_DOT inline float fold(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(high, low);
  const __m128 four = _mm_add_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <class Type, class Dots, int kRows>
BRAID_DOT void rows_of(const Row& row, float* out) {
  constexpr bool kMin = Type::kZero == 0, kSigned = std::is_same_v<Type, Nvfp4Words>;
  __m256 sums[kRows][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_ps();
  int64_t offset = 0;  // of the step in x
  const auto add = [&](const Part& part, int side) BRAID_READ {
    const Dots codes = [&]() BRAID_READ {
      if constexpr (kSigned) return Type::words(part.codes);
      if constexpr (!kSigned) return Dots(part.codes);
    }();
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const std::byte* x = row.packed[m] + offset;
      const __m256i start = load32(x + 2 * kStep + kHalf * side);
      const __m256i all = codes.times(x, side, kMin || kSigned ? _mm256_setzero_si256() : start);
      sums[m][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), part.scale, sums[m][side]);
      if (kMin) sums[m][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(start), part.min, sums[m][side]);
    }
  };
  const auto fetch = [&](int64_t i) BRAID_READ {
    const uint8_t* at = row.codes + i * kHalf / Type::kValues * Type::kBytes;
    asm volatile("prefetcht0 %0" : : "m"(at[kAhead]));
  };
  const int64_t parts = (row.depth + kHalf - 1) / kHalf, pairs = row.depth / kStep * 2;
  int64_t i = 0;
  if constexpr (OfFactors<Type>) {
    for (const uint8_t* block = row.codes; i < parts; i += 8, block += Type::kBytes) {
      const typename Type::Factors factors(block);
      for (int j = 0; j < 8; j += 2, offset += kStepBytes) {
        asm volatile("prefetcht0 %0" : : "m"(block[j * Type::kBytes / 8 + kAhead]));
        add(Type::read(block, factors, j), 0);
        add(Type::read(block, factors, j + 1), 1);
      }
    }
  } else {
    for (; i < pairs; i += 2, offset += kStepBytes) {
      fetch(i);
      add(Type::read(row, i), 0);
      add(Type::read(row, i + 1), 1);
    }
    if (i < parts) add(Type::read(row, i), 0);
    if (i + 1 < parts) add(Type::read(row, i + 1), 1);
  }
  for (int m = 0; m < kRows; ++m) out[m] = fold(sums[m][0], sums[m][1]) * (kSigned ? 1.0f / 256 : 1.0f);
}

template <class Type, class Dots>
void row_of(const Row& row, int64_t rows, float* sums) {
  constexpr void (*kBy[])(const Row&, float*) = {&rows_of<Type, Dots, 1>, &rows_of<Type, Dots, 2>,
                                                 &rows_of<Type, Dots, 3>, &rows_of<Type, Dots, 4>};
  kBy[rows - 1](row, sums);
}

// Values 8 i to 8 i + 7 of a part in decode_ggml's order of operations.
template <class Type, int kEighth>
BRAID_DOT inline __m256 values_of(const Part& part, __m256i codes, float worth) {
  const __m128i half = kEighth < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
  const __m256i eight = _mm256_cvtepi8_epi32(kEighth % 2 == 0 ? half : _mm_srli_si128(half, 8));
  constexpr int kFirst = 2 * kEighth, kSecond = kFirst + 1;
  const __m256i lanes = _mm256_setr_epi32(kFirst, kFirst, kFirst, kFirst, kSecond, kSecond, kSecond, kSecond);
  const __m256 scale = _mm256_mul_ps(_mm256_permutevar8x32_ps(part.scale, lanes), _mm256_set1_ps(worth));
  const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(eight), scale);
  return Type::kZero == 0 ? _mm256_add_ps(product, _mm256_permutevar8x32_ps(part.min, lanes)) : product;
}

BRAID_DOT inline void store(__m256 first, __m256 second, float* out) {
  _mm256_storeu_ps(out, first);
  _mm256_storeu_ps(out + 8, second);
}
// To nearest, ties to even.
BRAID_DOT inline __m256i rounded(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7fc0), nan);
}
BRAID_DOT inline void store(__m256 first, __m256 second, Bf16* out) {
  const __m256i both = _mm256_packus_epi32(rounded(first), rounded(second));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(both, 0xd8));
}

template <class Type, class Num>
BRAID_DOT inline void decode_part(const Row& row, int64_t k, float worth, Num* out) {
  const Part part = read<Type>(row, k / kHalf);
  const __m256i codes = _mm256_sub_epi8(part.codes, _mm256_set1_epi8(static_cast<char>(Type::kZero)));
  store(values_of<Type, 0>(part, codes, worth), values_of<Type, 1>(part, codes, worth), out);
  store(values_of<Type, 2>(part, codes, worth), values_of<Type, 3>(part, codes, worth), out + 16);
}

template <class Type, class Num>
BRAID_DOT void decode_row(const uint8_t* codes, int64_t begin, int64_t n, Num* values) {
  constexpr float kWorth = std::is_same_v<Type, Nvfp4Block> ? 128 : 1;
  const Row row{.codes = codes, .scales = nullptr, .depth = begin + n, .packed = {}};
  int64_t k = 0;
  for (; k + kHalf <= n; k += kHalf) decode_part<Type>(row, begin + k, kWorth, values + k);
  if (k == n) return;
  Num rest[kHalf];
  decode_part<Type>(row, begin + k, kWorth, rest);
  std::memcpy(values + k, rest, static_cast<size_t>(n - k) * sizeof(rest[0]));
}

// Eight rows of 32 codes: vector q has codes 4 q to 4 q + 3 of each.
BRAID_DOT inline void transpose(__m256i (&r)[8]) {
  __m256i t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// Units of codes_a8_kernel.h; values beyond the depth repeat the part before it.
template <class Type>
BRAID_DOT void columns_of(const Columns& w, int64_t k, int64_t n, std::byte* units) {
  constexpr bool kMin = Type::kZero == 0;
  constexpr int64_t kBlocks = kStep / Type::kGrain, kHalves = kHalf / Type::kGrain;
  for (int64_t at = k; at < k + n; at += kStep, units += a8::unit_bytes(Type::kGrain, kMin)) {
    auto* factors = reinterpret_cast<float*>(units + a8::kUnitCodes);
    for (int64_t i = 0; i < 4; ++i) {  // halves of the rows, halves of the step
      const int64_t first = i / 2 * 8, side = i % 2, from = at + side * kHalf;
      __m256i codes[8];
#pragma GCC unroll 8
      for (int64_t r = 0; r < 8; ++r) {
        const int64_t index = first + r < w.count ? first + r : w.count - 1;
        const Row row{.codes = w.codes + index * w.codes_stride,
                      .scales = w.scales ? w.scales + index * w.scales_stride : nullptr,
                      .depth = w.depth,
                      .packed = {}};
        const Part part = read<Type>(row, (from < w.depth ? from : at) / kHalf);
        codes[r] = part.codes;
        float* scale = factors + side * kHalves * 16 + first + r;
        _mm_store_ss(scale, _mm256_castps256_ps128(part.scale));
        if (kHalves == 2) _mm_store_ss(scale + 16, _mm256_extractf128_ps(part.scale, 1));
        if (kMin) _mm_store_ss(scale + kBlocks * 16, _mm256_castps256_ps128(part.min));
      }
      transpose(codes);
      std::byte* lines = units + side * 512 + first * 4;
#pragma GCC unroll 8
      for (int64_t q = 0; q < 8; ++q) _mm256_storeu_si256(reinterpret_cast<__m256i*>(lines + 64 * q), codes[q]);
    }
  }
}

// Few rows of x by eight rows of w in one go: without units, which cost more to make than two rows save. Lanes of the
// sums are rows of w; bit-identical to strips.
template <class Type, int kRows>
struct Few {
  static constexpr bool kMin = Type::kZero == 0;
  static constexpr int kBlocks = kStep / Type::kGrain;
  // Of four rows of w: those of the first 16 values of a part, then those of the last 16.
  struct Four {
    __m256i dots[kRows];
    __m256 scale, min;
  };

  BRAID_READ static __m256i dot(__m256i codes, __m256i q) {
    const __m256i one = _mm256_set1_epi16(1);
    if (Type::kTop <= 127) return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), one);
    const __m256i low = _mm256_maddubs_epi16(fours(codes), q);
    const __m256i high = _mm256_maddubs_epi16(fours(_mm256_srli_epi16(codes, 4)), q);
    return _mm256_add_epi32(_mm256_madd_epi16(low, one), _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
  }
  BRAID_READ static __m256 diagonal(const __m256 (&v)[4]) {
    return _mm256_blend_ps(_mm256_blend_ps(v[0], v[1], 0x22), _mm256_blend_ps(v[2], v[3], 0x88), 0xcc);
  }
  BRAID_READ static Four four(const Row* rows, int64_t i, const __m256i (&q)[kRows]) {
    __m256i dots[kRows][4];
    __m256 scale[4], min[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Part part = read<Type>(rows[c], i);
      for (int r = 0; r < kRows; ++r) dots[r][c] = dot(part.codes, q[r]);
      scale[c] = part.scale, min[c] = part.min;
    }
    Four sum;
    for (int r = 0; r < kRows; ++r) {
      const __m256i first = _mm256_hadd_epi32(dots[r][0], dots[r][1]);
      sum.dots[r] = _mm256_hadd_epi32(first, _mm256_hadd_epi32(dots[r][2], dots[r][3]));
    }
    sum.scale = diagonal(scale), sum.min = kMin ? diagonal(min) : scale[0];
    return sum;
  }
  // Eight dwords of row r of kRows interleaved rows.
  BRAID_READ static __m256i quads_of(const std::byte* quads, int r) {
    if (kRows == 1) return load32(quads);
    const __m256i lanes = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kRows));
    return _mm256_i32gather_epi32(reinterpret_cast<const int*>(quads) + r, lanes, 4);
  }
  BRAID_READ static void add(__m256& sum, __m256i dots, __m256 scale, __m256 min, int start) {
    const __m256i all = kMin ? dots : _mm256_add_epi32(dots, _mm256_set1_epi32(start));
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), scale, sum);
    if (kMin) sum = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(start)), min, sum);
  }

  // Part i; `start` and `quads` are those of its step in x.
  BRAID_READ static void part(const Row* rows, int64_t i, const std::byte* step, __m256 (&sums)[kRows]) {
    const int side = static_cast<int>(i % 2);
    const auto* start = reinterpret_cast<const int*>(step) + side * kBlocks / 2 * kRows;
    __m256i q[kRows];
    for (int r = 0; r < kRows; ++r) q[r] = quads_of(step + (kBlocks + 8 * side) * kRows * 4, r);
    const Four a = four(rows, i, q), b = four(rows + 4, i, q);
    const __m256 scale = _mm256_permute2f128_ps(a.scale, b.scale, 0x20),
                 min = _mm256_permute2f128_ps(a.min, b.min, 0x20);
    for (int r = 0; r < kRows; ++r) {
      const __m256i first = _mm256_permute2x128_si256(a.dots[r], b.dots[r], 0x20);
      const __m256i last = _mm256_permute2x128_si256(a.dots[r], b.dots[r], 0x31);
      if (kBlocks == 2) {
        add(sums[r], _mm256_add_epi32(first, last), scale, min, start[r]);
      } else {
        add(sums[r], first, scale, min, start[r]);
        add(sums[r], last, _mm256_permute2f128_ps(a.scale, b.scale, 0x31), min, start[kRows + r]);
      }
    }
  }

  // Rows [first, first + 8) of w.
  BRAID_DOT static void run(const Columns& w, int64_t first, const std::byte* x, float* y) {
    Row rows[8];
    for (int64_t c = 0; c < 8; ++c) {
      const int64_t index = first + c < w.count ? first + c : w.count - 1;
      rows[c] = {.codes = w.codes + index * w.codes_stride,
                 .scales = w.scales ? w.scales + index * w.scales_stride : nullptr,
                 .depth = w.depth,
                 .packed = {}};
    }
    const int64_t parts = (w.depth + kHalf - 1) / kHalf;
    __m256 totals[kRows], sums[kRows];
    for (__m256& total : totals) total = _mm256_setzero_ps();
    for (int64_t i = 0; i < parts; x += a8::group_bytes(Type::kGrain, kRows)) {
      for (__m256& sum : sums) sum = _mm256_setzero_ps();
      for (const int64_t end = i + a8::kGroup / kHalf < parts ? i + a8::kGroup / kHalf : parts; i < end; ++i) {
        // The same part of the eight rows below is prefetched meanwhile.
        const uint8_t* below = w.codes + (first + 8) * w.codes_stride + 8 * i * w.codes_stride / parts;
        for (int line = 0; line < 3; ++line) asm volatile("prefetcht0 %0" : : "m"(below[64 * line]));
        part(rows, i, x + 4 * kRows + i / 2 % 2 * a8::step_bytes(Type::kGrain, kRows), sums);
      }
      for (int r = 0; r < kRows; ++r)
        totals[r] = _mm256_fmadd_ps(sums[r], _mm256_set1_ps(reinterpret_cast<const float*>(x)[r]), totals[r]);
    }
    for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(y + kFewCols * r + first, totals[r]);
  }
};
template <class Type>
void few_of(const Columns& w, const std::byte* x, int64_t rows, float* y) {
  for (int64_t first = 0; first < w.count; first += 8)
    (rows == 1 ? &Few<Type, 1>::run : &Few<Type, 2>::run)(w, first, x, y);
}

// The unit of a sum: the scales of NVFP4 lack 2^8, and its codes are doubled.
template <class Type, class Dots>
constexpr Codes kCodesOf{.factor = Type::kZero == 0 ? 1 : -Type::kZero,
                         .worth = std::is_same_v<Type, Nvfp4Block> ? 128 : 1,
                         .grain = Type::kGrain,
                         .top = Type::kTop,
                         .columns = &columns_of<Type>,
                         .few = &few_of<Type>,
                         .dot = &row_of<Type, Dots>,
                         .bf16 = &decode_row<Type, Bf16>,
                         .bf16_unit = &decode_row<Type, Bf16>,
                         .f32 = &decode_row<Type, float>};
template <class Dots>
constexpr Codes kNvfp4{.factor = -Nvfp4Row::kZero,
                       .worth = 128,
                       .grain = Nvfp4Row::kGrain,
                       .top = Nvfp4Row::kTop,
                       .columns = &columns_of<Nvfp4Row>,
                       .few = &few_of<Nvfp4Row>,
                       .dot = &row_of<std::conditional_t<std::is_same_v<Dots, Words>, Nvfp4Words, Nvfp4Row>, Dots>};

template <class Dots>
const Codes* codes_by_type(GgmlType type) {
  switch (type) {
    case GgmlType::q8_0:
      return &kCodesOf<Q8_0, Dots>;
    case GgmlType::q4_0:
      return &kCodesOf<Q4_0, Dots>;
    case GgmlType::q4_1:
      return &kCodesOf<Q4_1, Dots>;
    case GgmlType::q5_0:
      return &kCodesOf<Q5_0, Dots>;
    case GgmlType::q5_1:
      return &kCodesOf<Q5_1, Dots>;
    case GgmlType::iq4_nl:
      return &kCodesOf<Iq4Nl, Dots>;
    case GgmlType::mxfp4:
      return &kCodesOf<Mxfp4, Dots>;
    case GgmlType::nvfp4:
      return &kCodesOf<Nvfp4Block, Dots>;
    case GgmlType::q4_k:
      return &kCodesOf<Q4K, Dots>;
    case GgmlType::q5_k:
      return &kCodesOf<Q5K, Dots>;
    case GgmlType::q6_k:
      return &kCodesOf<Q6K, Dots>;
    default:
      return nullptr;
  }
}

// Calls write(q, sums, k) with eight values of x at a time, as integers in the words of the two halves, and the sums of
// their fours times `factor`.
template <class Write>
BRAID_READ inline float pack_row(const Bf16* x, int64_t depth, int factor, std::byte* packed, const Write& write) {
  const float s = scale_of(x, depth, kLargest);
  const __m256 inverse = _mm256_set1_ps(1 / s);
  const bool bad = !(s > 0);
  for (int64_t k = 0; k < depth; k += kStep, packed += kStepBytes) {
    for (int64_t i = 0; i < kStep; i += 8) {
      const __m256 v = _mm256_mul_ps(values_at(x + k + i, bad ? 0 : depth - k - i), inverse);
      const __m256i q = bad ? _mm256_setzero_si256() : _mm256_cvtps_epi32(v);
      const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
      write(words, packed, i);
      const __m128i twos = _mm_madd_epi16(words, _mm_set1_epi16(1));
      const __m128i sums = _mm_mullo_epi32(_mm_hadd_epi32(twos, twos), _mm_set1_epi32(factor));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(packed + 2 * kStep + i), sums);
    }
  }
  return s;
}

}  // namespace

const Codes* codes_avx2(const QuantSpec& spec, bool vnni) {
  if (spec.format == Format::nvfp4) return vnni ? &kNvfp4<Vnni> : &kNvfp4<Words>;
  if (spec.format != Format::ggml) return nullptr;
  return vnni ? codes_by_type<Vnni>(spec.ggml) : codes_by_type<Words>(spec.ggml);
}

BRAID_DOT float pack_row_avx2(const Bf16* x, int64_t depth, int factor, std::byte* packed) {
  return pack_row(x, depth, factor, packed, [](__m128i words, std::byte* step, int64_t i) BRAID_READ {
    const __m128i high = _mm_srai_epi16(_mm_add_epi16(words, _mm_set1_epi16(128)), 8);
    const __m128i low = _mm_and_si128(words, _mm_set1_epi16(255));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(step + i), _mm_packs_epi16(high, high));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(step + kStep + i), _mm_packus_epi16(low, low));
  });
}

BRAID_DOT float pack_row_avx2_words(const Bf16* x, int64_t depth, int factor, std::byte* packed) {
  return pack_row(x, depth, factor, packed, [](__m128i words, std::byte* step, int64_t i) BRAID_READ {
    // Of four words the even ones, then the odd ones.
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m128i sorted = _mm_shuffle_epi8(words, order);
    std::byte* even = step + i / kHalf * kStep + i % kHalf;
    _mm_storel_epi64(reinterpret_cast<__m128i*>(even), sorted);
    _mm_storeh_pd(reinterpret_cast<double*>(even + kHalf), _mm_castsi128_pd(sorted));
  });
}

}  // namespace braid::codes
