// tile_amx-inl.h over the instructions, and the vector code that goes with them. Called only where sys::machine() has
// tiles and the kernel's permission.
#include <immintrin.h>

#include <array>
#include <utility>

#include "codec/bf16_avx512-inl.h"
#include "codec/transpose-inl.h"
#include "math/tile_config.h"
#include "math/tile_strip.h"

#define BRAID_TILE_FN __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512fp16")))
#define BRAID_FP16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512fp16")))
#define BRAID_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace braid::tiles {

const Walk& walk_amx();

namespace {

// By the rows of the last block: of a pair, whose first has 16, or alone.
template <bool kPair, size_t... kRows>
constexpr std::array<Config, 17> configs(std::index_sequence<kRows...> /*rows*/) {
  return {Config(kPair ? 16 : static_cast<int64_t>(kRows), static_cast<int64_t>(kRows))...};
}
constexpr std::array<Config, 17> kPairs = configs<true>(std::make_index_sequence<17>()),
                                 kSingles = configs<false>(std::make_index_sequence<17>());

const Config* config(int64_t first, int64_t second) {
  return first == 16 ? &kPairs[static_cast<size_t>(second)] : &kSingles[static_cast<size_t>(second)];
}

constexpr int64_t kLanes = 32;                   // BF16 values of a register
constexpr int64_t kUnit = 128, kStep = 32 * 32;  // values in four steps of NVFP4; of 32 rows in a step

// Products of FP16 numbers, 2^-14 and larger, as BF16 2^-112 times as large: exponents keep their bits, so no
// arithmetic is needed. In assembly because clang 14 has the type only if the whole file is compiled for it.
BRAID_FP16 inline __m512i times(__m512i a, __m512i b) {
  __m512i product;
  asm("vmulph %2, %1, %0" : "=v"(product) : "v"(a), "v"(b));
  return _mm512_and_si512(_mm512_srai_epi16(product, 3), _mm512_set1_epi16(static_cast<int16_t>(0x8fff)));
}

// E4M3 in the upper bytes of words as FP16 numbers 2^-8 times as large: exponent and fraction seven places up.
BRAID_FP16 inline __m512i f8_as_fp16(__m512i top) {
  return _mm512_and_si512(_mm512_srai_epi16(top, 1), _mm512_set1_epi16(static_cast<int16_t>(0xbfff)));
}

// E2M1 x 256 by code, twice, so that a fifth bit of the index is ignored.
alignas(64) constexpr uint16_t kE2m1[32] = {0x0000, 0x5800, 0x5c00, 0x5e00, 0x6000, 0x6200, 0x6400, 0x6600,
                                            0x8000, 0xd800, 0xdc00, 0xde00, 0xe000, 0xe200, 0xe400, 0xe600,
                                            0x0000, 0x5800, 0x5c00, 0x5e00, 0x6000, 0x6200, 0x6400, 0x6600,
                                            0x8000, 0xd800, 0xdc00, 0xde00, 0xe000, 0xe200, 0xe400, 0xe600};

// Each of the eight scales is for four words of codes.
BRAID_FP16 inline void decode_words(__m512i words, __m128i scales, uint16_t* out) {
  const __m512i upper = _mm512_set4_epi32(static_cast<int>(0x08800880u), static_cast<int>(0x08800880u),
                                          static_cast<int>(0x00800080u), static_cast<int>(0x00800080u));
  const __m512i scale = f8_as_fp16(_mm512_shuffle_epi8(_mm512_cvtepu8_epi64(scales), upper));
  const __m512i table = _mm512_load_si512(kE2m1);
  _mm512_store_si512(out, times(_mm512_permutexvar_epi16(words, table), scale));
  _mm512_store_si512(out + kStep, times(_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table), scale));
  _mm512_store_si512(out + 2 * kStep, times(_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), table), scale));
  _mm512_store_si512(out + 3 * kStep, times(_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), table), scale));
}

BRAID_FP16 void decode_rows(const Decode& d) {
  for (int64_t r = 0; r < d.rows; ++r) {
    const uint8_t *codes = d.codes + r * d.codes_stride, *scales = d.scales + r * d.scales_stride;
    uint16_t* out = d.out + r * kLanes;
    __builtin_prefetch(scales + 32 * d.scales_stride);
    for (int64_t k = 0; k < d.values; k += kUnit, codes += kUnit / 2, scales += kUnit / 16, out += 4 * kStep) {
      const int64_t n = d.values - k;
      __builtin_prefetch(codes + 32 * d.codes_stride);
      if (n >= kUnit) {
        decode_words(_mm512_loadu_si512(codes), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)), out);
      } else {
        decode_words(_mm512_maskz_loadu_epi16((1u << (n / 4)) - 1, codes),
                     _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << (n / 16)) - 1), scales), out);
      }
    }
  }
}

// Scales of GGUF have no sign; 0x7f is 0.
BRAID_FP16 void decode_blocks(const Decode& d) {
  constexpr int64_t kBytes = 36;
  const __m128i no_sign = _mm_set1_epi8(0x7f);
  for (int64_t r = 0; r < d.rows; ++r) {
    const uint8_t* block = d.codes + r * d.codes_stride;
    uint16_t* out = d.out + r * kLanes;
    for (int64_t k = 0; k < d.values; k += kUnit, block += 2 * kBytes, out += 4 * kStep) {
      const bool two = d.values - k > kUnit / 2;
      __builtin_prefetch(block + 32 * d.codes_stride);
      const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 4));
      const __m256i second =
          two ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + kBytes + 4)) : _mm256_setzero_si256();
      const __m128i scales = _mm_and_si128(
          _mm_unpacklo_epi32(_mm_loadu_si32(block), two ? _mm_loadu_si32(block + kBytes) : _mm_setzero_si128()),
          no_sign);
      decode_words(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1),
                   _mm_andnot_si128(_mm_cmpeq_epi8(scales, no_sign), scales), out);
    }
  }
}

BRAID_FP16 void decode(const Decode& d) { d.order == Order::nvfp4 ? decode_rows(d) : decode_blocks(d); }

}  // namespace
}  // namespace braid::tiles

#define BRAID_TILE_CONFIGURE(first, second) _tile_loadconfig(config(first, second))
#define BRAID_TILE_ZERO(t) _tile_zero(t)
#define BRAID_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#include "math/tile_amx-inl.h"

namespace braid::tiles {
namespace {

BRAID_TILE_FN void release() { _tile_release(); }

BRAID_FP16 void fp8_row(const uint8_t* codes, int64_t n, uint16_t* out) {
  const __m512i scale = _mm512_set1_epi16(0x5c00);  // 256
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask32 some = n - i >= kLanes ? 0xffffffffu : (1u << (n - i)) - 1;
    const __m512i wide = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(some, codes + i));
    const __m512i size = _mm512_and_si512(wide, _mm512_set1_epi16(0x7f)),
                  values = times(f8_as_fp16(_mm512_slli_epi16(wide, 8)), scale);
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(size, _mm512_set1_epi16(0x7f));  // damaged files are to be seen
    _mm512_mask_storeu_epi16(out + i, some, _mm512_mask_mov_epi16(values, nan, _mm512_set1_epi16(0x7fc0)));
  }
}

// 2^64 times as large: multiplied as FP32, since exponents of subnormal numbers do not just grow.
BRAID_AVX512 __m512i as_large(__m512i values) {
  const __m512 factor = _mm512_set1_ps(0x1p64f);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i low = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(values, 16)), factor));
  const __m512i high = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(values, upper)), factor));
  return _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_and_si512(high, upper));
}

// Words of 128 in the order of four steps. A register has the first 64 values of two steps.
BRAID_AVX512 void in_order(const __m512i (&in)[4], Order order, uint16_t* out, int64_t stride) {
  alignas(64) static constexpr uint16_t kNvfp4[2][32] = {
      {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
       1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61},
      {2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62,
       3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63}};
  alignas(64) static constexpr uint16_t kGgmlNvfp4[2][32] = {
      {0, 2,  4,  6,  16, 18, 20, 22, 32, 34, 36, 38, 48, 50, 52, 54,
       8, 10, 12, 14, 24, 26, 28, 30, 40, 42, 44, 46, 56, 58, 60, 62},
      {1, 3,  5,  7,  17, 19, 21, 23, 33, 35, 37, 39, 49, 51, 53, 55,
       9, 11, 13, 15, 25, 27, 29, 31, 41, 43, 45, 47, 57, 59, 61, 63}};
  for (int64_t i = 0; i < 2; ++i) {
    const __m512i pick = _mm512_load_si512(order == Order::nvfp4 ? kNvfp4[i] : kGgmlNvfp4[i]);
    const __m512i a = _mm512_permutex2var_epi16(in[0], pick, in[1]), b = _mm512_permutex2var_epi16(in[2], pick, in[3]);
    _mm512_store_si512(out + 2 * i * stride, _mm512_shuffle_i64x2(a, b, 0x44));
    _mm512_store_si512(out + (2 * i + 1) * stride, _mm512_shuffle_i64x2(a, b, 0xee));
  }
}

// Four steps of the rows, [4, 16, 32].
BRAID_AVX512 void four_steps(const Pack& p, int64_t begin, uint16_t* out) {
  for (int64_t r = 0; r < p.rows; ++r) {
    __m512i in[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t at = begin + i * kLanes, left = p.depth - at;
      const __mmask32 some = left >= kLanes ? 0xffffffffu : left <= 0 ? 0u : (1u << left) - 1;
      in[i] = _mm512_maskz_loadu_epi16(some, some ? p.row[r] + at : p.row[r]);
      if (p.codes) in[i] = as_large(in[i]);
    }
    if (p.order == Order::plain) {
      for (int64_t i = 0; i < 4; ++i) _mm512_store_si512(out + (i * 16 + r) * kLanes, in[i]);
    } else {
      in_order(in, p.order, out + r * kLanes, 16 * kLanes);
    }
  }
}

BRAID_AVX512 void pack(const Pack& p) {
  alignas(64) uint16_t steps[4 * 16 * kLanes] = {};
  const int64_t grain = p.order == Order::plain ? kLanes : kUnit, padded = (p.depth + grain - 1) / grain * grain;
  const auto rows = static_cast<__mmask16>((1u << p.rows) - 1);
  uint16_t* out = p.out;
  for (int64_t k = 0; k < padded; k += kUnit) {
    four_steps(p, k, steps);
    for (int64_t i = 0; i < 4 && k + i * kLanes < padded; ++i) {
      __m512i pairs[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) pairs[r] = _mm512_load_si512(steps + (i * 16 + r) * kLanes);
      transpose(pairs);
#pragma GCC unroll 16
      for (int pair = 0; pair < 16; ++pair, out += 2 * p.rows) _mm512_mask_storeu_epi32(out, rows, pairs[pair]);
    }
  }
}

// Columns [n, n + 16) of rows [m, m + 16).
BRAID_AVX512 void result_block(const Result& r, int64_t m, int64_t n) {
  const int64_t rows = r.rows - m < 16 ? r.rows - m : 16, cols = r.cols - n < 16 ? r.cols - n : 16;
  const auto some = static_cast<__mmask16>((1u << cols) - 1);
  const __m512 factor = _mm512_set1_ps(r.factor);
  __m512i block[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    block[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(r.sums + m * 32 + (n + i) * 16), factor));
  transpose(block);
  for (int64_t i = 0; i < rows; ++i) {
    if (r.bf16) {
      _mm256_mask_storeu_epi16(r.bf16 + (m + i) * r.y_stride + n, some, as_bf16(_mm512_castsi512_ps(block[i])));
    } else {
      _mm512_mask_storeu_epi32(r.f32 + (m + i) * r.y_stride + n, some, block[i]);
    }
  }
}

BRAID_AVX512 void result(const Result& r) {
  for (int64_t m = 0; m < r.rows; m += 16) {
    for (int64_t n = 0; n < r.cols; n += 16) result_block(r, m, n);
  }
}

BRAID_TILE_FN void strip_amx(const Strip& s) { strip(s); }

}  // namespace

const Walk& walk_amx() {
  static constexpr Walk kWalk{&strip_amx, &release, &decode, &fp8_row, &pack, &result};
  return kWalk;
}

}  // namespace braid::tiles
