// The strips of codes_a8.h for AVX2: bit-identical to those for AVX-512. With AVX-VNNI half as many registers of half
// the width hold the sums of 3 rows by 16 columns: 12 of integers and of FP32, two of codes, one of x. Without it bytes
// are multiplied to pairs of 16 bits, which are summed for as long as they cannot overflow; codes above 127 are taken
// as two digits of 4 bits.
#include <immintrin.h>

#include "codec/codes_pack_avx2-inl.h"
#include "math/codes_a8_kernel.h"

// g++ 12 warns about undefined upper lanes inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define BRAID_DOT __attribute__((target("avx2,fma")))
#define BRAID_PART __attribute__((target("avx2,fma"), always_inline))

namespace braid::codes::a8 {
namespace {

constexpr int64_t kLanes = 8, kQuads = kStep / 4, kGroupSteps = kGroup / kStep;

BRAID_PART inline __m256i broadcast(const std::byte* p) {
  __m256i v = _mm256_set1_epi32(*reinterpret_cast<const int*>(p));
  asm("" : "+x"(v));  // or g++ 12 broadcasts once per dot
  return v;
}
BRAID_PART inline void dot(__m256i& sum, __m256i codes, __m256i x) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(x));
}
BRAID_PART inline __m256i load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
BRAID_PART inline __m256 floats(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }

// What sums the dots of a block of codes: AVX-VNNI, or pairs of 16 bits for codes up to kTop.
struct Vnni {
  template <int kQuads, int kRows>
  BRAID_PART static void add(const std::byte* lines, const std::byte* quads, int64_t rows, __m256i (&dots)[kRows][2]) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q, quads += 4 * rows, lines += 64) {
      const __m256i low = load(lines), high = load(lines + 32);
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        const __m256i v = broadcast(quads + 4 * r);
        dot(dots[r][0], low, v);
        dot(dots[r][1], high, v);
      }
    }
  }
};
template <int kTop>
struct Pairs {
  static constexpr bool kDigits = kTop > 127;
  static constexpr int kSpan = quads_of_a_sum(kTop);

  // Digit kDigit of codes, or the whole codes.
  template <int kDigit>
  BRAID_PART static __m256i digit(const std::byte* p) {
    const __m256i codes = load(p);
    if (!kDigits) return codes;
    return _mm256_and_si256(kDigit == 0 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
  }
  template <int kQuads, int kDigit, int kRows>
  BRAID_PART static void add_digit(const std::byte* lines, const std::byte* quads, int64_t rows,
                                   __m256i (&dots)[kRows][2]) {
    __m256i pairs[kRows][2];
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q, quads += 4 * rows, lines += 64) {
      const __m256i low = digit<kDigit>(lines), high = digit<kDigit>(lines + 32);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i v = broadcast(quads + 4 * r);
        const __m256i first = _mm256_maddubs_epi16(low, v), second = _mm256_maddubs_epi16(high, v);
        pairs[r][0] = q == 0 ? first : _mm256_add_epi16(pairs[r][0], first);
        pairs[r][1] = q == 0 ? second : _mm256_add_epi16(pairs[r][1], second);
        asm volatile("" : "+x"(pairs[r][0]), "+x"(pairs[r][1]));  // or g++ 12 multiplies all first, and spills
      }
    }
    const __m256i worth = _mm256_set1_epi16(kDigit == 0 ? 1 : 16);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < 2; ++c) dots[r][c] = _mm256_add_epi32(dots[r][c], _mm256_madd_epi16(pairs[r][c], worth));
    }
  }
  template <int kQuads, int kRows>
  BRAID_PART static void add(const std::byte* lines, const std::byte* quads, int64_t rows, __m256i (&dots)[kRows][2]) {
    constexpr int kEach = kSpan < kQuads ? kSpan : kQuads;
#pragma GCC unroll 4
    for (int q = 0; q < kQuads; q += kEach, quads += kEach * 4 * rows, lines += kEach * 64) {
      add_digit<kEach, 0>(lines, quads, rows, dots);
      if (kDigits) add_digit<kEach, 1>(lines, quads, rows, dots);
    }
  }
};

struct Ahead {
  const std::byte* at;
  int64_t each;  // lines per step

  BRAID_PART void prefetch() {
    for (const std::byte* end = at + 64 * each; at < end; at += 64) prefetch_to_l2(at);
  }
};

// kRows rows of a block of s.rows, from row `first` on, by one unit of 16 columns per step.
template <class Dots, int kRows, int kBlocks, bool kMin>
BRAID_DOT void part(const Strip& s, int64_t first, int64_t column, Ahead& ahead) {
  constexpr int64_t kGrain = kStep / kBlocks, kBlockQuads = kQuads / kBlocks;
  const std::byte *x = s.x + 4 * first, *w = s.w + (column == 0 ? 0 : s.w_half);
  const int64_t rows = s.rows;
  for (int64_t done = 0; done < s.steps; done += kGroupSteps, x += group_bytes(kGrain, rows)) {
    const int64_t steps = s.steps - done < kGroupSteps ? s.steps - done : kGroupSteps;
    __m256 sums[kRows][2];
    for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_ps();
    for (int64_t i = 0; i < steps; ++i, w += unit_bytes(kGrain, kMin)) {
      const std::byte* start = x + 4 * rows + i * step_bytes(kGrain, rows);
      ahead.prefetch();
      const std::byte *quads = start + kBlocks * rows * 4, *lines = w, *scales = w + kUnitCodes;
      for (int b = 0; b < kBlocks; ++b, start += 4 * rows, scales += 64) {
        __m256i dots[kRows][2];
        for (int r = 0; r < kRows; ++r)
          dots[r][0] = dots[r][1] = kMin ? _mm256_setzero_si256() : broadcast(start + 4 * r);
        Dots::template add<kBlockQuads>(lines, quads, rows, dots);
        quads += kBlockQuads * 4 * rows, lines += kBlockQuads * 64;
        for (int r = 0; r < kRows; ++r) {
          sums[r][0] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][0]), floats(scales), sums[r][0]);
          sums[r][1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][1]), floats(scales + 32), sums[r][1]);
          if (!kMin) continue;
          const __m256 total = _mm256_cvtepi32_ps(broadcast(start + 4 * r));
          sums[r][0] = _mm256_fmadd_ps(total, floats(scales + kBlocks * 64), sums[r][0]);
          sums[r][1] = _mm256_fmadd_ps(total, floats(scales + kBlocks * 64 + 32), sums[r][1]);
        }
      }
    }
    const bool add = s.add || done > 0;
    for (int r = 0; r < kRows; ++r) {
      const __m256 scale = _mm256_set1_ps(reinterpret_cast<const float*>(x)[r]);
      float* y = s.y + (first + r) * 2 * kUnitRows + column;
      for (int c = 0; c < 2; ++c, y += kLanes)
        _mm256_storeu_ps(y, _mm256_fmadd_ps(sums[r][c], scale, add ? _mm256_loadu_ps(y) : _mm256_setzero_ps()));
    }
  }
}

// Weights are prefetched a few lines per step: all at once they keep a core of a Zen 3 waiting.
template <class Dots, int kBlocks, bool kMin>
void strip(const Strip& s) {
  const int64_t parts = s.rows == 4 ? 1 : (s.rows + 2) / 3, steps = 2 * parts * s.steps;
  Ahead ahead{.at = s.ahead, .each = (s.ahead_lines + steps - 1) / steps};
  for (int64_t column = 0; column < 2 * kUnitRows; column += kUnitRows) {
    int64_t r = 0;
    if (s.rows == 4) part<Dots, 4, kBlocks, kMin>(s, r, column, ahead), r = 4;
    for (; r + 3 <= s.rows; r += 3) part<Dots, 3, kBlocks, kMin>(s, r, column, ahead);
    if (s.rows - r == 2) part<Dots, 2, kBlocks, kMin>(s, r, column, ahead);
    if (s.rows - r == 1) part<Dots, 1, kBlocks, kMin>(s, r, column, ahead);
  }
}

template <class Dots>
void strip_of(const Strip& s, const Codes& codes) {
  (codes.grain == 16 ? &strip<Dots, 4, false> : codes.factor == 1 ? &strip<Dots, 2, true> : &strip<Dots, 2, false>)(s);
}

}  // namespace

void strip_avx2_vnni(const Strip& s, const Codes& codes) { strip_of<Vnni>(s, codes); }
void strip_avx2(const Strip& s, const Codes& codes) {
  (codes.top <= 15   ? &strip_of<Pairs<15>>
   : codes.top <= 31 ? &strip_of<Pairs<31>>
   : codes.top <= 63 ? &strip_of<Pairs<63>>
                     : &strip_of<Pairs<255>>)(s, codes);
}

BRAID_DOT void pack_row_avx2(const Bf16* x, int64_t depth, const Codes& codes, int64_t rows, int64_t r,
                             std::byte* packed) {
  const int64_t grain = codes.grain, blocks = kStep / grain;
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15);  // Codes::pairs
  for (int64_t g = 0; g < depth; g += kGroup, packed += group_bytes(grain, rows)) {
    const float scale = scale_of(x + g, depth - g < kGroup ? depth - g : kGroup, 127);
    reinterpret_cast<float*>(packed)[r] = scale;
    const __m256 inverse = _mm256_set1_ps(1 / scale);
    std::byte* step = packed + 4 * rows;
    for (int64_t k = g; k < g + kGroup; k += kStep, step += step_bytes(grain, rows)) {
      auto* start = reinterpret_cast<int32_t*>(step) + r;
      auto* quads = reinterpret_cast<int32_t*>(step) + blocks * rows + r;
      for (int64_t i = 0; i < kStep; i += kLanes) {
        const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(values_at(x + k + i, depth - k - i), inverse));
        const __m256i q = _mm256_max_epi32(whole, _mm256_set1_epi32(-127));
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
        const __m128i packed8 = _mm_packs_epi16(words, words);
        const __m128i bytes = codes.pairs ? _mm_shuffle_epi8(packed8, order) : packed8;
        quads[i / 4 * rows] = _mm_cvtsi128_si32(bytes);
        quads[(i / 4 + 1) * rows] = _mm_extract_epi32(bytes, 1);
        const __m128i pairs = _mm_madd_epi16(words, _mm_set1_epi16(1));
        const __m128i two = _mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0x4e));
        const int32_t sum = (_mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1)) * codes.factor;
        start[i / grain * rows] = i % grain == 0 ? sum : start[i / grain * rows] + sum;
      }
    }
  }
}

}  // namespace braid::codes::a8
