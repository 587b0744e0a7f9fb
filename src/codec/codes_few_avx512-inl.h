// One to four rows of x by 16 rows of w in one go, for files compiled for AVX-512: without units, which cost more to
// make than so few rows save. The dots of a row of w lie along k; their sums over a block are transposed, so that lanes
// are rows of w and blocks are added in the order of strips, with the same bits. For 128 values of a row that is about
// 13 instructions, against 72 bytes read.
//   w  [16, depth] codes and scales, row-major (Columns)
//   x  [rows, depth] INT8, in groups of a8::kGroup values with their scales and sums (codec/units.h)
//   y  [rows, 16] F32
#pragma once
#include "codec/codes_columns-inl.h"

namespace braid::codes {
namespace {

// All that the readers of codes are compiled for, or they would not be inlined; no instruction of BF16 is used.
#define BRAID_FEW __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx512bf16,f16c")))

// Lanes 4 b to 4 b + 3 of vector c to the sum of their four, of vectors 0 to 3 next to each other.
BRAID_FEW inline __m512i sums_of_fours(const __m512i (&v)[4]) {
  const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
// The same of pairs of lanes: the first pair of each four lanes, then the second.
BRAID_FEW inline void sums_of_pairs(const __m512i (&v)[4], __m512i& first, __m512i& second) {
  __m512i both[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = _mm512_castsi512_ps(v[2 * i]), b = _mm512_castsi512_ps(v[2 * i + 1]);
    both[i] = _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                               _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
  }
  const __m512 a = _mm512_castsi512_ps(both[0]), b = _mm512_castsi512_ps(both[1]);
  first = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
  second = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
}
// Four vectors of four 128-bit lanes.
BRAID_FEW inline void transpose_lanes(const __m512i (&v)[4], __m512i& a, __m512i& b, __m512i& c, __m512i& d) {
  const __m512i low = _mm512_shuffle_i32x4(v[0], v[1], 0x44), high = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
  const __m512i low2 = _mm512_shuffle_i32x4(v[2], v[3], 0x44), high2 = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
  a = _mm512_shuffle_i32x4(low, low2, 0x88), b = _mm512_shuffle_i32x4(low, low2, 0xdd);
  c = _mm512_shuffle_i32x4(high, high2, 0x88), d = _mm512_shuffle_i32x4(high, high2, 0xdd);
}

// Row r of kRows in a step of x: 16 fours of q.
template <int kRows>
BRAID_FEW inline __m512i quads_of(const std::byte* quads, int r) {
  const __m512i first = _mm512_loadu_si512(quads);
  if (kRows == 1) return first;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i index = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(kRows)), _mm512_set1_epi32(r));
  const __m512i two = _mm512_permutex2var_epi32(first, index, _mm512_loadu_si512(quads + 64));
  if (kRows == 2) return two;
  const __m512i third = _mm512_loadu_si512(quads + 128);
  const __m512i beyond = _mm512_permutex2var_epi32(third, index, kRows == 3 ? third : _mm512_loadu_si512(quads + 192));
  return _mm512_mask_mov_epi32(two, _mm512_cmpge_epi32_mask(index, _mm512_set1_epi32(32)), beyond);
}

// 16 rows of w; missing ones repeat the last.
struct FewRows {
  const uint8_t *codes[16], *scales[16];  // of a row; scales where they are apart
  int64_t depth;
};

// A group of 128 values of 16 rows of w: kBlocks blocks, of which a row's end may cut some off; x is zero there. `Type`
// reads the codes of a row in two vectors, finds the values of x that belong to them (set_x), multiplies them to kDots
// vectors, sums those of four rows over blocks (add_up), and reads the scales of all rows.
template <class Type, int kRows>
BRAID_FEW inline void few_group(const FewRows& w, int64_t g, const std::byte* x, __m512 (&totals)[kRows]) {
  constexpr int kBlocks = Type::kBlocks, kEach = kBlocks / 2;
  constexpr int64_t kGrain = a8::kGroup / kBlocks;
  const int64_t left = w.depth - g * a8::kGroup;
  const std::byte* steps[2] = {x + 4 * kRows, x + 4 * kRows + a8::step_bytes(kGrain, kRows)};
  __m512i first_x[kRows], second_x[kRows];
  for (int r = 0; r < kRows; ++r) {
    Type::set_x(quads_of<kRows>(steps[0] + kEach * 4 * kRows, r), quads_of<kRows>(steps[1] + kEach * 4 * kRows, r),
                first_x[r], second_x[r]);
  }
  typename Type::Scales scales;
  __m512i sums[kRows][kBlocks / 4][4];
#pragma GCC unroll 4
  for (int four = 0; four < 4; ++four) {
    __m512i dots[kRows][Type::kDots][4];
    typename Type::Codes codes[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      codes[c] = Type::read(w.codes[4 * four + c], g, left);
      const __m512i low = Type::low(codes[c]), high = Type::high(codes[c]);
      for (int r = 0; r < kRows; ++r) {
        const __m512i zero = _mm512_setzero_si512(), half = _mm512_dpbusd_epi32(zero, low, first_x[r]);
        dots[r][0][c] = Type::kDots == 2 ? half : _mm512_dpbusd_epi32(half, high, second_x[r]);
        if (Type::kDots == 2) dots[r][1][c] = _mm512_dpbusd_epi32(zero, high, second_x[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) Type::add_up(dots[r], four, sums[r]);
    scales.set(w, four, g, left, codes);
  }
  scales.finish();
  for (int r = 0; r < kRows; ++r) {
    __m512i blocks[kBlocks];
    Type::order(sums[r], blocks);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
      const __m512i start = _mm512_set1_epi32(reinterpret_cast<const int*>(steps[b / kEach])[b % kEach * kRows + r]);
      const __m512i all = Type::kMin ? blocks[b] : _mm512_add_epi32(blocks[b], start);
      sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), scales.of(b), sum);
      if (Type::kMin) sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(start), scales.min(b), sum);
    }
    totals[r] = _mm512_fmadd_ps(sum, _mm512_set1_ps(reinterpret_cast<const float*>(x)[r]), totals[r]);
  }
}

template <class Type, int kRows>
BRAID_FEW void few_rows(const Columns& w, const std::byte* x, float* y) {
  constexpr int64_t kGrain = a8::kGroup / Type::kBlocks;
  FewRows rows{.codes = {}, .scales = {}, .depth = w.depth};
  find_rows(w, rows.codes);
  for (int64_t r = 0; r < 16; ++r) rows.scales[r] = w.scales + (r < w.count ? r : w.count - 1) * w.scales_stride;
  const int64_t groups = (w.depth + a8::kGroup - 1) / a8::kGroup;
  __m512 totals[kRows];
  for (__m512& total : totals) total = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, x += a8::group_bytes(kGrain, kRows)) {
    // The 16 rows below are prefetched meanwhile.
    a8::prefetch_part(w.codes + 16 * w.codes_stride, 16 * w.codes_stride, g, groups);
    if (w.scales) a8::prefetch_part(w.scales + 16 * w.scales_stride, 16 * w.scales_stride, g, groups);
    few_group<Type, kRows>(rows, g, x, totals);
  }
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(y + 16 * r, totals[r]);
}
template <class Type>
void few_of(const Columns& w, const std::byte* x, int64_t rows, float* y) {
  constexpr void (*kBy[])(const Columns&, const std::byte*, float*) = {&few_rows<Type, 1>, &few_rows<Type, 2>,
                                                                       &few_rows<Type, 3>, &few_rows<Type, 4>};
  kBy[rows - 1](w, x, y);
}

// n <= 64 bytes, then zeros.
BRAID_FEW inline __m512i bytes64_at(const uint8_t* p, int64_t n) {
  return _mm512_maskz_loadu_epi8(n >= 64 ? ~uint64_t{0} : n <= 0 ? 0 : (uint64_t{1} << n) - 1, p);
}

}  // namespace
}  // namespace braid::codes
