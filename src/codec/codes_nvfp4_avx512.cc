// Dots of NVFP4 with 16-bit activations, for AVX-512 with VBMI and VNNI. For one row of x, 64 values cost 12
// instructions plus loads: two ports do that in six cycles, in which 36 bytes of weights arrive.
#include <immintrin.h>

#include <limits>

#include "codec/codes_few_avx512-inl.h"

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")))

namespace braid::codes {
namespace {

constexpr int64_t kLanes = 16, kBlock = 16, kQuad = 4 * kStep;  // 16 scales of NVFP4 are those of a quad of steps
constexpr int64_t kAhead = 2048;                                // bytes of codes prefetched ahead
constexpr int kLargest = 32639;                                 // 127 * 256 + 127

// 2 e2m1 + 12 by code, four times, so that the fifth and sixth bit of an index are ignored.
alignas(64) constexpr uint8_t kValues[64] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
                                             12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
                                             12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,
                                             12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
// Which of 16 scales the lanes of the first step of a quad use.
alignas(64) constexpr int32_t kScaleOf[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};

BRAID_DOT __m512 load_bf16(const Bf16* x, __mmask16 some) {
  const __m256i bits = _mm256_maskz_loadu_epi16(some, x);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
BRAID_DOT __mmask16 lanes(int64_t n) {
  return n >= kLanes ? static_cast<__mmask16>(0xffff)
         : n <= 0    ? static_cast<__mmask16>(0)
                     : static_cast<__mmask16>((1u << n) - 1);
}

// E4M3 as FP32, 2^-8 times the value: its bits seven places up, the sign one more, are FP16. As FP32 twenty places up
// they would need a product with subnormal numbers, which is slow.
BRAID_DOT __m512 scales_of(const uint8_t* scales, __mmask16 some) {
  const __m256i top = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(some, scales)), 8);
  const __m256i half = _mm256_and_si256(_mm256_srai_epi16(top, 1), _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
  return _mm512_cvtph_ps(half);
}

BRAID_DOT inline __m512i look_up(__m256i codes, __m512i table) {
  const __m512i words = _mm512_cvtepu8_epi16(codes);
  return _mm512_permutexvar_epi8(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)), table);
}

// Adds a step of 64 values: `codes` are its bytes, zeros beyond the row.
template <int kRows>
BRAID_DOT inline void step(const Row& row, int64_t offset, __m256i codes, __m512i table, __m512 scale,
                           __m512 (&sums)[kRows]) {
  const __m512i values = look_up(codes, table);
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
    const std::byte* x = row.packed[m] + offset;
    const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), values, _mm512_loadu_si512(x));
    const __m512i low = _mm512_dpbusd_epi32(_mm512_loadu_si512(x + 128), values, _mm512_loadu_si512(x + 64));
    const __m512i all = _mm512_add_epi32(low, _mm512_slli_epi32(high, 8));
    sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), scale, sums[m]);
  }
}

template <int kRows>
BRAID_DOT void nvfp4_rows(const Row& row, float* out) {
  const __m512i table = _mm512_load_si512(kValues), four = _mm512_set1_epi32(4);
  __m512 sums[kRows];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  int64_t offset = 0;
  for (int64_t k = 0; k < row.depth; k += kQuad) {
    const __m512 scales = scales_of(row.scales + k / kBlock, lanes((row.depth - k) / kBlock));
    __m512i scale_of = _mm512_load_si512(kScaleOf);
    const uint8_t* codes = row.codes + k / 2;
    const int64_t left = row.depth - k;
    asm volatile("prefetcht0 %0" : : "m"(codes[kAhead]));
    asm volatile("prefetcht0 %0" : : "m"(codes[kAhead + 64]));
    if (left >= kQuad) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kQuad / 2; i += kStep / 2, offset += kStepBytes) {
        step<kRows>(row, offset, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)), table,
                    _mm512_permutexvar_ps(scale_of, scales), sums);
        scale_of = _mm512_add_epi32(scale_of, four);
      }
      continue;
    }
    for (int64_t i = 0; i < left; i += kStep, offset += kStepBytes) {
      step<kRows>(row, offset, bytes_at(codes + i / 2, (left - i) / 2), table, _mm512_permutexvar_ps(scale_of, scales),
                  sums);
      scale_of = _mm512_add_epi32(scale_of, four);
    }
  }
  for (int m = 0; m < kRows; ++m) out[m] = _mm512_reduce_add_ps(sums[m]);
}

// Eight blocks of a row for codes_few_avx512-inl.h: 32 bits of codes are half a block, its even values in the low
// nibbles.
struct FewNvfp4 {
  static constexpr int kBlocks = 8, kDots = 1;
  static constexpr bool kMin = false;
  using Codes = __m512i;
  BRAID_FEW static Codes read(const uint8_t* row, int64_t g, int64_t left) {
    return bytes64_at(row + g * a8::kGroup / 2, left / 2);
  }
  BRAID_FEW static __m512i low(Codes codes) { return low_codes(codes, _mm512_load_si512(kValues)); }
  BRAID_FEW static __m512i high(Codes codes) { return high_codes(codes, _mm512_load_si512(kValues)); }
  BRAID_FEW static void set_x(__m512i a, __m512i b, __m512i& first, __m512i& second) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    first = _mm512_permutex2var_epi32(a, even, b);
    second = _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
  }
  BRAID_FEW static void add_up(const __m512i (&dots)[1][4], int four, __m512i (&sums)[2][4]) {
    sums_of_pairs(dots[0], sums[0][four], sums[1][four]);
  }
  BRAID_FEW static void order(const __m512i (&sums)[2][4], __m512i (&blocks)[8]) {
    transpose_lanes(sums[0], blocks[0], blocks[2], blocks[4], blocks[6]);
    transpose_lanes(sums[1], blocks[1], blocks[3], blocks[5], blocks[7]);
  }
  struct Scales {
    __m256i bytes[4];  // [block][row] of four rows
    __m512 factors[8];

    BRAID_FEW void set(const FewRows& w, int four, int64_t g, int64_t left, const Codes (&/*codes*/)[4]) {
      const auto some = static_cast<__mmask16>(left >= a8::kGroup ? 0xff : (1u << left / kBlock) - 1);
      __m128i rows[4];
#pragma GCC unroll 4
      for (int64_t c = 0; c < 4; ++c) {
        rows[c] = _mm_maskz_loadu_epi8(some, w.scales[4 * four + c] + g * kBlocks);
      }
      const __m128i a = _mm_unpacklo_epi8(rows[0], rows[1]), b = _mm_unpacklo_epi8(rows[2], rows[3]);
      bytes[four] =
          _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(a, b)), _mm_unpackhi_epi16(a, b), 1);
    }
    BRAID_FEW void finish() {
      const __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(bytes[0]), bytes[1], 1),
                    b = _mm512_inserti64x4(_mm512_castsi256_si512(bytes[2]), bytes[3], 1);
      const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
      four_blocks(_mm512_permutex2var_epi32(a, first, b), factors);
      four_blocks(_mm512_permutex2var_epi32(a, _mm512_add_epi32(first, _mm512_set1_epi32(4)), b), factors + 4);
    }
    BRAID_FEW __m512 of(int b) const { return factors[b]; }
    BRAID_FEW static __m512 min(int /*b*/) { return _mm512_setzero_ps(); }

   private:
    // As scales_of: 16 bytes each of four blocks.
    BRAID_FEW static void four_blocks(__m512i all, __m512* out) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m256i two = i ? _mm512_extracti64x4_epi64(all, 1) : _mm512_castsi512_si256(all);
        const __m512i top = _mm512_slli_epi16(_mm512_cvtepu8_epi16(two), 8);
        const __m512i half =
            _mm512_and_si512(_mm512_srai_epi16(top, 1), _mm512_set1_epi16(static_cast<int16_t>(0xbfff)));
        out[2 * i] = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
        out[2 * i + 1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
      }
    }
  };
};

}  // namespace

void nvfp4_few_avx512(const Columns& w, const std::byte* x, int64_t rows, float* y) { few_of<FewNvfp4>(w, x, rows, y); }

BRAID_DOT float pack_row_avx512(const Bf16* x, int64_t depth, int factor, std::byte* packed) {
  __m512 most = _mm512_setzero_ps();
  __mmask16 bad = 0;
  for (int64_t k = 0; k < depth; k += kLanes) {
    const __m512 some = load_bf16(x + k, lanes(depth - k));
    const __m512 size = _mm512_abs_ps(some);
    bad = _kor_mask16(bad, _mm512_cmp_ps_mask(size, _mm512_set1_ps(std::numeric_limits<float>::max()), _CMP_NLE_UQ));
    most = _mm512_max_ps(most, size);
  }
  const float amax = _mm512_reduce_max_ps(most);
  const float s = bad                ? std::numeric_limits<float>::quiet_NaN()
                  : amax > kSmallest ? amax / static_cast<float>(kLargest)
                                     : 1.0f;
  const __m512 inverse = _mm512_set1_ps(1 / s);
  const __m512i half = _mm512_set1_epi32(128);
  for (int64_t k = 0; k < depth; k += kStep, packed += kStepBytes) {
    for (int64_t i = 0; i < kStep; i += kLanes) {
      const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(load_bf16(x + k + i, lanes(depth - k - i)), inverse));
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, half), 8);
      const __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 8));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed + i), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed + kStep + i), _mm512_cvtepi32_epi8(low));
      const __m512i pairs = _mm512_add_epi32(q, _mm512_shuffle_epi32(q, _MM_PERM_CDAB));
      const __m512i fours = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
      const __m512i start = _mm512_mullo_epi32(fours, _mm512_set1_epi32(factor));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed + 2 * kStep + i),
                       _mm512_castsi512_si128(_mm512_maskz_compress_epi32(static_cast<__mmask16>(0x1111), start)));
    }
  }
  return s;
}

BRAID_DOT void nvfp4_columns_avx512(const Columns& w, int64_t k, int64_t n, std::byte* units) {
  alignas(64) static constexpr uint8_t kByBlock[64] = {0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
                                                       1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61,
                                                       2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62,
                                                       3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
  const __m512i table = _mm512_load_si512(kValues), by_block = _mm512_load_si512(kByBlock);
  const uint8_t* rows[16];
  find_rows(w, rows);
  __m512i scales[8];  // of a step each: four of every row
  transpose_rows(
      [&](int64_t r) BRAID_LOAD {
        return bytes_at(w.scales + (r < w.count ? r : w.count - 1) * w.scales_stride + k / kBlock, n / kBlock);
      },
      scales);
  for (int64_t i = 0; i * kStep < n; ++i, units += a8::unit_bytes(kBlock, false)) {
    const int64_t at = (k + i * kStep) / 2, left = (n - i * kStep) / 2;
    __m512i codes[8];
    transpose_rows([&](int64_t r) BRAID_LOAD { return bytes_at(rows[r] + at, left); }, codes);
#pragma GCC unroll 8
    for (int d = 0; d < 8; ++d) {
      _mm512_storeu_si512(units + 128 * d, low_codes(codes[d], table));
      _mm512_storeu_si512(units + 128 * d + 64, high_codes(codes[d], table));
    }
    alignas(64) uint8_t bytes[64];
    _mm512_store_si512(bytes, _mm512_permutexvar_epi8(by_block, scales[i]));
    for (int64_t b = 0; b < 4; ++b)
      _mm512_storeu_ps(units + a8::kUnitCodes + 64 * b, scales_of(bytes + kLanes * b, 0xffff));
  }
}

void nvfp4_row_avx512(const Row& row, int64_t rows, float* sums) {
  switch (rows) {
    case 1:
      return nvfp4_rows<1>(row, sums);
    case 2:
      return nvfp4_rows<2>(row, sums);
    case 3:
      return nvfp4_rows<3>(row, sums);
    default:
      return nvfp4_rows<4>(row, sums);
  }
}

}  // namespace braid::codes
