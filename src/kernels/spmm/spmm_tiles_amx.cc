// spmm_tiles_amx-inl.h over the instructions, and with AVX-512 what goes into tiles and comes out of them. Called only
// where sys::machine() has tiles, the kernel's permission and BF16 conversions.
#include <immintrin.h>

#include "kernels/spmm/spmm_tiles_code.h"
#include "math/tile_config.h"

// g++ 12 warns about undefined upper lanes inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_TILE_FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))
#define BRAID_TILE_ZERO(t) _tile_zero(t)
#define BRAID_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)

namespace braid::spmm_tiles {
namespace {

template <int kGroups>
BRAID_TILE_FN inline void interleave(const Products& p, const int32_t* source, const Ahead& ahead) {
  uint16_t* to = p.interleaved;
  for (int64_t k = 0; k < kSources; k += 2, to += 32) {
    const uint16_t *even = p.x + source[k] * p.x_stride, *odd = p.x + source[k + 1] * p.x_stride;
    const uint16_t *fetch = ahead.x + ahead.source[k] * p.x_stride, *too = ahead.x + ahead.source[k + 1] * p.x_stride;
    for (int g = 0; g < kGroups; ++g) {
      _mm_prefetch(fetch + kGroup * g, _MM_HINT_T0);
      _mm_prefetch(too + kGroup * g, _MM_HINT_T0);
      const __m512i a = _mm512_loadu_si512(even + kGroup * g), b = _mm512_loadu_si512(odd + kGroup * g);
      _mm512_store_si512(to + 4 * kTile * g, _mm512_unpacklo_epi16(a, b));
      _mm512_store_si512(to + 4 * kTile * g + 2 * kTile, _mm512_unpackhi_epi16(a, b));
    }
  }
  asm volatile("" ::: "memory");  // the compiler does not know that loads of tiles read memory
}

}  // namespace
}  // namespace braid::spmm_tiles

#include "kernels/spmm/spmm_tiles_amx-inl.h"

namespace braid::spmm_tiles {
namespace {

BRAID_TILE_FN void begin() {
  static constexpr tiles::Config kConfig{};
  _tile_loadconfig(&kConfig);
}

BRAID_TILE_FN void end() {
  _tile_release();
  _mm_sfence();
}

BRAID_TILE_FN void ones(const Factors& f) {
  const __m512i one = _mm512_set1_epi16(0x3f80);
  for (int64_t s = 0; s < f.steps; ++s) {
    for (int64_t r = 0; r < kRows; ++r)
      _mm512_store_si512(f.out + s * kStep + r * kSources, _mm512_maskz_mov_epi16(f.mask[s * kRows + r], one));
  }
}

// The factors of up to 16 edges from `at` on.
BRAID_TILE_FN inline __m512 factors_of(const Factors& f, int64_t at, int count) {
  const auto some = static_cast<__mmask16>((1u << count) - 1);
  __m512 v = _mm512_set1_ps(1);
  if (f.edge && f.order) {
    const __m512i place = _mm512_maskz_loadu_epi32(some, f.order + at);
    v = _mm512_mask_i32gather_ps(v, some, place, f.edge, 4);
  } else if (f.edge) {
    v = _mm512_maskz_loadu_ps(some, f.edge + at);
  }
  if (!f.scale) return v;
  const __m512i source = _mm512_maskz_loadu_epi32(some, f.source + at);
  return _mm512_mul_ps(v, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), some, source, f.scale, 4));
}

BRAID_TILE_FN inline __m512 widened(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

BRAID_TILE_FN inline __m512i rounded(__m512 low, __m512 high) {
  const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
  return reinterpret_cast<__m512i>(pairs);
}

BRAID_TILE_FN bool factors(const Factors& f) {
  if (!f.edge && !f.scale) {
    ones(f);
    return false;
  }
  __m512i left = _mm512_setzero_si512();
  uint16_t* out = f.out;
  for (int64_t s = 0; s < f.steps; ++s, out += kStep) {
    for (int64_t r = 0; r < kRows; ++r) {
      const uint32_t mask = f.mask[s * kRows + r];
      const int low = __builtin_popcount(mask & 0xffff), count = __builtin_popcount(mask);
      const __m512 a = _mm512_maskz_expand_ps(static_cast<__mmask16>(mask), factors_of(f, f.at[r], low)),
                   b = _mm512_maskz_expand_ps(static_cast<__mmask16>(mask >> 16),
                                              factors_of(f, f.at[r] + low, count - low));
      f.at[r] += count;
      const __m512i near = rounded(a, b);
      const __m512i rest = rounded(_mm512_sub_ps(a, widened(_mm512_castsi512_si256(near))),
                                   _mm512_sub_ps(b, widened(_mm512_extracti64x4_epi64(near, 1))));
      left = _mm512_or_si512(left, rest);
      _mm512_store_si512(out + r * kSources, near);
      _mm512_store_si512(out + kPlane + r * kSources, rest);
    }
  }
  return _mm512_test_epi16_mask(left, _mm512_set1_epi16(0x7fff)) != 0;  // zeros of either sign are none
}

// Sixteen channels: sums, and the terms of their row.
BRAID_TILE_FN inline __m512 with_terms(__m512 y, const OwnTerms& own, int64_t row, int64_t channel) {
  y = _mm512_mul_ps(y, _mm512_set1_ps(own.share[row]));
  for (int k = 0; k < 2; ++k) {
    if (const uint16_t* x = own.x[k][row])
      y = _mm512_fmadd_ps(_mm512_set1_ps(own.factor[k][row]),
                          widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + channel))), y);
  }
  return y;
}

BRAID_TILE_FN bool put(const Put& p) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  const __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000));
  bool finite = true;
  for (int64_t g = 0; g < p.groups; ++g) {
    for (int64_t r = 0; r < p.rows; ++r) {
      const float* sums = p.sums + 2 * g * kTile + r * 16;
      const __m512 a = _mm512_load_ps(sums), b = _mm512_load_ps(sums + kTile);
      const __mmask16 fine = _mm512_cmp_ps_mask(_mm512_abs_ps(a), infinity, _CMP_LT_OQ) &
                             _mm512_cmp_ps_mask(_mm512_abs_ps(b), infinity, _CMP_LT_OQ);
      finite = finite && fine == 0xffff;
      __m512 low = _mm512_permutex2var_ps(a, first, b), high = _mm512_permutex2var_ps(a, second, b);
      const int64_t channel = p.channel + kGroup * g, at = r * p.y_stride + channel;
      if (p.own) low = with_terms(low, *p.own, r, channel), high = with_terms(high, *p.own, r, channel + 16);
      if (p.y_bf16) {
        const __m512i y = rounded(low, high);
        p.past_caches ? _mm512_stream_si512(reinterpret_cast<__m512i*>(p.y_bf16 + at), y)
                      : _mm512_storeu_si512(p.y_bf16 + at, y);
      } else if (p.past_caches) {
        _mm512_stream_ps(p.y + at, low);
        _mm512_stream_ps(p.y + at + 16, high);
      } else {
        _mm512_storeu_ps(p.y + at, low);
        _mm512_storeu_ps(p.y + at + 16, high);
      }
    }
  }
  return finite;
}

}  // namespace

const Code kAmxCode = {&begin, &end, &factors, &products, &put};

}  // namespace braid::spmm_tiles
