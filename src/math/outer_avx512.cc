// The block of outer.h with vdpbf16ps. Two rows of b are zipped as they are loaded, so that a register holds pairs of k
// for 16 columns; tiles of 6 rows by 64 columns take 24 of 32 registers. Zipping works in quarters of a register: the
// two halves of 32 columns are put in order when c is loaded and stored.
#include <immintrin.h>

#include "math/outer.h"

// g++ 12 takes the undefined upper lanes inside its own intrinsics for mistakes of ours (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace braid::outer {
namespace {

constexpr int kTileRows = 6, kZips = 2;  // of 32 columns each
constexpr int64_t kZipCols = 32;
constexpr int64_t kDepth = 512;  // 64 columns of b: 64 KiB, from L2 once for every 6 rows

// Sums of 32 columns: `low` has quarters 0 and 2 of each half, `high` the others.
struct Zip {
  __m512 low, high;
};

template <bool kMasked>
BRAID_DOT inline Zip load_sums(const float* c, __mmask32 mask) {
  const auto m0 = static_cast<__mmask16>(mask), m1 = static_cast<__mmask16>(mask >> 16);
  const __m512 c0 = kMasked ? _mm512_maskz_loadu_ps(m0, c) : _mm512_loadu_ps(c);
  const __m512 c1 = kMasked ? _mm512_maskz_loadu_ps(m1, c + 16) : _mm512_loadu_ps(c + 16);
  return {_mm512_shuffle_f32x4(c0, c1, 0x88), _mm512_shuffle_f32x4(c0, c1, 0xdd)};
}

template <bool kMasked>
BRAID_DOT inline void store_sums(const Zip& z, float* c, __mmask32 mask) {
  const __m512 t0 = _mm512_shuffle_f32x4(z.low, z.high, 0x44), t1 = _mm512_shuffle_f32x4(z.low, z.high, 0xee);
  const __m512 c0 = _mm512_shuffle_f32x4(t0, t0, 0xd8), c1 = _mm512_shuffle_f32x4(t1, t1, 0xd8);
  if (kMasked) {
    _mm512_mask_storeu_ps(c, static_cast<__mmask16>(mask), c0);
    _mm512_mask_storeu_ps(c + 16, static_cast<__mmask16>(mask >> 16), c1);
  } else {
    _mm512_storeu_ps(c, c0);
    _mm512_storeu_ps(c + 16, c1);
  }
}

template <bool kMasked>
BRAID_DOT inline __m512i load_row(const uint16_t* b, __mmask32 mask) {
  return kMasked ? _mm512_maskz_loadu_epi16(mask, b) : _mm512_loadu_si512(b);
}

// One pair of k: zipped rows b0 and b1 (zeros where there is no second) meet kRows pairs of a.
template <int kRows, int kZip, bool kMasked>
BRAID_DOT inline void step(const uint32_t* a, int64_t a_row, const uint16_t* b0, const uint16_t* b1, __mmask32 mask,
                           Zip (&acc)[kRows][kZip]) {
  __m512bh v[2 * kZip];
#pragma GCC unroll 2
  for (int z = 0; z < kZip; ++z) {
    const __m512i r0 = load_row<kMasked>(b0 + z * kZipCols, mask);
    const __m512i r1 = b1 ? load_row<kMasked>(b1 + z * kZipCols, mask) : _mm512_setzero_si512();
    v[2 * z] = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(r0, r1));
    v[2 * z + 1] = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(r0, r1));
  }
#pragma GCC unroll 6
  for (int m = 0; m < kRows; ++m) {
    const __m512bh u = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[m * a_row])));
#pragma GCC unroll 2
    for (int z = 0; z < kZip; ++z) {
      acc[m][z].low = _mm512_dpbf16_ps(acc[m][z].low, u, v[2 * z]);
      acc[m][z].high = _mm512_dpbf16_ps(acc[m][z].high, u, v[2 * z + 1]);
    }
  }
}

template <int kRows, int kZip, bool kMasked>
BRAID_DOT inline void tile(const OuterBlock& t, int64_t m, int64_t n, __mmask32 mask) {
  float* c = t.c + m * t.c_stride + n;
  Zip acc[kRows][kZip];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int z = 0; z < kZip; ++z) {
      if (t.add) {
        acc[i][z] = load_sums<kMasked>(c + i * t.c_stride + z * kZipCols, mask);
      } else {
        acc[i][z] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      }
    }
  }
  const uint32_t* a = static_cast<const uint32_t*>(t.a) + m * t.a_row;
  const uint16_t* b = static_cast<const uint16_t*>(t.b) + n;
  int64_t k = t.depth;
  for (; k >= 2; k -= 2, a += t.a_step, b += 2 * t.b_stride) {
    step<kRows, kZip, kMasked>(a, t.a_row, b, b + t.b_stride, mask, acc);
  }
  if (k > 0) step<kRows, kZip, kMasked>(a, t.a_row, b, nullptr, mask, acc);
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int z = 0; z < kZip; ++z) store_sums<kMasked>(acc[i][z], c + i * t.c_stride + z * kZipCols, mask);
  }
}

template <int kZip, bool kMasked>
BRAID_DOT void column(const OuterBlock& t, int64_t n, __mmask32 mask) {
  int64_t m = 0;
  for (; m + kTileRows <= t.rows; m += kTileRows) tile<kTileRows, kZip, kMasked>(t, m, n, mask);
  switch (t.rows - m) {
    case 5:
      return tile<5, kZip, kMasked>(t, m, n, mask);
    case 4:
      return tile<4, kZip, kMasked>(t, m, n, mask);
    case 3:
      return tile<3, kZip, kMasked>(t, m, n, mask);
    case 2:
      return tile<2, kZip, kMasked>(t, m, n, mask);
    case 1:
      return tile<1, kZip, kMasked>(t, m, n, mask);
    default:
      return;
  }
}

}  // namespace

BRAID_DOT void dot_bf16(const OuterBlock& block) {
  for (int64_t k = 0; k < block.depth || k == 0; k += kDepth) {
    OuterBlock t = block;
    t.a = static_cast<const uint32_t*>(block.a) + k / 2 * block.a_step;
    t.b = static_cast<const uint16_t*>(block.b) + k * block.b_stride;
    t.depth = block.depth - k < kDepth ? block.depth - k : kDepth;
    t.add = block.add || k > 0;
    int64_t n = 0;
    for (; n + kZips * kZipCols <= t.cols; n += kZips * kZipCols) column<kZips, false>(t, n, 0);
    for (; n + kZipCols <= t.cols; n += kZipCols) column<1, false>(t, n, 0);
    if (n < t.cols) column<1, true>(t, n, (1u << (t.cols - n)) - 1);
  }
}

}  // namespace braid::outer
