// Dots of codes with 8-bit activations, for AVX-512 with VNNI. A strip of 6 rows by 32 columns holds 12 vectors of
// integer and 12 of FP32 sums. 64 values along k are 192 dots; converting blocks of 32 (16) values to FP32 costs 48
// (96) more instructions, so that two ports can reach 80% (67%) of the rate of dots.
#include "math/codes_a8_kernel.h"

#include <immintrin.h>

#include <limits>

// g++ 12 warns about undefined upper lanes inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

namespace braid::codes::a8 {
namespace {

constexpr int64_t kLanes = 16, kQuads = kStep / 4;

BRAID_DOT inline __m512i broadcast(const std::byte* p) {
  __m512i v = _mm512_set1_epi32(*reinterpret_cast<const int*>(p));
  asm("" : "+v"(v));  // or g++ 12 broadcasts once per dot
  return v;
}

// Adds a block: `x` is at its q, `start` at its sums.
template <int kRows, int kBlocks, bool kMin>
BRAID_DOT inline void block(const std::byte* start, const std::byte* x, const std::byte* low, const std::byte* high,
                            const std::byte* scales, int64_t half, __m512 (&sums)[kRows][2]) {
  __m512i dots[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = kMin ? _mm512_setzero_si512() : broadcast(start + 4 * r);
#pragma GCC unroll 8
  for (int q = 0; q < kQuads / kBlocks; ++q, x += 4 * kRows) {
    const __m512i a = _mm512_loadu_si512(low + 64 * q), b = _mm512_loadu_si512(high + 64 * q);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i v = broadcast(x + 4 * r);
      dots[r][0] = _mm512_dpbusd_epi32(dots[r][0], a, v);
      dots[r][1] = _mm512_dpbusd_epi32(dots[r][1], b, v);
    }
  }
  const __m512 a = _mm512_loadu_ps(scales), b = _mm512_loadu_ps(scales + half);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][0]), a, sums[r][0]);
    sums[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][1]), b, sums[r][1]);
    if (kMin) {
      const __m512 total = _mm512_cvtepi32_ps(broadcast(start + 4 * r));
      const std::byte* minima = scales + kBlocks * 64;
      sums[r][0] = _mm512_fmadd_ps(total, _mm512_loadu_ps(minima), sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(total, _mm512_loadu_ps(minima + half), sums[r][1]);
    }
  }
}

template <int kRows, int kBlocks, bool kMin>
BRAID_DOT void strip(const Strip& s) {
  constexpr int64_t kGrain = kStep / kBlocks, kSteps = kGroup / kStep, kBlockQuads = kQuads / kBlocks;
  const std::byte *x = s.x, *w = s.w;
  for (int64_t done = 0; done < s.steps; done += kSteps) {
    const auto* scales = reinterpret_cast<const float*>(x);
    const int64_t steps = s.steps - done < kSteps ? s.steps - done : kSteps;
    __m512 sums[kRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    for (int64_t i = 0; i < steps; ++i, w += unit_bytes(kGrain, kMin)) {
      const std::byte* start = x + 4 * kRows + i * step_bytes(kGrain, kRows);
      const std::byte* quads = start + kBlocks * kRows * 4;
      for (int b = 0; b < kBlocks; ++b) {
        block<kRows, kBlocks, kMin>(start + b * kRows * 4, quads + b * kBlockQuads * kRows * 4,
                                    w + b * kBlockQuads * 64, w + s.w_half + b * kBlockQuads * 64,
                                    w + kUnitCodes + b * 64, s.w_half, sums);
      }
    }
    x += group_bytes(kGrain, kRows);
    const bool add = s.add || done > 0;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512 scale = _mm512_set1_ps(scales[r]);
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        float* y = s.y + r * 2 * kLanes + c * kLanes;
        _mm512_storeu_ps(y, _mm512_fmadd_ps(sums[r][c], scale, add ? _mm512_loadu_ps(y) : _mm512_setzero_ps()));
      }
    }
  }
}

template <int kBlocks, bool kMin>
constexpr void (*kStrips[])(const Strip&) = {&strip<1, kBlocks, kMin>, &strip<2, kBlocks, kMin>,
                                             &strip<3, kBlocks, kMin>, &strip<4, kBlocks, kMin>,
                                             &strip<5, kBlocks, kMin>, &strip<6, kBlocks, kMin>};

BRAID_DOT __mmask16 lanes(int64_t n) {
  return n >= kLanes ? static_cast<__mmask16>(0xffff)
         : n <= 0    ? static_cast<__mmask16>(0)
                     : static_cast<__mmask16>((1u << n) - 1);
}
BRAID_DOT __m512 values_at(const Bf16* x, int64_t n) {
  const __m256i bits = _mm256_maskz_loadu_epi16(lanes(n), x);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// The scale of a group of n values. Magnitudes below 1e-30 count as zero; NaN and infinity make it NaN.
BRAID_DOT float scale_of(const Bf16* x, int64_t n) {
  __m512 most = _mm512_setzero_ps();
  __mmask16 bad = 0;
  for (int64_t k = 0; k < n; k += kLanes) {
    const __m512 size = _mm512_abs_ps(values_at(x + k, n - k));
    bad = _kor_mask16(bad, _mm512_cmp_ps_mask(size, _mm512_set1_ps(std::numeric_limits<float>::max()), _CMP_NLE_UQ));
    most = _mm512_max_ps(most, size);
  }
  const float amax = _mm512_reduce_max_ps(most);
  return bad ? std::numeric_limits<float>::quiet_NaN() : amax > 1e-30f ? amax / 127 : 1.0f;
}

}  // namespace

// Prefetches all at once: spread over the steps, they cost and gain the same (Zen 5, measured with prefetches to L1).
void strip_avx512(const Strip& s, const Codes& codes) {
  for (int64_t line = 0; line < s.ahead_lines; ++line) prefetch_to_l2(s.ahead + 64 * line);
  (codes.grain == 16 ? kStrips<4, false> : codes.factor == 1 ? kStrips<2, true> : kStrips<2, false>)[s.rows - 1](s);
}

BRAID_DOT void pack_row_avx512(const Bf16* x, int64_t depth, const Codes& codes, int64_t rows, int64_t r,
                               std::byte* packed) {
  const int64_t grain = codes.grain, blocks = kStep / grain;
  const __m128i order = codes.pairs ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                                    : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t g = 0; g < depth; g += kGroup, packed += group_bytes(grain, rows)) {
    const float scale = scale_of(x + g, depth - g < kGroup ? depth - g : kGroup);
    reinterpret_cast<float*>(packed)[r] = scale;
    const __m512 inverse = _mm512_set1_ps(1 / scale);
    std::byte* step = packed + 4 * rows;
    for (int64_t k = g; k < g + kGroup; k += kStep, step += step_bytes(grain, rows)) {
      auto* start = reinterpret_cast<int32_t*>(step) + r;
      auto* quads = reinterpret_cast<int32_t*>(step) + blocks * rows + r;
      for (int64_t i = 0; i < kStep; i += kLanes) {
        // NaN converts to the smallest integer; clamped, its sums cannot overflow.
        const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(values_at(x + k + i, depth - k - i), inverse));
        const __m512i q = _mm512_max_epi32(whole, _mm512_set1_epi32(-127));
        alignas(16) int32_t four[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(four), _mm_shuffle_epi8(_mm512_cvtepi32_epi8(q), order));
        for (int64_t j = 0; j < 4; ++j) quads[(i / 4 + j) * rows] = four[j];
        const int32_t sum = _mm512_reduce_add_epi32(q) * codes.factor;
        if (i % grain == 0) {
          start[i / grain * rows] = sum;
        } else {
          start[i / grain * rows] += sum;
        }
      }
    }
  }
}

}  // namespace braid::codes::a8
