// 32 codes of each of eight rows at a time, four by four beside each other: as units of codec/units.h, or
// multiplied at once. For files compiled for AVX2.
#pragma once
#include <algorithm>

#include "codec/codes_types_avx2-inl.h"
#include "codec/units.h"

namespace braid::codes {
namespace {

// Codes 4 q to 4 q + 3 of eight rows in vector q; scales of the rows by blocks, and minima.
template <class Type>
struct CodeTile {
  static constexpr bool kMin = Type::kZero == 0;
  static constexpr int kBlocks = kHalf / Type::kGrain;
  __m256i fours[8];
  __m256 scales[kBlocks], min;
};
template <class Type>
concept TwoInAByte = requires {
  Type::kFours;
};
template <class Type>
concept ScaledByHalves = requires {
  Type::kScaleAt;
};

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

// 16 bytes of each of eight rows: vector d has bytes 4 d to 4 d + 3.
template <class Type>
BRAID_READ inline void transpose_bytes(const Row* rows, int64_t i, __m256i (&out)[4]) {
  __m256i z[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) z[r] = join(Type::bytes(rows[r], i), Type::bytes(rows[r + 4], i));
  const __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]),
                c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
  out[0] = _mm256_unpacklo_epi64(a, c);
  out[1] = _mm256_unpackhi_epi64(a, c);
  out[2] = _mm256_unpacklo_epi64(b, d);
  out[3] = _mm256_unpackhi_epi64(b, d);
}

// The halves at that address of eight rows.
BRAID_READ inline __m256 halves_of(const Row* rows, int64_t offset) {
  const auto at = [&](int r) BRAID_READ {
    uint16_t bits;
    std::memcpy(&bits, rows[r].codes + offset, sizeof(bits));
    return bits;
  };
  __m128i eight = _mm_cvtsi32_si128(at(0));
  eight = _mm_insert_epi16(eight, at(1), 1);
  eight = _mm_insert_epi16(eight, at(2), 2);
  eight = _mm_insert_epi16(eight, at(3), 3);
  eight = _mm_insert_epi16(eight, at(4), 4);
  eight = _mm_insert_epi16(eight, at(5), 5);
  eight = _mm_insert_epi16(eight, at(6), 6);
  eight = _mm_insert_epi16(eight, at(7), 7);
  return _mm256_cvtph_ps(eight);
}
// Of four rows: lanes r of the low halves, and of the high halves.
BRAID_READ inline __m256 diagonal(const __m256* v) {
  return _mm256_blend_ps(_mm256_blend_ps(v[0], v[1], 0x22), _mm256_blend_ps(v[2], v[3], 0x88), 0xcc);
}

// Part i of eight rows.
template <class Type>
BRAID_READ inline CodeTile<Type> tile_at(const Row* rows, int64_t i) {
  CodeTile<Type> tile;
  __m256 scales[8], minima[8];
  constexpr bool kHalves = ScaledByHalves<Type>;
  if constexpr (!TwoInAByte<Type> || !kHalves) {
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) {
      const Part part = read<Type>(rows[r], i);
      tile.fours[r] = part.codes, scales[r] = part.scale, minima[r] = part.min;
    }
  }
  if constexpr (TwoInAByte<Type>) {
    __m256i bytes[4];
    transpose_bytes<Type>(rows, i, bytes);
#pragma GCC unroll 4
    for (int d = 0; d < 4; ++d) {
      tile.fours[Type::kFours[0][d]] = Type::codes(fours(bytes[d]));
      tile.fours[Type::kFours[1][d]] = Type::codes(fours(_mm256_srli_epi16(bytes[d], 4)));
    }
  } else {
    transpose(tile.fours);
  }
  if constexpr (kHalves) {
    tile.scales[0] = halves_of(rows, i * Type::kBytes + Type::kScaleAt);
    if constexpr (CodeTile<Type>::kMin) tile.min = halves_of(rows, i * Type::kBytes + Type::kMinAt);
  } else {
    const __m256 low = diagonal(scales), high = diagonal(scales + 4);
    tile.scales[0] = _mm256_permute2f128_ps(low, high, 0x20);
    if (CodeTile<Type>::kBlocks == 2)
      tile.scales[CodeTile<Type>::kBlocks - 1] = _mm256_permute2f128_ps(low, high, 0x31);
    if (CodeTile<Type>::kMin) tile.min = _mm256_permute2f128_ps(diagonal(minima), diagonal(minima + 4), 0x20);
  }
  return tile;
}

// Rows [first, first + n) of w; beyond its end the last one, whose results are unused.
template <int kCount>
inline void find_rows(const Columns& w, int64_t first, Row (&rows)[kCount]) {
  for (int64_t r = 0; r < kCount; ++r) {
    const int64_t index = std::min(first + r, w.count - 1);
    rows[r] = {.codes = w.codes + index * w.codes_stride,
               .scales = w.scales ? w.scales + index * w.scales_stride : nullptr,
               .depth = w.depth,
               .packed = {}};
  }
}

// Units of codes_a8_kernel.h; values beyond the depth repeat the part before it.
template <class Type>
BRAID_DOT void columns_of(const Columns& w, int64_t k, int64_t n, std::byte* units) {
  using Tiled = CodeTile<Type>;
  constexpr int64_t kStepBlocks = kStep / Type::kGrain;
  Row rows[16];
  find_rows(w, 0, rows);
  for (int64_t at = k; at < k + n; at += kStep, units += a8::unit_bytes(Type::kGrain, Tiled::kMin)) {
    auto* factors = reinterpret_cast<float*>(units + a8::kUnitCodes);
    for (int64_t i = 0; i < 4; ++i) {  // halves of the rows, halves of the step
      const int64_t first = i / 2 * 8, side = i % 2, from = at + side * kHalf;
      const Tiled tile = tile_at<Type>(rows + first, (from < w.depth ? from : at) / kHalf);
      std::byte* lines = units + side * 512 + first * 4;
#pragma GCC unroll 8
      for (int64_t q = 0; q < 8; ++q) _mm256_storeu_si256(reinterpret_cast<__m256i*>(lines + 64 * q), tile.fours[q]);
      for (int64_t b = 0; b < Tiled::kBlocks; ++b)
        _mm256_storeu_ps(factors + (side * Tiled::kBlocks + b) * 16 + first, tile.scales[b]);
      if (Tiled::kMin) _mm256_storeu_ps(factors + (kStepBlocks + side) * 16 + first, tile.min);
    }
  }
}

// A few rows of x by eight rows of w, without units. Lanes of the sums are rows of w; bit-identical to strips.
template <class Type, int kRows>
struct Few {
  using Tiled = CodeTile<Type>;
  static constexpr bool kDigits = Type::kTop > 127;  // codes are taken as two digits of 4 bits
  static constexpr int kQuads = 8 / Tiled::kBlocks, kSpan = std::min(a8::quads_of_a_sum(Type::kTop), kQuads);

  // Sums of `kQuads` quads of codes with those of a row of x.
  BRAID_READ static __m256i dots(const __m256i* codes, const std::byte* x, __m256i sum) {
    const __m256i one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
#pragma GCC unroll 4
    for (int begin = 0; begin < kQuads; begin += kSpan) {
      __m256i low = _mm256_setzero_si256(), high = low;
#pragma GCC unroll 8
      for (int q = begin; q < begin + kSpan; ++q) {
        const __m256i v = _mm256_set1_epi32(*reinterpret_cast<const int*>(x + 4 * kRows * q));
        if (kDigits) {
          low = _mm256_add_epi16(low, _mm256_maddubs_epi16(fours(codes[q]), v));
          high = _mm256_add_epi16(high, _mm256_maddubs_epi16(fours(_mm256_srli_epi16(codes[q], 4)), v));
        } else {
          low = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes[q], v));
        }
      }
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, one));
      if (kDigits) sum = _mm256_add_epi32(sum, _mm256_madd_epi16(high, sixteen));
    }
    return sum;
  }

  // Part i of eight rows; `start` and `x` are the sums and quads of its half step.
  BRAID_READ static void part(const Row* rows, int64_t i, const int* start, const std::byte* x, __m256 (&sums)[kRows]) {
    const Tiled tile = tile_at<Type>(rows, i);
#pragma GCC unroll 2
    for (int b = 0; b < Tiled::kBlocks; ++b) {
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        const __m256i zero = Tiled::kMin ? _mm256_setzero_si256() : _mm256_set1_epi32(start[b * kRows + r]);
        const __m256i all = dots(tile.fours + b * kQuads, x + (b * kQuads * kRows + r) * 4, zero);
        sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), tile.scales[b], sums[r]);
        if (Tiled::kMin) sums[r] = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(start[r])), tile.min, sums[r]);
      }
    }
  }

  // Rows [first, first + 8) of w.
  BRAID_DOT static void run(const Columns& w, int64_t first, const std::byte* x, float* y) {
    Row rows[8];
    find_rows(w, first, rows);
    const int64_t parts = (w.depth + kHalf - 1) / kHalf;
    __m256 totals[kRows], sums[kRows];
    for (__m256& total : totals) total = _mm256_setzero_ps();
    for (int64_t i = 0; i < parts; x += a8::group_bytes(Type::kGrain, kRows)) {
      for (__m256& sum : sums) sum = _mm256_setzero_ps();
      for (const int64_t end = std::min(i + a8::kGroup / kHalf, parts); i < end; ++i) {
        // The same part of the eight rows below is prefetched meanwhile.
        const uint8_t* below = w.codes + (first + 8) * w.codes_stride + 8 * i * w.codes_stride / parts;
        for (int line = 0; line < 3; ++line) asm volatile("prefetcht0 %0" : : "m"(below[64 * line]));
        const std::byte* step = x + 4 * kRows + i / 2 % 2 * a8::step_bytes(Type::kGrain, kRows);
        const int64_t side = i % 2;
        part(rows, i, reinterpret_cast<const int*>(step) + side * Tiled::kBlocks * kRows,
             step + (2 * Tiled::kBlocks + 8 * side) * kRows * 4, sums);
      }
      for (int r = 0; r < kRows; ++r)
        totals[r] = _mm256_fmadd_ps(sums[r], _mm256_set1_ps(reinterpret_cast<const float*>(x)[r]), totals[r]);
    }
    for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(y + kFewCols * r + first, totals[r]);
  }
};
template <class Type>
void few_of(const Columns& w, const std::byte* x, int64_t rows, float* y) {
  constexpr void (*kBy[])(const Columns&, int64_t, const std::byte*, float*) = {&Few<Type, 1>::run, &Few<Type, 2>::run,
                                                                                &Few<Type, 3>::run};
  for (int64_t first = 0; first < w.count; first += 8) kBy[rows - 1](w, first, x, y);
}

}  // namespace
}  // namespace braid::codes
