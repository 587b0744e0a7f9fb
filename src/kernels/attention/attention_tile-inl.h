// What the directions of attention share: the register tile, the transposition of keys, widening. Re-included once per
// target, after hwy/highway.h, inside no namespace.
#if defined(BRAID_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_ATTENTION_TILE_INL_H_
#undef BRAID_ATTENTION_TILE_INL_H_
#else
#define BRAID_ATTENTION_TILE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/attention/attention_rows.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;
using WordTag = hn::ScalableTag<uint32_t>;

constexpr int64_t kLanes = static_cast<int64_t>(sizeof(FloatVec) / sizeof(float));
// 6 x 4 sums, 4 loads and a broadcast in 32 registers; 6 x 2, 2 and 1 in 16.
constexpr int kRows = 6;
constexpr int kCols = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Highway's Exp is wrong above 88.7 and returns 0 for NaN.
HWY_INLINE FloatVec safe_exp(FloatTag d, FloatVec v) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, hn::Min(v, hn::Set(d, 88.0f))));
}

// exp(v) of v <= 0: 2^n p(r) with integer n and r in [-0.5, 0.5], p the polynomial of degree 5 with the least relative
// error (1e-7), in less than half the instructions of Highway's. Zero below -86, where FP32 nears its subnormals.
HWY_INLINE FloatVec exp_nonpositive(FloatTag d, FloatVec v) {
  const hn::RebindToSigned<FloatTag> ints;
  const FloatVec powers = hn::Mul(v, hn::Set(d, 1.44269504f)), whole = hn::Round(powers), r = hn::Sub(powers, whole);
  FloatVec p = hn::Set(d, 0.00132647261f);
  for (const float c : {0.00967151299f, 0.0555073358f, 0.240222424f, 0.693147004f, 1.0f}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(ints, whole), hn::Set(ints, 127)));
  const FloatVec e = hn::Mul(p, hn::BitCast(d, exponent));  // NaN stays NaN, whatever its exponent became
  return hn::IfThenElse(hn::Lt(v, hn::Set(d, -86.0f)), hn::Zero(d), e);
}

// c[m][n] += sum over k in order of a[m][k] b[k][n], n in vectors; with kAcross a is stored as [k][m].
template <class B, bool kAcross = false>
struct TileProduct {
  const float* a;
  int64_t a_stride;
  const B* b;
  int64_t b_stride, depth;
  float* c;
  int64_t c_stride;
};

template <int kM, int kN, class B, bool kAcross>
HWY_NOINLINE void tile(const TileProduct<B, kAcross>& p) {
  const FloatTag d;
  const float* HWY_RESTRICT a = p.a;
  const B* HWY_RESTRICT b = p.b;
  float* HWY_RESTRICT c = p.c;
  const int64_t a_stride = p.a_stride, b_stride = p.b_stride, depth = p.depth, c_stride = p.c_stride;
  FloatVec acc[kM][kN];
  HWY_UNROLL(6)
  for (int m = 0; m < kM; ++m) {
    HWY_UNROLL(4)
    for (int n = 0; n < kN; ++n) acc[m][n] = load(d, c + m * c_stride + n * kLanes);
  }
  for (int64_t k = 0; k < depth; ++k) {
    FloatVec v[kN];
    HWY_UNROLL(4)
    for (int n = 0; n < kN; ++n) v[n] = load(d, b + k * b_stride + n * kLanes);
    HWY_UNROLL(6)
    for (int m = 0; m < kM; ++m) {
      const FloatVec x = hn::Set(d, kAcross ? a[k * a_stride + m] : a[m * a_stride + k]);
      HWY_UNROLL(4)
      for (int n = 0; n < kN; ++n) acc[m][n] = hn::MulAdd(x, v[n], acc[m][n]);
    }
  }
  HWY_UNROLL(6)
  for (int m = 0; m < kM; ++m) {
    HWY_UNROLL(4)
    for (int n = 0; n < kN; ++n) store(acc[m][n], d, c + m * c_stride + n * kLanes);
  }
}

template <int kN, class B, bool kAcross>
void tile_rows(const TileProduct<B, kAcross>& p, int64_t rows) {
  switch (rows) {
    case 1:
      return tile<1, kN>(p);
    case 2:
      return tile<2, kN>(p);
    case 3:
      return tile<3, kN>(p);
    case 4:
      return tile<4, kN>(p);
    case 5:
      return tile<5, kN>(p);
    default:
      return tile<6, kN>(p);
  }
}
template <class B, bool kAcross>
void tile_any(const TileProduct<B, kAcross>& p, int64_t rows, int64_t cols) {
  if constexpr (kCols == 4) {
    if (cols == 4) return tile_rows<4>(p, rows);
    if (cols == 3) return tile_rows<3>(p, rows);
  }
  cols == 2 ? tile_rows<2>(p, rows) : tile_rows<1>(p, rows);
}

// The next part of `n`, cut into the fewest about equal parts of at most `limit`.
HWY_INLINE int64_t even_part(int64_t n, int64_t limit) {
  const int64_t parts = (n + limit - 1) / limit;
  return (n + parts - 1) / parts;
}

// Vector whose 128-bit block b holds four words of row 4 b.
template <class Tag>
HWY_INLINE hn::VFromD<Tag> load_blocks(Tag d, const uint32_t* const* rows, int64_t word) {
  if constexpr (sizeof(hn::VFromD<Tag>) == 16) {
    return hn::LoadU(d, rows[0] + word);
  } else {
    const hn::Half<Tag> half;
    constexpr int64_t kHalf = sizeof(hn::VFromD<Tag>) / 8;
    return hn::Combine(d, load_blocks(half, rows + kHalf, word), load_blocks(half, rows, word));
  }
}

HWY_INLINE void store_words(hn::VFromD<WordTag> words, const float*, float* to) {
  hn::StoreU(words, WordTag(), reinterpret_cast<uint32_t*>(to));
}
// A word of two BF16 becomes two channels.
HWY_INLINE void store_words(hn::VFromD<WordTag> words, const Bf16*, float* to) {
  const WordTag d;
  hn::StoreU(hn::ShiftLeft<16>(words), d, reinterpret_cast<uint32_t*>(to));
  hn::StoreU(hn::And(words, hn::Set(d, 0xffff0000u)), d, reinterpret_cast<uint32_t*>(to + kAttentionBlock));
}

// keys[channel][key]: 4 x 4 transposes inside each 128-bit block, `kLanes` keys at a time.
template <class Num>
void transpose_keys(const Num* const* rows, int64_t n, int64_t width, float* keys) {
  constexpr int64_t kPerWord = sizeof(uint32_t) / sizeof(Num);
  const WordTag d;
  const int64_t words = width / kPerWord;
  for (int64_t first = 0; first < n; first += kLanes) {
    const auto* from = reinterpret_cast<const uint32_t* const*>(rows + first);
    float* to = keys + first;
    int64_t w = 0;
    for (; w + 4 <= words; w += 4) {
      const auto r0 = load_blocks(d, from, w), r1 = load_blocks(d, from + 1, w), r2 = load_blocks(d, from + 2, w),
                 r3 = load_blocks(d, from + 3, w);
      const auto a = hn::InterleaveLower(d, r0, r2), b = hn::InterleaveLower(d, r1, r3);
      const auto c = hn::InterleaveUpper(d, r0, r2), e = hn::InterleaveUpper(d, r1, r3);
      float* at = to + w * kPerWord * kAttentionBlock;
      constexpr int64_t kStep = kPerWord * kAttentionBlock;
      store_words(hn::InterleaveLower(d, a, b), rows[0], at);
      store_words(hn::InterleaveUpper(d, a, b), rows[0], at + kStep);
      store_words(hn::InterleaveLower(d, c, e), rows[0], at + 2 * kStep);
      store_words(hn::InterleaveUpper(d, c, e), rows[0], at + 3 * kStep);
    }
    for (int64_t p = w * kPerWord; p < width; ++p) {
      for (int64_t j = 0; j < kLanes; ++j) to[p * kAttentionBlock + j] = to_float(rows[first + j][p]);
    }
  }
}

template <class Num>
void widen_row(const Num* from, float scale, float* to, int64_t n) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Mul(load(d, from + i), factor), d, to + i);
  for (; i < n; ++i) to[i] = to_float(from[i]) * scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
