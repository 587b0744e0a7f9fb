// The packed kernel with Highway: a panel is [depth][width] floats, products and sums are FMAs. With operands rounded
// to BF16 while they are packed it is the BF16 class of machines without the dot instruction.
#include "math/packed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/packed_wide.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid::packed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using braid::HWY_NAMESPACE::load;
using braid::HWY_NAMESPACE::load_n;
using braid::HWY_NAMESPACE::store;
using braid::HWY_NAMESPACE::store_n;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;
using Quad = hn::Full128<float>;

// The tile fills the registers: 8 x 3 sums of 32 with AVX-512, 4 x 3 of 16 elsewhere.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
constexpr int kTileVectors = 3;
using RowsTag = hn::CappedTag<float, kTileRows>;  // a row of a panel of a

// The tile that starts at that column; prefetches the y of the next one.
template <bool kAhead>
void tile(const Tile& t, int64_t column, const float* next) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto *a = static_cast<const float*>(t.a), *b = static_cast<const float*>(t.b) + column * t.depth;
  float* const corner = t.y + column;
  const int64_t ahead = t.ahead / 4;
  FloatVec acc[kTileRows][kTileVectors];
  HWY_UNROLL(8)
  for (int m = 0; m < kTileRows; ++m) {
    HWY_UNROLL(3)
    for (int n = 0; n < kTileVectors; ++n)
      acc[m][n] = t.add ? hn::LoadU(d, corner + m * t.y_stride + n * lanes) : hn::Zero(d);
    asm volatile("prefetcht0 %0" : : "m"(next[m * t.y_stride]));
    asm volatile("prefetcht0 %0" : : "m"(next[m * t.y_stride + lanes]));
    asm volatile("prefetcht0 %0" : : "m"(next[m * t.y_stride + 2 * lanes]));
  }
  HWY_UNROLL(2)
  for (int64_t k = 0; k < t.depth; ++k) {
    asm("" : "+r"(a), "+r"(b));
    FloatVec v[kTileVectors];
    HWY_UNROLL(3)
    for (int n = 0; n < kTileVectors; ++n) {
      v[n] = hn::LoadU(d, b + n * lanes);
      asm("" : "+x"(v[n].raw));
      if (kAhead) asm volatile("prefetcht0 %0" : : "m"(b[n * lanes + ahead]));
    }
    HWY_UNROLL(8)
    for (int m = 0; m < kTileRows; ++m) {
      FloatVec u = hn::Set(d, a[m]);
      asm("" : "+x"(u.raw));  // or g++ 12 broadcasts once per product
      HWY_UNROLL(3)
      for (int n = 0; n < kTileVectors; ++n) acc[m][n] = hn::MulAdd(u, v[n], acc[m][n]);
    }
    a += kTileRows, b += kTileVectors * lanes;
  }
  HWY_UNROLL(8)
  for (int m = 0; m < kTileRows; ++m) {
    HWY_UNROLL(3)
    for (int n = 0; n < kTileVectors; ++n) hn::StoreU(acc[m][n], d, corner + m * t.y_stride + n * lanes);
  }
}

template <bool kAhead>
void tiles_of(const Tile& t) {
  const auto cols = kTileVectors * static_cast<int64_t>(hn::Lanes(FloatTag()));
  Tile row = t;
  for (int64_t m = 0; m < t.down; ++m) {
    for (int64_t n = 0; n < t.across; ++n) {
      const bool last = n + 1 == t.across;
      tile<kAhead>(row, n * cols, row.y + (last ? (m + 1 < t.down ? kTileRows * t.y_stride : 0) : (n + 1) * cols));
    }
    row.a = static_cast<const float*>(row.a) + kTileRows * t.depth;
    row.y += kTileRows * t.y_stride;
  }
}
void tiles(const Tile& t) { t.ahead > 0 ? tiles_of<true>(t) : tiles_of<false>(t); }

// As a product uses it: rounded to BF16 or unchanged.
template <bool kRound, class Tag>
HWY_INLINE hn::VFromD<Tag> rounded(Tag d, hn::VFromD<Tag> v) {
  if constexpr (!kRound) return v;
  HWY_ALIGN Bf16 lanes[HWY_MAX_BYTES / sizeof(float)];
  store(v, d, lanes);
  return load(d, lanes);
}

// Vectors of the tag are no wider than panels.
template <bool kRound, class Tag, class Num>
void pack_across(Tag d, const Num* from, int64_t stride, int64_t width, int64_t n, int64_t depth, float* panel) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < depth; ++k) {
    const Num* row = from + k * stride;
    float* out = panel + k * width;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      auto v = rounded<kRound>(d, load(d, row + i));
      asm("" : "+x"(v.raw));  // or g++ 12 calls memcpy for every row of a panel
      hn::StoreU(v, d, out + i);
    }
    if (i < n) store_n(rounded<kRound>(d, load_n(d, row + i, n - i)), d, out + i, n - i);
    for (i = n; i < width; ++i) out[i] = 0;
  }
}

// Blocks of 4 x 4 are transposed in registers; `width` is a multiple of 4.
template <bool kRound, class Num>
void pack_along(const Num* from, int64_t stride, int64_t width, int64_t n, int64_t depth, float* panel) {
  const Quad q;
  const auto quad = [&](int64_t i, int64_t k) {
    if (i >= n) return hn::Zero(q);
    const Num* p = from + i * stride + k;
    return rounded<kRound>(q, depth - k >= 4 ? load(q, p) : load_n(q, p, depth - k));
  };
  for (int64_t k = 0; k < depth; k += 4) {
    for (int64_t i = 0; i < width; i += 4) {
      const auto a = quad(i, k), b = quad(i + 1, k), c = quad(i + 2, k), e = quad(i + 3, k);
      const hn::Repartition<double, Quad> pairs;
      const auto as_pairs = [&](auto v) { return hn::BitCast(pairs, v); };
      const auto ab = hn::InterleaveLower(q, a, b), ce = hn::InterleaveLower(q, c, e);
      const auto ab_high = hn::InterleaveUpper(q, a, b), ce_high = hn::InterleaveUpper(q, c, e);
      const hn::VFromD<Quad> rows[4] = {
          hn::BitCast(q, hn::InterleaveLower(pairs, as_pairs(ab), as_pairs(ce))),
          hn::BitCast(q, hn::InterleaveUpper(pairs, as_pairs(ab), as_pairs(ce))),
          hn::BitCast(q, hn::InterleaveLower(pairs, as_pairs(ab_high), as_pairs(ce_high))),
          hn::BitCast(q, hn::InterleaveUpper(pairs, as_pairs(ab_high), as_pairs(ce_high)))};
      for (int64_t j = 0; j < HWY_MIN(int64_t{4}, depth - k); ++j) hn::StoreU(rows[j], q, panel + (k + j) * width + i);
    }
  }
}

template <bool kRound, class Num>
void pack_of(const Source& s, int64_t width, int64_t n, int64_t depth, void* panels) {
  const auto* from = static_cast<const Num*>(s.data);
  auto* out = static_cast<float*>(panels);
  if (s.along) {
    for (int64_t i = 0; i < n; i += width)
      pack_along<kRound>(from + i * s.stride, s.stride, width, HWY_MIN(width, n - i), depth, out + i * depth);
    return;
  }
  // A line holds values of several panels: it is still in L1 when the next one is packed.
  constexpr int64_t kDepths = 64;
  const auto block = [&](auto tag, int64_t k, int64_t i) {
    pack_across<kRound>(tag, from + k * s.stride + i, s.stride, width, HWY_MIN(width, n - i),
                        HWY_MIN(kDepths, depth - k), out + i * depth + k * width);
  };
  const bool narrow = width < static_cast<int64_t>(hn::Lanes(FloatTag()));
  for (int64_t k = 0; k < depth; k += kDepths) {
    for (int64_t i = 0; i < n; i += width) narrow ? block(RowsTag(), k, i) : block(FloatTag(), k, i);
  }
}

// BF16 sources are exact in F32, so there is nothing to round.
void pack_f32(const Source& s, int64_t width, int64_t n, int64_t depth, void* panels) {
  (s.bf16 ? pack_of<false, Bf16> : pack_of<false, float>)(s, width, n, depth, panels);
}
void pack_bf16(const Source& s, int64_t width, int64_t n, int64_t depth, void* panels) {
  (s.bf16 ? pack_of<false, Bf16> : pack_of<true, float>)(s, width, n, depth, panels);
}

void get_kernel(bool round, Kernel& k) {
  k.rows = kTileRows;
  k.cols = kTileVectors * static_cast<int64_t>(hn::Lanes(FloatTag()));
  k.chain = 256;  // 256 rows of it take 256 KiB
  k.pack_rows = k.pack_cols = round ? &pack_bf16 : &pack_f32;
  k.tiles = &tiles;
}

template <class Out>
void finish_row(const float* sums, const float* bias, int64_t n, Out* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const FloatVec v = load(d, sums + i);
    store(bias ? hn::Add(v, load(d, bias + i)) : v, d, y + i);
  }
  for (; i < n; ++i) {
    const float v = bias ? sums[i] + bias[i] : sums[i];
    if constexpr (sizeof(Out) == sizeof(float)) {
      y[i] = v;
    } else {
      y[i] = to_bf16(v);
    }
  }
}
void finish_f32(const float* sums, const float* bias, int64_t n, float* y) { finish_row(sums, bias, n, y); }
void finish_bf16(const float* sums, const float* bias, int64_t n, Bf16* y) { finish_row(sums, bias, n, y); }

// Vectors of sums that stay in registers.
template <int64_t kVectors, class Num>
void add_vectors(const Num* from, int64_t stride, int64_t depth, float* sums) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec v[kVectors];
  HWY_UNROLL(4)
  for (int64_t j = 0; j < kVectors; ++j) v[j] = load(d, sums + j * lanes);
  for (int64_t k = 0; k < depth; ++k) {
    HWY_UNROLL(4)
    for (int64_t j = 0; j < kVectors; ++j) v[j] = hn::Add(v[j], load(d, from + k * stride + j * lanes));
  }
  HWY_UNROLL(4)
  for (int64_t j = 0; j < kVectors; ++j) store(v[j], d, sums + j * lanes);
}

template <class Num>
void add_depths_of(const Source& s, int64_t n, int64_t depth, float* sums) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  const auto* from = static_cast<const Num*>(s.data);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) add_vectors<4>(from + i, s.stride, depth, sums + i);
  for (; i + lanes <= n; i += lanes) add_vectors<1>(from + i, s.stride, depth, sums + i);
  for (; i < n; ++i) {
    for (int64_t k = 0; k < depth; ++k) sums[i] += to_float(from[k * s.stride + i]);
  }
}
void add_depths_any(const Source& s, int64_t n, int64_t depth, float* sums) {
  (s.bf16 ? add_depths_of<Bf16> : add_depths_of<float>)(s, n, depth, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid::packed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid::packed {

HWY_EXPORT(get_kernel);
HWY_EXPORT(finish_f32);
HWY_EXPORT(finish_bf16);
HWY_EXPORT(add_depths_any);

Kernel wide_f32() {
  Kernel k;
  HWY_DYNAMIC_DISPATCH(get_kernel)(false, k);
  return k;
}
Kernel wide_bf16() {
  Kernel k;
  HWY_DYNAMIC_DISPATCH(get_kernel)(true, k);
  return k;
}

void finish(const float* sums, const float* bias, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(finish_f32)(sums, bias, n, y);
}
void finish(const float* sums, const float* bias, int64_t n, Bf16* y) {
  HWY_DYNAMIC_DISPATCH(finish_bf16)(sums, bias, n, y);
}

void add_depths(const Source& source, int64_t n, int64_t depth, float* sums) {
  CHECK(!source.along, "rows along the depth");
  HWY_DYNAMIC_DISPATCH(add_depths_any)(source, n, depth, sums);
}

}  // namespace braid::packed
#endif
