// tile_amx-inl.h over the instructions, and the decoders that go with them. Called only where sys::machine() has tiles
// and the kernel's permission.
#include <immintrin.h>

#include <array>
#include <utility>

#include "math/tile_config.h"
#include "math/tile_strip.h"

// g++ 12 warns about undefined upper lanes inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace braid::tiles {
namespace {

constexpr std::array<Config, 17> kConfigs = []<size_t... kColumns>(std::index_sequence<kColumns...>) {
  return std::array<Config, 17>{Config(static_cast<int64_t>(kColumns))...};
}
(std::make_index_sequence<17>());

}  // namespace
}  // namespace braid::tiles

#define BRAID_TILE_FN __attribute__((target("amx-tile,amx-bf16")))
#define BRAID_TILE_CONFIGURE(width) _tile_loadconfig(&kConfigs[static_cast<size_t>(width)])
#define BRAID_TILE_ZERO(t) _tile_zero(t)
#define BRAID_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#include "math/tile_amx-inl.h"

#define BRAID_FP16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512fp16")))

namespace braid::tiles {

const Walk& walk_amx();

namespace {

BRAID_TILE_FN void release() { _tile_release(); }

constexpr int64_t kLanes = 32;  // BF16 values of a register

// Products of FP16 numbers, 2^-14 and larger, as BF16 2^-112 times as large: exponents keep their bits, so no
// arithmetic is needed. In assembly because clang 14 has the type only if the whole file is compiled for it.
BRAID_FP16 __m512i times(__m512i a, __m512i b) {
  __m512i product;
  asm("vmulph %2, %1, %0" : "=v"(product) : "v"(a), "v"(b));
  return _mm512_and_si512(_mm512_srai_epi16(product, 3), _mm512_set1_epi16(static_cast<int16_t>(0x8fff)));
}

// E4M3 as FP16 numbers 2^-8 times as large: the sign to the top, exponent and fraction seven places up.
BRAID_FP16 __m512i f8_as_fp16(__m256i bytes) {
  const __m512i top = _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
  return _mm512_and_si512(_mm512_srai_epi16(top, 1), _mm512_set1_epi16(static_cast<int16_t>(0xbfff)));
}

// E2M1 x 256 by code, twice, so that a fifth bit of the index is ignored.
alignas(64) constexpr uint16_t kE2m1[32] = {0x0000, 0x5800, 0x5c00, 0x5e00, 0x6000, 0x6200, 0x6400, 0x6600,
                                            0x8000, 0xd800, 0xdc00, 0xde00, 0xe000, 0xe200, 0xe400, 0xe600,
                                            0x0000, 0x5800, 0x5c00, 0x5e00, 0x6000, 0x6200, 0x6400, 0x6600,
                                            0x8000, 0xd800, 0xdc00, 0xde00, 0xe000, 0xe200, 0xe400, 0xe600};
// Which of 32 scales the lanes of the first 32 values use.
alignas(64) constexpr uint16_t kScaleOf[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// 32 values: bytes of codes spread over dwords, the high nibble in the upper half.
BRAID_FP16 __m512i nvfp4_values(__m128i codes, __m512i table, __m512i scales, __m512i scale_of) {
  const __m512i bytes = _mm512_cvtepu8_epi32(codes);
  const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  return times(_mm512_permutexvar_epi16(index, table), _mm512_permutexvar_epi16(scale_of, scales));
}

// n <= 512, a multiple of 16.
BRAID_FP16 void nvfp4_row(const uint8_t* codes, const uint8_t* scales, int64_t n, uint16_t* out) {
  const auto count = static_cast<uint32_t>(n / 16);
  const __mmask32 some = count >= 32 ? 0xffffffffu : (1u << count) - 1;
  const __m512i all = f8_as_fp16(_mm256_maskz_loadu_epi8(some, scales));
  const __m512i table = _mm512_load_si512(kE2m1), two = _mm512_set1_epi16(2);
  __m512i scale_of = _mm512_load_si512(kScaleOf);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2));
    _mm512_storeu_si512(out + i, nvfp4_values(part, table, all, scale_of));
    scale_of = _mm512_add_epi16(scale_of, two);
  }
  if (i < n) {
    const __m128i part = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_castsi512_si256(nvfp4_values(part, table, all, scale_of)));
  }
}

BRAID_FP16 void fp8_row(const uint8_t* codes, int64_t n, uint16_t* out) {
  const __m512i scale = _mm512_set1_epi16(0x5c00);  // 256
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask32 some = n - i >= kLanes ? 0xffffffffu : (1u << (n - i)) - 1;
    const __m512i narrow = f8_as_fp16(_mm256_maskz_loadu_epi8(some, codes + i));
    _mm512_mask_storeu_epi16(out + i, some, times(narrow, scale));
  }
}

BRAID_TILE_FN void strip_amx(const Strip& s) { strip(s); }

}  // namespace

const Walk& walk_amx() {
  static constexpr Walk kWalk{&strip_amx, &release, &nvfp4_row, &fp8_row};
  return kWalk;
}

}  // namespace braid::tiles
