// Dots of blocks of GGUF types with 16-bit activations, for AVX-512 with VBMI and VNNI (codes_dot.h): a reader for each
// type gives 64 codes at a time, in the order of the values, and the scales of 16 groups of four.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#include <immintrin.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "codec/bf16_avx512-inl.h"
#include "codec/codes_few_avx512-inl.h"

// AVX-512 BF16 is only there for AsBf16ByInstruction, which is called only if the CPU has it.
#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx512bf16,f16c")))

namespace braid::codes {
namespace {

constexpr int64_t kAhead = 2048;  // bytes of codes prefetched ahead

// 64 values: codes, scales, and the minimum that is added if blocks have one.
struct Part {
  __m512i codes;
  __m512 scale, min;
};

inline uint16_t half_bits(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}
BRAID_DOT inline float half(const uint8_t* p) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half_bits(p)))); }
BRAID_DOT inline uint32_t word(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
BRAID_DOT inline __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
BRAID_DOT inline __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// The first 32 values have one factor, the others another.
BRAID_DOT inline __m512 halves(float first, float second) {
  return _mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1);
}
BRAID_DOT inline __m512i halves(__m256i first, __m256i second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// Lane i takes lane i / 4.
BRAID_DOT inline __m512i fours_of_lanes() { return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3); }

// Two runs of 16 bytes, each 16 values in the low nibbles and the next 16 in the high ones.
BRAID_DOT inline __m512i nibbles(const uint8_t* first, const uint8_t* second) {
  const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(first)), load16(second), 1);
  const __m512i twice =
      _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(bytes));
  const __m512i shift =
      _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004);
  return _mm512_and_si512(_mm512_srlv_epi16(twice, shift), _mm512_set1_epi8(15));
}
BRAID_DOT inline __m512i look_up(const uint8_t* table, __m512i codes) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load16(table)), codes);
}

struct Q8_0 {
  static constexpr int64_t kBytes = 34;
  static constexpr int kZero = 128;
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {_mm512_xor_si512(halves(load32(a + 2), load32(b + 2)), _mm512_set1_epi8(static_cast<char>(0x80))),
            halves(half(a), half(b)), _mm512_setzero_ps()};
  }
};
// A scale in half precision before 32 codes of four bits.
struct HalfScale {
  BRAID_DOT static float factor(const uint8_t* block) { return half(block); }
  static constexpr __mmask16 kRaw = 0xffff;  // the bytes of eight raw factors that a block has
  BRAID_DOT static __m512 factors(__m256i raw) { return _mm512_cvtph_ps(raw); }
};
struct Q4_0 : HalfScale {
  static constexpr int64_t kBytes = 18, kCodes = 2;
  static constexpr int kZero = 8;
  alignas(16) static constexpr uint8_t kTable[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {nibbles(a + kCodes, b + kCodes), halves(factor(a), factor(b)), _mm512_setzero_ps()};
  }
};
struct Q4_1 {
  static constexpr int64_t kBytes = 20;
  static constexpr int kZero = 0;  // a minimum is added instead
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {nibbles(a + 4, b + 4), halves(half(a), half(b)), halves(half(a + 2), half(b + 2))};
  }
};
// The fifth bits are in one word, in order.
BRAID_DOT inline __m512i fives(__m512i fours, const uint8_t* a, const uint8_t* b) {
  const __mmask64 high = static_cast<uint64_t>(word(b)) << 32 | word(a);
  return _mm512_mask_add_epi8(fours, high, fours, _mm512_set1_epi8(16));
}
struct Q5_0 {
  static constexpr int64_t kBytes = 22;
  static constexpr int kZero = 16;
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {fives(nibbles(a + 6, b + 6), a + 2, b + 2), halves(half(a), half(b)), _mm512_setzero_ps()};
  }
};
struct Q5_1 {
  static constexpr int64_t kBytes = 24;
  static constexpr int kZero = 0;  // a minimum is added instead
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {fives(nibbles(a + 8, b + 8), a + 4, b + 4), halves(half(a), half(b)), halves(half(a + 2), half(b + 2))};
  }
};
struct Iq4Nl : HalfScale {
  static constexpr int64_t kBytes = 18, kCodes = 2;
  static constexpr int kZero = 128;
  // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113, and 128
  alignas(16) static constexpr uint8_t kTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                     129, 141, 153, 166, 181, 197, 217, 241};
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {look_up(kTable, nibbles(a + kCodes, b + kCodes)), halves(factor(a), factor(b)), _mm512_setzero_ps()};
  }
};
struct Mxfp4 {
  static constexpr int64_t kBytes = 17, kCodes = 1;
  static constexpr int kZero = 12;
  alignas(16) static constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  // Half of 2^(e - 127): codes are doubled.
  BRAID_DOT static float factor(const uint8_t* block) {
    const uint32_t e = block[0], bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float v;
    std::memcpy(&v, &bits, sizeof(v));
    return v;
  }
  static constexpr __mmask16 kRaw = 0x5555;
  BRAID_DOT static __m512 factors(__m256i raw) {
    const __m512i e = _mm512_cvtepu16_epi32(raw);
    const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(bits, small, _mm512_set1_epi32(0x00200000), e));
  }
  BRAID_DOT static Part read(const uint8_t* a, const uint8_t* b) {
    return {look_up(kTable, nibbles(a + kCodes, b + kCodes)), halves(factor(a), factor(b)), _mm512_setzero_ps()};
  }
};
// Blocks of 32 values. A row may end after the first of two: x is zero beyond.
template <class Type>
struct Short : Type {
  static constexpr int64_t kValues = 32;
  BRAID_DOT static Part part(const uint8_t* row, int64_t k, int64_t depth) {
    const uint8_t* first = row + k / 32 * Type::kBytes;
    return Type::read(first, depth - k > 32 ? first + Type::kBytes : first);
  }
};

// Scale and minimum, 6 bits each, of the 32 values `j` of a block of 256.
struct Six {
  int scale, min;
};
BRAID_DOT inline Six six(const uint8_t* q, int64_t j) {
  if (j < 4) return {q[j] & 63, q[j + 4] & 63};
  return {(q[j + 4] & 15) | (q[j - 4] >> 6) << 4, q[j + 4] >> 4 | (q[j] >> 6) << 4};
}
BRAID_DOT inline Part part_of(__m512i codes, const uint8_t* block, int64_t j) {
  const float d = half(block), m = -half(block + 2);
  const Six a = six(block + 4, j), b = six(block + 4, j + 1);
  return {codes, halves(d * static_cast<float>(a.scale), d * static_cast<float>(b.scale)),
          halves(m * static_cast<float>(a.min), m * static_cast<float>(b.min))};
}
BRAID_DOT inline __m512i low_and_high(__m256i bytes) {
  const __m256i four = _mm256_set1_epi8(15);
  return halves(_mm256_and_si256(bytes, four), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), four));
}
struct Q4K {
  static constexpr int64_t kBytes = 144, kValues = 256;
  static constexpr int kZero = 0;  // a minimum is added instead
  BRAID_DOT static Part part(const uint8_t* row, int64_t k, int64_t /*depth*/) {
    const uint8_t* block = row + k / 256 * kBytes;
    const int64_t j = k % 256 / 32;
    return part_of(low_and_high(load32(block + 16 + j * 16)), block, j);
  }
};
struct Q5K {
  static constexpr int64_t kBytes = 176, kValues = 256;
  static constexpr int kZero = 0;  // a minimum is added instead
  BRAID_DOT static Part part(const uint8_t* row, int64_t k, int64_t /*depth*/) {
    const uint8_t* block = row + k / 256 * kBytes;
    const int64_t j = k % 256 / 32;
    const __m512i fours = low_and_high(load32(block + 48 + j * 16));
    const __m256i high = load32(block + 16);
    const __mmask32 first = _mm256_test_epi8_mask(high, _mm256_set1_epi8(static_cast<char>(1 << j))),
                    second = _mm256_test_epi8_mask(high, _mm256_set1_epi8(static_cast<char>(2 << j)));
    const __mmask64 fifth = static_cast<uint64_t>(second) << 32 | first;
    return part_of(_mm512_mask_add_epi8(fours, fifth, fours, _mm512_set1_epi8(16)), block, j);
  }
};
struct Q6K {
  static constexpr int64_t kBytes = 210, kValues = 256;
  static constexpr int kZero = 32;
  BRAID_DOT static Part part(const uint8_t* row, int64_t k, int64_t /*depth*/) {
    const uint8_t* block = row + k / 256 * kBytes;
    const int64_t at = k % 256, side = at / 128, upper = at % 128 / 64;
    const __m512i bytes = _mm512_loadu_si512(block + side * 64);
    const __m512i fours = _mm512_and_si512(upper ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
    const __m256i twos = load32(block + 128 + side * 32);
    const __m512i shift = upper ? _mm512_setr_epi64(4, 4, 4, 4, 6, 6, 6, 6) : _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    const __m512i high = _mm512_and_si512(_mm512_srlv_epi64(halves(twos, twos), shift), _mm512_set1_epi8(3));
    const __m128i scales = _mm_cvtepi8_epi32(_mm_cvtsi32_si128(static_cast<int>(word(block + 192 + at / 16))));
    const __m512 each = _mm512_permutexvar_ps(fours_of_lanes(), _mm512_castps128_ps512(_mm_cvtepi32_ps(scales)));
    return {_mm512_or_si512(fours, _mm512_slli_epi16(high, 4)), _mm512_mul_ps(each, _mm512_set1_ps(half(block + 208))),
            _mm512_setzero_ps()};
  }
};

// Blocks of 64 values, a scale for every 16: E4M3 whose bits seven places up are FP16, 2^-8 times the value.
struct Nvfp4 {
  static constexpr int64_t kBytes = 36, kValues = 64;
  static constexpr int kZero = 12;
  BRAID_DOT static Part part(const uint8_t* row, int64_t k, int64_t /*depth*/) {
    const uint8_t* block = row + k / 64 * kBytes;
    const __m512i twice =
        _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_castsi256_si512(load32(block + 4)));
    const __m512i shifted = _mm512_srlv_epi64(twice, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
    const __m128i bits = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(static_cast<int>(word(block))));
    const __m128i most = _mm_set1_epi16(0x7f);
    const __m128i numbers = _mm_andnot_si128(_mm_cmpeq_epi16(bits, most), _mm_and_si128(bits, most));  // NaN is 0
    const __m512 scales = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_slli_epi16(numbers, 7)));
    return {look_up(Mxfp4::kTable, _mm512_and_si512(shifted, _mm512_set1_epi8(15))),
            _mm512_permutexvar_ps(fours_of_lanes(), scales), _mm512_setzero_ps()};
  }
};

// Of a sum: the scales of NVFP4 lack 2^8, and its codes are doubled.
template <class Type>
constexpr float worth() {
  return std::is_same_v<Type, Nvfp4> ? 128.0f : 1.0f;
}

template <class Type, int kRows>
BRAID_DOT void rows_of(const Row& row, float* out) {
  constexpr bool kMin = Type::kZero == 0;
  __m512 sums[kRows];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  int64_t offset = 0;
  for (int64_t k = 0; k < row.depth; k += kStep, offset += kStepBytes) {
    const Part part = Type::part(row.codes, k, row.depth);
    asm volatile("prefetcht0 %0" : : "m"(row.codes[k * Type::kBytes / Type::kValues + kAhead]));
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const std::byte* x = row.packed[m] + offset;
      const __m512i fours = _mm512_loadu_si512(x + 128);
      const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), part.codes, _mm512_loadu_si512(x));
      const __m512i low =
          _mm512_dpbusd_epi32(kMin ? _mm512_setzero_si512() : fours, part.codes, _mm512_loadu_si512(x + 64));
      const __m512i all = _mm512_add_epi32(low, _mm512_slli_epi32(high, 8));
      sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), part.scale, sums[m]);
      if (kMin) sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(fours), part.min, sums[m]);
    }
  }
  for (int m = 0; m < kRows; ++m) out[m] = _mm512_reduce_add_ps(sums[m]);
}

template <class Type>
void row_of(const Row& row, int64_t rows, float* sums) {
  constexpr void (*kBy[])(const Row&, float*) = {&rows_of<Type, 1>, &rows_of<Type, 2>, &rows_of<Type, 3>,
                                                 &rows_of<Type, 4>};
  kBy[rows - 1](row, sums);
}

// Values 16 i to 16 i + 15 of a part, each formula in decode_ggml's order; `codes` are signed integers.
template <class Type>
BRAID_DOT inline __m512 values_of(const Part& part, __m128i codes, int i) {
  const __m512i lanes = _mm512_add_epi32(fours_of_lanes(), _mm512_set1_epi32(4 * i));
  const __m512 product =
      _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), _mm512_permutexvar_ps(lanes, part.scale));
  return Type::kZero == 0 ? _mm512_add_ps(product, _mm512_permutexvar_ps(lanes, part.min)) : product;
}

// How 32 values are written. To BF16 they are rounded to nearest, ties to even; the instruction treats subnormals as
// zeros.
struct AsFloat {
  using Num = float;
  BRAID_DOT static void store(__m512 first, __m512 second, float* out) {
    _mm512_storeu_ps(out, first);
    _mm512_storeu_ps(out + 16, second);
  }
};
struct AsBf16 {
  using Num = Bf16;
  BRAID_DOT static __m256i rounded(__m512 values) { return as_bf16(values); }
  BRAID_DOT static void store(__m512 first, __m512 second, Bf16* out) {
    _mm512_storeu_si512(out, halves(rounded(first), rounded(second)));
  }
};
struct AsBf16ByInstruction {
  using Num = Bf16;
  BRAID_DOT static __m256i rounded(__m512 values) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)); }
  BRAID_DOT static void store(__m512 first, __m512 second, Bf16* out) {
    _mm512_storeu_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
};

template <class Type, class As>
BRAID_DOT void decode_part(const uint8_t* row, int64_t k, int64_t depth, typename As::Num* out) {
  Part part = Type::part(row, k, depth);
  part.scale = _mm512_mul_ps(part.scale, _mm512_set1_ps(worth<Type>()));
  const __m512i codes = _mm512_sub_epi8(part.codes, _mm512_set1_epi8(static_cast<char>(Type::kZero)));
  As::store(values_of<Type>(part, _mm512_castsi512_si128(codes), 0),
            values_of<Type>(part, _mm512_extracti32x4_epi32(codes, 1), 1), out);
  As::store(values_of<Type>(part, _mm512_extracti32x4_epi32(codes, 2), 2),
            values_of<Type>(part, _mm512_extracti32x4_epi32(codes, 3), 3), out + 32);
}
// 32 values of 16 possible ones, which are computed only once.
template <class Type, class As>
BRAID_DOT inline void decode_by_table(const uint8_t* block, Bf16* out) {
  const __m512i codes = _mm512_sub_epi32(_mm512_cvtepu8_epi32(load16(Type::kTable)), _mm512_set1_epi32(Type::kZero));
  const __m256i values = As::rounded(_mm512_mul_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(Type::factor(block))));
  const __m128i bytes = load16(block + Type::kCodes);
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
  const __m512i index = _mm512_cvtepu8_epi16(_mm256_and_si256(both, _mm256_set1_epi8(15)));
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(index, _mm512_broadcast_i64x4(values)));
}
template <class Type, class As>
BRAID_DOT void decode_row_by_table(const uint8_t* row, int64_t begin, int64_t n, Bf16* values) {
  const uint8_t* block = row + begin / 32 * Type::kBytes;
  int64_t k = 0;
  for (; k + 32 <= n; k += 32, block += Type::kBytes) decode_by_table<Type, As>(block, values + k);
  if (k == n) return;
  Bf16 rest[32];
  decode_by_table<Type, As>(block, rest);
  std::memcpy(values + k, rest, static_cast<size_t>(n - k) * sizeof(rest[0]));
}

template <class Type, class As>
BRAID_DOT void decode_row(const uint8_t* row, int64_t begin, int64_t n, typename As::Num* values) {
  int64_t k = 0;
  for (; k + kStep <= n; k += kStep) decode_part<Type, As>(row, begin + k, begin + n, values + k);
  if (k == n) return;
  typename As::Num rest[kStep];
  decode_part<Type, As>(row, begin + k, begin + n, rest);
  std::memcpy(values + k, rest, static_cast<size_t>(n - k) * sizeof(rest[0]));
}

// Values that share a scale: of most types 32.
template <class Type>
constexpr int64_t grain() {
  return std::is_same_v<Type, Nvfp4> || std::is_same_v<Type, Q6K> ? 16 : 32;
}
template <class Type>
BRAID_DOT void columns_of(const Columns& w, int64_t k, int64_t n, std::byte* units) {
  constexpr bool kMin = Type::kZero == 0;
  for (int64_t at = k; at < k + n; at += kStep, units += a8::unit_bytes(grain<Type>(), kMin)) {
    write_unit<kStep / grain<Type>(), kMin>(w, units,
                                            [&](const uint8_t* row) BRAID_DOT { return Type::part(row, at, w.depth); });
  }
}
BRAID_DOT void columns_q8_0(const Columns& w, int64_t k, int64_t n, std::byte* units) {
  const uint8_t* rows[16];
  find_rows(w, rows);
  for (int64_t at = k; at < k + n; at += kStep, units += a8::unit_bytes(32, false)) {
    const int64_t first = at / 32 * Q8_0::kBytes, second = w.depth - at > 32 ? first + Q8_0::kBytes : first;
    __m512i codes[16];
#pragma GCC unroll 16
    for (int64_t r = 0; r < 16; ++r) {
      const uint8_t* row = rows[r] + 2;
      codes[r] = _mm512_xor_si512(halves(load32(row + first), load32(row + second)),
                                  _mm512_set1_epi8(static_cast<char>(0x80)));
    }
    transpose(codes);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(units + 64 * i, codes[i]);
    uint16_t scales[2][16];
    for (int64_t r = 0; r < 16; ++r) {
      scales[0][r] = half_bits(rows[r] + first);
      scales[1][r] = half_bits(rows[r] + second);
    }
    for (int64_t b = 0; b < 2; ++b) {
      const __m256i raw = load32(reinterpret_cast<const uint8_t*>(scales[b]));
      _mm512_storeu_ps(units + a8::kUnitCodes + 64 * b, HalfScale::factors(raw));
    }
  }
}
// Where the bytes of two blocks of row r go: their codes into the half of a vector in which transpose_bytes wants them,
// their raw scales, two bytes each, into one lane of the other half, one of the row's own. Byte 63 is zero.
template <class Type>
constexpr auto kSpread = [] {
  std::array<std::array<uint8_t, 64>, 16> rows{};
  for (size_t r = 0; r < 16; ++r) {
    const size_t half = r % 8 / 4, lane = 8 - 8 * half + r / 8 * 4 + r % 4;
    rows[r].fill(63);
    for (size_t block = 0; block < 2; ++block) {
      const size_t from = block * Type::kBytes;
      for (size_t i = 0; i < 16; ++i)
        rows[r][32 * half + 16 * block + i] = static_cast<uint8_t>(from + Type::kCodes + i);
      for (size_t i = 0; i < Type::kCodes; ++i) rows[r][4 * lane + 2 * block + i] = static_cast<uint8_t>(from + i);
    }
  }
  return rows;
}();
template <class Type>
BRAID_DOT inline void table_unit(const uint8_t* const (&rows)[16], int64_t offset, __mmask64 bytes, std::byte* unit) {
  const __m512i table = _mm512_broadcast_i32x4(load16(Type::kTable));
  const auto row_of = [&](size_t r) BRAID_LOAD {
    return _mm512_permutexvar_epi8(_mm512_loadu_si512(kSpread<Type>[r].data()),
                                   _mm512_maskz_loadu_epi8(bytes, rows[r] + offset));
  };
  __m512i pairs[8], codes[8], scales = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i) {
    const size_t r = i < 4 ? i : i + 4;
    const __m512i low = row_of(r), high = row_of(r + 4);
    pairs[i] = _mm512_mask_mov_epi32(low, 0xff00, high);
    scales = _mm512_or_si512(scales, _mm512_mask_mov_epi32(low, 0x00ff, high));
  }
  transpose_bytes(pairs, codes);
#pragma GCC unroll 8
  for (int d = 0; d < 8; ++d) {  // a byte has values 16 apart
    std::byte* line = unit + 64 * (d / 4 * 8 + d % 4);
    _mm512_storeu_si512(line, low_codes(codes[d], table));
    _mm512_storeu_si512(line + 256, high_codes(codes[d], table));
  }
  scales = _mm512_shuffle_i32x4(scales, scales, 0x72);  // lanes were of rows 4-7, 12-15, 0-3, 8-11
  std::byte* factors = unit + a8::kUnitCodes;
  _mm512_storeu_ps(factors, Type::factors(_mm512_cvtepi32_epi16(scales)));
  _mm512_storeu_ps(factors + 64, Type::factors(_mm512_cvtepi32_epi16(_mm512_srli_epi32(scales, 16))));
}
template <class Type>
BRAID_DOT void columns_by_table(const Columns& w, int64_t k, int64_t n, std::byte* units) {
  constexpr __mmask64 kOne = (__mmask64{1} << Type::kBytes) - 1, kTwo = (__mmask64{1} << 2 * Type::kBytes) - 1;
  const uint8_t* rows[16];
  find_rows(w, rows);
  for (int64_t at = k; at < k + n; at += kStep, units += a8::unit_bytes(32, false)) {
    table_unit<Type>(rows, at / 32 * Type::kBytes, w.depth - at > 32 ? kTwo : kOne, units);
  }
}

// For codes_few_avx512-inl.h, what types with a scale for 32 values share: a group is four blocks, of each of which 128
// bits of codes are the first 16 values (low) or the last (high). `raw` is where the scale of block b begins in the
// first 64 bytes of Codes::start: b times kRawStride.
template <class Type, int kRawStride>
struct FewOfFour {
  static constexpr int kBlocks = 4, kDots = 1;
  static constexpr bool kMin = false;
  BRAID_FEW static void set_x(__m512i a, __m512i b, __m512i& first, __m512i& second) {
    first = _mm512_shuffle_i32x4(a, b, 0x88), second = _mm512_shuffle_i32x4(a, b, 0xdd);
  }
  BRAID_FEW static void add_up(const __m512i (&dots)[1][4], int four, __m512i (&sums)[1][4]) {
    sums[0][four] = sums_of_fours(dots[0]);
  }
  BRAID_FEW static void order(const __m512i (&sums)[1][4], __m512i (&blocks)[4]) {
    transpose_lanes(sums[0], blocks[0], blocks[1], blocks[2], blocks[3]);
  }
  struct Scales {
    __m256i raw[4];  // [block][row] of four rows
    __m512 factors[4];

    template <class Codes>
    BRAID_FEW void set(const FewRows& /*w*/, int four, int64_t /*g*/, int64_t /*left*/, const Codes (&codes)[4]) {
      const __m128i a = pair(codes[0].start, codes[1].start), b = pair(codes[2].start, codes[3].start);
      raw[four] =
          _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi32(a, b)), _mm_unpackhi_epi32(a, b), 1);
    }
    BRAID_FEW void finish() {
      const __m512i a = halves(raw[0], raw[1]), b = halves(raw[2], raw[3]);
      const __m512i first = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13), b);
      const __m512i second = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15), b);
      factors[0] = Type::factors(_mm512_castsi512_si256(first));
      factors[1] = Type::factors(_mm512_extracti64x4_epi64(first, 1));
      factors[2] = Type::factors(_mm512_castsi512_si256(second));
      factors[3] = Type::factors(_mm512_extracti64x4_epi64(second, 1));
    }
    BRAID_FEW __m512 of(int b) const { return factors[b]; }
    BRAID_FEW static __m512 min(int /*b*/) { return _mm512_setzero_ps(); }

   private:
    // Raw factors of two rows, [block][row].
    BRAID_FEW static __m128i pair(__m512i a, __m512i b) {
      alignas(64) static constexpr auto kAt = [] {
        std::array<uint8_t, 64> at{};
        for (size_t i = 0; i < 16; ++i) at[i] = static_cast<uint8_t>(i / 4 * kRawStride + i % 2 + (i % 4 / 2) * 64);
        return at;
      }();
      const __m512i both = _mm512_permutex2var_epi8(a, _mm512_load_si512(kAt.data()), b);
      return _mm_maskz_mov_epi8(Type::kRaw, _mm512_castsi512_si128(both));
    }
  };
};
template <class Type>
struct FewByTable : FewOfFour<Type, static_cast<int>(Type::kBytes)> {
  static constexpr int kEach = static_cast<int>(Type::kBytes);
  struct Codes {
    __m512i start, bytes;  // of the row, and the codes alone
  };
  BRAID_FEW static Codes read(const uint8_t* row, int64_t g, int64_t left) {
    alignas(64) static constexpr auto kCodesAt = [] {
      std::array<uint8_t, 64> at{};
      for (size_t i = 0; i < 64; ++i) at[i] = static_cast<uint8_t>(i / 16 * kEach + Type::kCodes + i % 16);
      return at;
    }();
    const uint8_t* blocks = row + g * 4 * kEach;
    const int64_t bytes = left < a8::kGroup ? left / 32 * kEach : 4 * kEach;
    const __m512i start = bytes64_at(blocks, bytes), end = bytes64_at(blocks + 64, bytes - 64);
    return {start, _mm512_permutex2var_epi8(start, _mm512_load_si512(kCodesAt.data()), end)};
  }
  BRAID_FEW static __m512i table() { return _mm512_broadcast_i32x4(load16(Type::kTable)); }
  // Codes that are their own values need no table; masks run beside other permutations.
  static constexpr bool kPlain = std::is_same_v<Type, Q4_0>;
  BRAID_FEW static __m512i low(const Codes& codes) {
    return kPlain ? _mm512_and_si512(codes.bytes, _mm512_set1_epi8(15)) : low_codes(codes.bytes, table());
  }
  BRAID_FEW static __m512i high(const Codes& codes) {
    return kPlain ? _mm512_and_si512(_mm512_srli_epi16(codes.bytes, 4), _mm512_set1_epi8(15))
                  : high_codes(codes.bytes, table());
  }
};
struct FewQ8_0 : FewOfFour<HalfScale, 2> {
  static constexpr int64_t kEach = Q8_0::kBytes;
  struct Codes {
    __m512i start, first, second;  // the four scales; codes of two blocks each
  };
  BRAID_FEW static Codes read(const uint8_t* row, int64_t g, int64_t left) {
    const uint8_t* b[4];
    for (int64_t i = 0; i < 4; ++i) b[i] = row + (4 * g + (32 * i < left ? i : 0)) * kEach;
    const int64_t bytes = left < a8::kGroup ? left / 32 * kEach : 4 * kEach;
    const __m512i two = bytes64_at(b[0], bytes), next = bytes64_at(b[0] + 2 * kEach, bytes - 2 * kEach);
    const __m512i at = _mm512_castsi128_si512(_mm_setr_epi16(0, kEach / 2, 32, 32 + kEach / 2, 0, 0, 0, 0));
    return {_mm512_permutex2var_epi16(two, at, next), halves(load32(b[0] + 2), load32(b[1] + 2)),
            halves(load32(b[2] + 2), load32(b[3] + 2))};
  }
  BRAID_FEW static __m512i plus_128(__m512i codes) {
    return _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  BRAID_FEW static __m512i low(const Codes& c) { return plus_128(_mm512_shuffle_i32x4(c.first, c.second, 0x88)); }
  BRAID_FEW static __m512i high(const Codes& c) { return plus_128(_mm512_shuffle_i32x4(c.first, c.second, 0xdd)); }
};

// The same for all other types, by parts of 64 values. Where blocks have 16 values, 128 bits of codes are one; where
// they have 32, the first or the last half of one.
template <class Type>
struct FewParts {
  static constexpr bool kMin = Type::kZero == 0, kHalves = grain<Type>() == 32;
  static constexpr int kBlocks = kHalves ? 4 : 8, kDots = kHalves ? 1 : 2;
  struct Codes {
    Part first, second;
  };
  BRAID_FEW static Codes read(const uint8_t* row, int64_t g, int64_t left) {
    const int64_t k = g * a8::kGroup, depth = k + left;
    return {Type::part(row, k, depth), Type::part(row, left > kStep ? k + kStep : k, depth)};
  }
  BRAID_FEW static __m512i low(const Codes& c) {
    return kHalves ? _mm512_shuffle_i32x4(c.first.codes, c.second.codes, 0x88) : c.first.codes;
  }
  BRAID_FEW static __m512i high(const Codes& c) {
    return kHalves ? _mm512_shuffle_i32x4(c.first.codes, c.second.codes, 0xdd) : c.second.codes;
  }
  BRAID_FEW static void set_x(__m512i a, __m512i b, __m512i& first, __m512i& second) {
    first = kHalves ? _mm512_shuffle_i32x4(a, b, 0x88) : a, second = kHalves ? _mm512_shuffle_i32x4(a, b, 0xdd) : b;
  }
  BRAID_FEW static void add_up(const __m512i (&dots)[kDots][4], int four, __m512i (&sums)[kDots][4]) {
    for (int i = 0; i < kDots; ++i) sums[i][four] = sums_of_fours(dots[i]);
  }
  BRAID_FEW static void order(const __m512i (&sums)[kDots][4], __m512i (&blocks)[kBlocks]) {
    for (int i = 0; i < kDots; ++i) {
      __m512i* four = blocks + 4 * i;
      transpose_lanes(sums[i], four[0], four[1], four[2], four[3]);
    }
  }
  struct Scales {
    static constexpr int kEach = kBlocks / 2;  // blocks of a part
    Factors first, second, first_min, second_min;
    alignas(64) float factors[kBlocks][16], minima[kBlocks][16];

    BRAID_FEW void set(const FewRows& /*w*/, int four, int64_t /*g*/, int64_t /*left*/, const Codes (&codes)[4]) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        first.set(4 * four + c, codes[c].first.scale), second.set(4 * four + c, codes[c].second.scale);
        if (kMin) first_min.set(4 * four + c, codes[c].first.min), second_min.set(4 * four + c, codes[c].second.min);
      }
    }
    BRAID_FEW void finish() {
      first.template store<kEach>(factors[0]), second.template store<kEach>(factors[kEach]);
      if (kMin) first_min.template store<kEach>(minima[0]), second_min.template store<kEach>(minima[kEach]);
    }
    BRAID_FEW __m512 of(int b) const { return _mm512_load_ps(factors[b]); }
    BRAID_FEW __m512 min(int b) const { return _mm512_load_ps(minima[b]); }
  };
};

template <class Type>
using FewOf = std::conditional_t<std::is_same_v<Type, Short<Q8_0>>, FewQ8_0, FewParts<Type>>;

template <class Type>
constexpr ColumnsLookUp* columns_for() {
  return std::is_same_v<Type, Short<Q8_0>> ? &columns_q8_0 : &columns_of<Type>;
}

template <class Type>
constexpr Codes kCodesOf{.factor = Type::kZero == 0 ? 1 : -Type::kZero,
                         .worth = worth<Type>(),
                         .grain = grain<Type>(),
                         .columns = columns_for<Type>(),
                         .few = &few_of<FewOf<Type>>,
                         .few_rows = 4,
                         .dot = &row_of<Type>,
                         .bf16 = &decode_row<Type, AsBf16>,
                         .bf16_unit = &decode_row<Type, AsBf16ByInstruction>,
                         .f32 = &decode_row<Type, AsFloat>};

template <class Type>
constexpr Codes kCodesByTable{.factor = -Type::kZero,
                              .columns = &columns_by_table<Type>,
                              .few = &few_of<FewByTable<Type>>,
                              .few_rows = 4,
                              .dot = &row_of<Short<Type>>,
                              .bf16 = &decode_row_by_table<Type, AsBf16>,
                              .bf16_unit = &decode_row_by_table<Type, AsBf16ByInstruction>,
                              .f32 = &decode_row<Short<Type>, AsFloat>};

}  // namespace

const Codes* ggml_codes_avx512(GgmlType type) {
  switch (type) {
    case GgmlType::q8_0:
      return &kCodesOf<Short<Q8_0>>;
    case GgmlType::q4_0:
      return &kCodesByTable<Q4_0>;
    case GgmlType::q4_1:
      return &kCodesOf<Short<Q4_1>>;
    case GgmlType::q5_0:
      return &kCodesOf<Short<Q5_0>>;
    case GgmlType::q5_1:
      return &kCodesOf<Short<Q5_1>>;
    case GgmlType::iq4_nl:
      return &kCodesByTable<Iq4Nl>;
    case GgmlType::mxfp4:
      return &kCodesByTable<Mxfp4>;
    case GgmlType::nvfp4:
      return &kCodesOf<Nvfp4>;
    case GgmlType::q4_k:
      return &kCodesOf<Q4K>;
    case GgmlType::q5_k:
      return &kCodesOf<Q5K>;
    case GgmlType::q6_k:
      return &kCodesOf<Q6K>;
    default:
      return nullptr;
  }
}

}  // namespace braid::codes
