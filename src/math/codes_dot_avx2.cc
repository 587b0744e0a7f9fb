// The dots of codes_dot.h for AVX2, with AVX-VNNI where the CPU has it: the bits of the rows for AVX-512, whose 16 sums
// are two vectors here, one for each half of a step. Without VNNI a dot of bytes is two instructions; codes above 127,
// whose pairs would overflow 16 bits, are cut into seven bits and one.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "math/codes_a8_kernel.h"
#include "math/codes_dot.h"

#define BRAID_DOT __attribute__((target("avx2,fma,f16c")))
#define BRAID_READ __attribute__((target("avx2,fma,f16c"), always_inline))

namespace braid::codes {
namespace {

constexpr int64_t kAhead = 2048, kHalf = 32;  // bytes of codes that are fetched ahead; values of half a step
constexpr int kLargest = 32639;               // 127 * 256 + 127

// 32 values: codes, their scales by groups of four, and where blocks have one the minimum that is added.
struct Part {
  __m256i codes;
  __m256 scale, min;
};

BRAID_DOT inline float half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
BRAID_DOT inline __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
BRAID_DOT inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
BRAID_DOT inline __m256i join(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
BRAID_DOT inline __m256 two_scales(float first, float second) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_set1_ps(first)), _mm_set1_ps(second), 1);
}
BRAID_DOT inline __m256i fours(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
// 16 bytes: the low halves are 16 values, the high halves the next 16.
BRAID_DOT inline __m256i nibbles(const uint8_t* p) {
  const __m128i bytes = load16(p);
  return fours(join(bytes, _mm_srli_epi16(bytes, 4)));
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

// Types: bytes and values of a block, values that share a scale, what codes are larger than their values by, or 0 where
// blocks have minima, and whether codes exceed 127. read(row, k) gives values [k, k + 32).
struct Q8_0 {
  static constexpr int64_t kBytes = 34, kValues = 32, kGrain = 32;
  static constexpr int kZero = 128;
  static constexpr bool kWide = true;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {_mm256_xor_si256(load32(p + 2), _mm256_set1_epi8(static_cast<char>(0x80))), _mm256_set1_ps(half(p)),
            _mm256_setzero_ps()};
  }
};
struct Q4_0 {
  static constexpr int64_t kBytes = 18, kValues = 32, kGrain = 32;
  static constexpr int kZero = 8;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {nibbles(p + 2), _mm256_set1_ps(half(p)), _mm256_setzero_ps()};
  }
};
struct Q4_1 {
  static constexpr int64_t kBytes = 20, kValues = 32, kGrain = 32;
  static constexpr int kZero = 0;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {nibbles(p + 4), _mm256_set1_ps(half(p)), _mm256_set1_ps(half(p + 2))};
  }
};
struct Q5_0 {
  static constexpr int64_t kBytes = 22, kValues = 32, kGrain = 32;
  static constexpr int kZero = 16;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {_mm256_or_si256(nibbles(p + 6), fifths(p + 2)), _mm256_set1_ps(half(p)), _mm256_setzero_ps()};
  }
};
struct Q5_1 {
  static constexpr int64_t kBytes = 24, kValues = 32, kGrain = 32;
  static constexpr int kZero = 0;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {_mm256_or_si256(nibbles(p + 8), fifths(p + 4)), _mm256_set1_ps(half(p)), _mm256_set1_ps(half(p + 2))};
  }
};
struct Iq4Nl {
  static constexpr int64_t kBytes = 18, kValues = 32, kGrain = 32;
  static constexpr int kZero = 128;
  static constexpr bool kWide = true;
  // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113, and 128
  alignas(16) static constexpr uint8_t kTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                     129, 141, 153, 166, 181, 197, 217, 241};
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {look_up(kTable, nibbles(p + 2)), _mm256_set1_ps(half(p)), _mm256_setzero_ps()};
  }
};
struct Mxfp4 {
  static constexpr int64_t kBytes = 17, kValues = 32, kGrain = 32;
  static constexpr int kZero = 12;
  static constexpr bool kWide = false;
  alignas(16) static constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  // Half of 2^(e - 127): codes are doubled.
  BRAID_DOT static float factor(uint32_t e) {
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float v;
    std::memcpy(&v, &bits, sizeof(v));
    return v;
  }
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* p = row.codes + k / kValues * kBytes;
    return {look_up(kTable, nibbles(p + 1)), _mm256_set1_ps(factor(p[0])), _mm256_setzero_ps()};
  }
};

// Scale and minimum, 6 bits each, of the 32 values `j` of a block of 256.
BRAID_DOT inline Part with_six(__m256i codes, const uint8_t* block, int64_t j) {
  const uint8_t* q = block + 4;
  const int scale = j < 4 ? q[j] & 63 : (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
  const int min = j < 4 ? q[j + 4] & 63 : q[j + 4] >> 4 | (q[j] >> 6) << 4;
  return {codes, _mm256_set1_ps(half(block) * static_cast<float>(scale)),
          _mm256_set1_ps(-half(block + 2) * static_cast<float>(min))};
}
BRAID_DOT inline __m256i half_bytes(const uint8_t* p, bool upper) {
  const __m256i bytes = load32(p);
  return fours(upper ? _mm256_srli_epi16(bytes, 4) : bytes);
}
struct Q4K {
  static constexpr int64_t kBytes = 144, kValues = 256, kGrain = 32;
  static constexpr int kZero = 0;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* block = row.codes + k / kValues * kBytes;
    const int64_t j = k % 256 / 32;
    return with_six(half_bytes(block + 16 + j / 2 * 32, j % 2 == 1), block, j);
  }
};
struct Q5K {
  static constexpr int64_t kBytes = 176, kValues = 256, kGrain = 32;
  static constexpr int kZero = 0;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* block = row.codes + k / kValues * kBytes;
    const int64_t j = k % 256 / 32;
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
    const __m256i fifth = _mm256_cmpeq_epi8(_mm256_and_si256(load32(block + 16), bit), bit);
    const __m256i codes =
        _mm256_or_si256(half_bytes(block + 48 + j / 2 * 32, j % 2 == 1), _mm256_and_si256(fifth, _mm256_set1_epi8(16)));
    return with_six(codes, block, j);
  }
};
struct Q6K {
  static constexpr int64_t kBytes = 210, kValues = 256, kGrain = 16;
  static constexpr int kZero = 32;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* block = row.codes + k / kValues * kBytes;
    const int64_t at = k % 256, side = at / 128, quarter = at % 128 / 32;
    const __m256i low = half_bytes(block + side * 64 + quarter % 2 * 32, quarter / 2 == 1);
    const __m256i twos = _mm256_srl_epi64(load32(block + 128 + side * 32), _mm_cvtsi64_si128(2 * quarter));
    const __m256i high = _mm256_slli_epi16(_mm256_and_si256(twos, _mm256_set1_epi8(3)), 4);
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192 + at / 16);
    const float d = half(block + 208);
    return {_mm256_or_si256(low, high),
            two_scales(static_cast<float>(scales[0]) * d, static_cast<float>(scales[1]) * d), _mm256_setzero_ps()};
  }
};

// Two of E4M3, 2^-8 times their values, for the first and for the last 16 of 32 values: their bits seven places up, the
// sign one more, are half precision.
BRAID_DOT inline __m256 two_scales(int bits) {
  const __m128i top = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(bits)), 8);
  const __m128i half = _mm_and_si128(_mm_srai_epi16(top, 1), _mm_set1_epi16(static_cast<int16_t>(0xbfff)));
  const __m256 both = _mm256_castps128_ps256(_mm_cvtph_ps(half));
  return _mm256_permutevar8x32_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}
BRAID_DOT inline int two_bytes(const uint8_t* p) { return p[0] | p[1] << 8; }
// Of a GGUF file: 64 values, four scales; eight bytes have the low halves of eight values, then of the next eight.
struct Nvfp4Block {
  static constexpr int64_t kBytes = 36, kValues = 64, kGrain = 16;
  static constexpr int kZero = 12;
  static constexpr bool kWide = false;
  static int number(uint8_t bits) { return bits == 0x7f ? 0 : bits & 0x7f; }  // NaN is 0
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t* block = row.codes + k / kValues * kBytes;
    const int64_t side = k % 64 / 32;
    const __m128i bytes = load16(block + 4 + 16 * side), high = _mm_srli_epi16(bytes, 4);
    const __m256i codes = fours(join(_mm_unpacklo_epi64(bytes, high), _mm_unpackhi_epi64(bytes, high)));
    return {look_up(Mxfp4::kTable, codes), two_scales(number(block[2 * side]) | number(block[2 * side + 1]) << 8),
            _mm256_setzero_ps()};
  }
};
// Of a folder: rows of codes, two neighbours in a byte, and rows of scales. A row may end after 16 values.
struct Nvfp4Row {
  static constexpr int64_t kBytes = 8, kValues = 16, kGrain = 16;
  static constexpr int kZero = 12;
  static constexpr bool kWide = false;
  BRAID_READ static Part read(const Row& row, int64_t k) {
    const uint8_t *p = row.codes + k / 2, *scales = row.scales + k / 16;
    const bool whole = row.depth - k >= kHalf;
    const __m128i bytes = whole ? load16(p) : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i high = _mm_srli_epi16(bytes, 4);
    const __m256i codes = fours(join(_mm_unpacklo_epi8(bytes, high), _mm_unpackhi_epi8(bytes, high)));
    return {look_up(Mxfp4::kTable, codes), two_scales(whole ? two_bytes(scales) : scales[0]), _mm256_setzero_ps()};
  }
};

// acc + sums of four products of bytes, those of `codes` without a sign.
template <bool kVnni, bool kWide>
BRAID_DOT inline __m256i dot(__m256i acc, __m256i codes, const std::byte* x) {
  const __m256i v = load32(x);
  if (kVnni) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(v));
    return acc;
  }
  const __m256i one = _mm256_set1_epi16(1);
  if (!kWide) return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, v), one));
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi8(127));
  const __m256i top = _mm256_and_si256(_mm256_srli_epi16(codes, 7), _mm256_set1_epi8(1));
  const __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(low, v), one);
  const __m256i tops = _mm256_madd_epi16(_mm256_maddubs_epi16(top, v), _mm256_set1_epi16(128));
  return _mm256_add_epi32(acc, _mm256_add_epi32(sums, tops));
}

// In the order of _mm512_reduce_add_ps.
BRAID_DOT inline float fold(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(high, low);
  const __m128 four = _mm_add_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <class Type, bool kVnni, int kRows>
BRAID_DOT void rows_of(const Row& row, float* out) {
  constexpr bool kMin = Type::kZero == 0;
  __m256 sums[kRows][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_ps();
  int64_t offset = 0;
  const auto add = [&](int64_t k, int side) BRAID_READ {
    const Part part = Type::read(row, k);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const std::byte* x = row.packed[m] + offset + kHalf * side;
      const __m256i start = load32(x + 128);
      const __m256i high = dot<kVnni, Type::kWide>(_mm256_setzero_si256(), part.codes, x);
      const __m256i low = dot<kVnni, Type::kWide>(kMin ? _mm256_setzero_si256() : start, part.codes, x + 64);
      const __m256i all = _mm256_add_epi32(low, _mm256_slli_epi32(high, 8));
      sums[m][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), part.scale, sums[m][side]);
      if (kMin) sums[m][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(start), part.min, sums[m][side]);
    }
  };
  int64_t k = 0;
  for (; k + kStep <= row.depth; k += kStep, offset += kStepBytes) {
    asm volatile("prefetcht0 %0" : : "m"(row.codes[k * Type::kBytes / Type::kValues + kAhead]));
    add(k, 0);
    add(k + kHalf, 1);
  }
  if (k < row.depth) add(k, 0);
  if (k + kHalf < row.depth) add(k + kHalf, 1);
  for (int m = 0; m < kRows; ++m) out[m] = fold(sums[m][0], sums[m][1]);
}

template <class Type, bool kVnni>
void row_of(const Row& row, int64_t rows, float* sums) {
  constexpr void (*kBy[])(const Row&, float*) = {&rows_of<Type, kVnni, 1>, &rows_of<Type, kVnni, 2>,
                                                 &rows_of<Type, kVnni, 3>, &rows_of<Type, kVnni, 4>};
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
  const Part part = Type::read(row, k);
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

// Units of codes_a8_kernel.h; what lies beyond the depth is as if it were the part before it.
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
        const Part part = Type::read(row, from < w.depth ? from : at);
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

// What a sum is worth: the scales of NVFP4 lack 2^8, and its codes are doubled.
template <class Type, bool kVnni>
constexpr Codes kCodesOf{.factor = Type::kZero == 0 ? 1 : -Type::kZero,
                         .worth = std::is_same_v<Type, Nvfp4Block> ? 128 : 1,
                         .grain = Type::kGrain,
                         .columns = &columns_of<Type>,
                         .dot = &row_of<Type, kVnni>,
                         .bf16 = &decode_row<Type, Bf16>,
                         .bf16_unit = &decode_row<Type, Bf16>,
                         .f32 = &decode_row<Type, float>};
template <bool kVnni>
constexpr Codes kNvfp4{.factor = -Nvfp4Row::kZero,
                       .worth = 128,
                       .grain = Nvfp4Row::kGrain,
                       .columns = &columns_of<Nvfp4Row>,
                       .dot = &row_of<Nvfp4Row, kVnni>};

template <bool kVnni>
const Codes* codes_by_type(GgmlType type) {
  switch (type) {
    case GgmlType::q8_0:
      return &kCodesOf<Q8_0, kVnni>;
    case GgmlType::q4_0:
      return &kCodesOf<Q4_0, kVnni>;
    case GgmlType::q4_1:
      return &kCodesOf<Q4_1, kVnni>;
    case GgmlType::q5_0:
      return &kCodesOf<Q5_0, kVnni>;
    case GgmlType::q5_1:
      return &kCodesOf<Q5_1, kVnni>;
    case GgmlType::iq4_nl:
      return &kCodesOf<Iq4Nl, kVnni>;
    case GgmlType::mxfp4:
      return &kCodesOf<Mxfp4, kVnni>;
    case GgmlType::nvfp4:
      return &kCodesOf<Nvfp4Block, kVnni>;
    case GgmlType::q4_k:
      return &kCodesOf<Q4K, kVnni>;
    case GgmlType::q5_k:
      return &kCodesOf<Q5K, kVnni>;
    case GgmlType::q6_k:
      return &kCodesOf<Q6K, kVnni>;
    default:
      return nullptr;
  }
}

}  // namespace

const Codes* codes_avx2(const QuantSpec& spec, bool vnni) {
  if (spec.format == Format::nvfp4) return vnni ? &kNvfp4<true> : &kNvfp4<false>;
  if (spec.format != Format::ggml) return nullptr;
  return vnni ? codes_by_type<true>(spec.ggml) : codes_by_type<false>(spec.ggml);
}

BRAID_DOT float pack_row_avx2(const Bf16* x, int64_t depth, int factor, std::byte* packed) {
  float amax = 0;
  bool bad = false;
  for (int64_t k = 0; k < depth; ++k) {
    const float size = std::fabs(to_float(x[k]));
    bad = bad || !(size <= std::numeric_limits<float>::max());
    amax = size > amax ? size : amax;
  }
  const float s = bad                ? std::numeric_limits<float>::quiet_NaN()
                  : amax > kSmallest ? amax / static_cast<float>(kLargest)
                                     : 1.0f;
  const float inverse = 1 / s;
  for (int64_t k = 0; k < depth; k += kStep, packed += kStepBytes) {
    auto* sums = reinterpret_cast<int32_t*>(packed + 2 * kStep);
    for (int64_t i = 0; i < kStep; ++i) {
      const float v = !bad && k + i < depth ? to_float(x[k + i]) * inverse : 0.0f;
      const int q = _mm_cvtss_si32(_mm_set_ss(v)), high = (q + 128) >> 8;
      packed[i] = static_cast<std::byte>(high);
      packed[kStep + i] = static_cast<std::byte>(q - high * 256);
      sums[i / 4] = (i % 4 == 0 ? 0 : sums[i / 4]) + q;
    }
    for (int64_t i = 0; i < kStep / 4; ++i) sums[i] *= factor;
  }
  return s;
}

}  // namespace braid::codes
