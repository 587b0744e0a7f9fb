// 16 rows of codes become units of codec/units.h, for files compiled for AVX-512.
#pragma once
#include "codec/codes.h"
#include "codec/transpose-inl.h"
#include "codec/units.h"

namespace braid::codes {
namespace {

#define BRAID_COLUMNS __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define BRAID_LOAD __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi"), always_inline))

// n <= 32 bytes, then zeros.
BRAID_COLUMNS inline __m256i bytes_at(const uint8_t* p, int64_t n) {
  return _mm256_maskz_loadu_epi8(n >= 32 ? 0xffffffffu : (1u << n) - 1, p);
}

// Row r of 16; beyond the end of w the last one again, whose results are unused.
inline const uint8_t* row_at(const Columns& w, int64_t r) {
  return w.codes + (r < w.count ? r : w.count - 1) * w.codes_stride;
}
inline void find_rows(const Columns& w, const uint8_t* (&rows)[16]) {
  for (int64_t r = 0; r < 16; ++r) rows[r] = row_at(w, r);
}

// Lanes 4 g to 4 g + 3 of the factors of a row are those of its values 16 g to 16 g + 15. A unit wants the 16 rows side
// by side: vector g of four.
struct Factors {
  __m512 rows[4];  // vector i: of lanes g of rows 4 i to 4 i + 3

  BRAID_COLUMNS void set(int row, __m512 v) {
    rows[row / 4] = _mm512_mask_mov_ps(rows[row / 4], static_cast<__mmask16>(0x1111 << row % 4), v);
  }
  template <int kBlocks>
  BRAID_COLUMNS void store(float* out) const {
    const __m512 a = _mm512_shuffle_f32x4(rows[0], rows[1], 0x44), b = _mm512_shuffle_f32x4(rows[0], rows[1], 0xee),
                 c = _mm512_shuffle_f32x4(rows[2], rows[3], 0x44), d = _mm512_shuffle_f32x4(rows[2], rows[3], 0xee);
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(a, c, 0x88));
    out += 16;
    if (kBlocks == 4) {
      _mm512_storeu_ps(out, _mm512_shuffle_f32x4(a, c, 0xdd));
      out += 16;
    }
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(b, d, 0x88));
    if (kBlocks == 4) _mm512_storeu_ps(out + 16, _mm512_shuffle_f32x4(b, d, 0xdd));
  }
};

// Any codes: read(row) gives those of 64 values, and scales and minima in the layout of Factors.
template <int kBlocks, bool kMin, class Read>
BRAID_COLUMNS inline void write_unit(const Columns& w, std::byte* unit, const Read& read) {
  __m512i codes[16];
  Factors scales, minima;
  for (int i = 0; i < 4; ++i) scales.rows[i] = minima.rows[i] = _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    const auto part = read(row_at(w, r));
    codes[r] = part.codes;
    scales.set(r, part.scale);
    if (kMin) minima.set(r, part.min);
  }
  transpose(codes);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(unit + 64 * i, codes[i]);
  auto* factors = reinterpret_cast<float*>(unit + a8::kUnitCodes);
  scales.store<kBlocks>(factors);
  if (kMin) minima.store<kBlocks>(factors + kBlocks * 16);
}

// Codes of four bits: transposed before they are looked up, at half the work. 32 bytes of each of 16 rows, of rows r
// and r + 4 in one vector: z[i] of row i, or i + 4 from 4 on. Vector d of eight has bytes 4 d to 4 d + 3 of the 16
// rows.
BRAID_COLUMNS inline void transpose_bytes(__m512i (&z)[8], __m512i (&out)[8]) {
  __m512i t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi32(z[i], z[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(z[i], z[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    z[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    z[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    z[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    z[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm512_shuffle_i32x4(z[i], z[i + 4], 0x88);
    out[i + 4] = _mm512_shuffle_i32x4(z[i], z[i + 4], 0xdd);
  }
}
// The same of load(row), 32 bytes.
template <class Load>
BRAID_COLUMNS inline void transpose_rows(const Load& load, __m512i (&out)[8]) {
  __m512i z[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int r = i < 4 ? i : i + 4;
    z[i] = _mm512_inserti64x4(_mm512_castsi256_si512(load(r)), load(r + 4), 1);
  }
  transpose_bytes(z, out);
}
// The codes in the low nibbles, and those in the high nibbles, by a table of 16 that is repeated four times, so that
// the upper bits of an index are ignored.
BRAID_COLUMNS inline __m512i low_codes(__m512i bytes, __m512i table) { return _mm512_permutexvar_epi8(bytes, table); }
BRAID_COLUMNS inline __m512i high_codes(__m512i bytes, __m512i table) {
  return _mm512_permutexvar_epi8(_mm512_srli_epi16(bytes, 4), table);
}

}  // namespace
}  // namespace braid::codes
