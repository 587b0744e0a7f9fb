// Shared by SsdFwd and SsdBwd, once per target: blocks of a sequence, their decays, and products in register tiles.
// Include it as ssd-inl.h.
#if defined(BRAID_KERNELS_SSD_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_KERNELS_SSD_BLOCK_INL_H_
#undef BRAID_KERNELS_SSD_BLOCK_INL_H_
#else
#define BRAID_KERNELS_SSD_BLOCK_INL_H_
#endif

#include <cmath>

#include "kernels/ssd/ssd-inl.h"
#include "kernels/ssd/ssd_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Accumulators, one row of the right operand and a broadcast must fit 32 registers, or 16 before AVX-512.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTileRows = 8, kTileVecs = 3;
#else
constexpr int kTileRows = 4, kTileVecs = 2;
#endif

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Vectors of the next column panel when `left` remain: avoids a last panel of one vector where two of two fit.
HWY_INLINE int64_t panel_vecs(int64_t left) {
  return left > kTileVecs && left % kTileVecs == 1 ? kTileVecs - (kTileVecs > 2 ? 1 : 0) : HWY_MIN(left, kTileVecs);
}

// visit(first column, vectors) for the column panels of `columns`.
template <class Visit>
HWY_INLINE void for_each_panel(int64_t columns, Visit&& visit) {
  const int64_t vecs = (columns + lanes() - 1) / lanes();
  for (int64_t v = 0; v < vecs;) {
    const int64_t n = panel_vecs(vecs - v);
    visit(v * lanes(), n);
    v += n;
  }
}

// The left operand of a product: entry (row, k) at data[row * row_step + k * k_step].
struct Left {
  const float* data;
  int64_t row_step, k_step;
};

// Indexed by constants only: a loop of unknown length over the rows would spill the accumulators to memory.
template <int kVecs>
struct Accumulators {
  FloatVec v[kTileRows][kVecs];

  HWY_INLINE void zero() {
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < kVecs; ++j) v[i][j] = hn::Zero(FloatTag());
    }
  }
  HWY_INLINE void load(const float* from, int64_t stride) {
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < kVecs; ++j) v[i][j] = hn::LoadU(FloatTag(), from + i * stride + j * lanes());
    }
  }
  HWY_INLINE void add(const float* from, int64_t stride) {
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < kVecs; ++j)
        v[i][j] = hn::Add(v[i][j], hn::LoadU(FloatTag(), from + i * stride + j * lanes()));
    }
  }
  HWY_INLINE void store(float* to, int64_t stride) const {
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < kVecs; ++j) hn::StoreU(v[i][j], FloatTag(), to + i * stride + j * lanes());
    }
  }
  // Row i times factors[i * step].
  HWY_INLINE void scale(const float* factors, int64_t step) {
    for (int i = 0; i < kTileRows; ++i) {
      const FloatVec factor = hn::Set(FloatTag(), factors[i * step]);
      for (int j = 0; j < kVecs; ++j) v[i][j] = hn::Mul(v[i][j], factor);
    }
  }
  // += left [kTileRows, depth] right [depth, kVecs vectors], rows of right `stride` apart.
  HWY_INLINE void add_product(Left left, const float* right, int64_t stride, int64_t depth) {
    const FloatTag d;
    for (int64_t k = 0; k < depth; ++k) {
      FloatVec r[kVecs];
      for (int j = 0; j < kVecs; ++j) r[j] = hn::LoadU(d, right + j * lanes());
      for (int i = 0; i < kTileRows; ++i) {
        const FloatVec l = hn::Set(d, left.data[i * left.row_step]);
        for (int j = 0; j < kVecs; ++j) v[i][j] = hn::MulAdd(l, r[j], v[i][j]);
      }
      left.data += left.k_step;
      right += stride;
    }
  }
};

// to[c, r] = from[r, c] in blocks of four by four.
inline void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float* to,
                      int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto low = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveLower(wide, hn::BitCast(wide, a), hn::BitCast(wide, b)));
  };
  const auto high = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveUpper(wide, hn::BitCast(wide, a), hn::BitCast(wide, b)));
  };
  for (int64_t r = 0; r < rows; r += 4) {
    for (int64_t c = 0; c < cols; c += 4) {
      const float* src = from + r * from_stride + c;
      float* dst = to + c * to_stride + r;
      if (r + 4 > rows || c + 4 > cols) {
        for (int64_t i = 0; i < HWY_MIN(4, rows - r); ++i) {
          for (int64_t j = 0; j < HWY_MIN(4, cols - c); ++j) dst[j * to_stride + i] = src[i * from_stride + j];
        }
        continue;
      }
      const auto r0 = hn::LoadU(d, src), r1 = hn::LoadU(d, src + from_stride), r2 = hn::LoadU(d, src + 2 * from_stride),
                 r3 = hn::LoadU(d, src + 3 * from_stride);
      const auto a = hn::InterleaveLower(d, r0, r1), b = hn::InterleaveLower(d, r2, r3),
                 e = hn::InterleaveUpper(d, r0, r1), f = hn::InterleaveUpper(d, r2, r3);
      hn::StoreU(low(a, b), d, dst);
      hn::StoreU(high(a, b), d, dst + to_stride);
      hn::StoreU(low(e, f), d, dst + 2 * to_stride);
      hn::StoreU(high(e, f), d, dst + 3 * to_stride);
    }
  }
}

// Tokens [first, first + count) of the batch, one block of one sequence.
struct Block {
  int64_t first, count, rows;  // rows: count rounded up to whole tiles
};

// One row of `count` values to FP32, in whole vectors of Tag: writes zeros up to the next multiple.
template <class Tag, class X, class Place>
HWY_INLINE void widen_row(Tag d, const X* from, int64_t count, Place&& place) {
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += step) {
    hn::StoreU(i + step <= count ? load(d, from + i) : load_n(d, from + i, count - i), d, place(i));
  }
}

// exp(L_t - L_s) for whole vectors of s; 1 where s > t, which callers mask or overwrite.
HWY_INLINE FloatVec decay_from(const SsdDecays& s, int64_t t, int64_t from) {
  const FloatTag d;
  const FloatVec high = hn::Sub(hn::Set(d, s.high[t]), hn::LoadU(d, s.high + from));
  const FloatVec low = hn::Sub(hn::Set(d, s.low[t]), hn::LoadU(d, s.low + from));
  return hn::Exp(d, hn::Min(hn::Add(high, low), hn::Zero(d)));
}

// d, L and exp(L) of a block; beyond it d = 0.
template <class Op>
void prepare_decays(const Op& op, const Block& block, int64_t head, const SsdDecays& s) {
  const FloatTag d;
  const double a = -std::exp(static_cast<double>(op.a_log.template as<float>()[head]));
  load_steps(op, block.first, block.count, head, s.step);
  for (int64_t t = block.count; t < s.size; ++t) s.step[t] = 0;
  double sum = 0;
  for (int64_t t = 0; t < s.size; ++t) {
    sum += static_cast<double>(s.step[t]) * a;
    s.high[t] = static_cast<float>(sum);
    s.low[t] = static_cast<float>(sum - static_cast<double>(s.high[t]));
  }
  for (int64_t t = 0; t < s.size; t += lanes()) hn::StoreU(hn::Exp(d, hn::LoadU(d, s.high + t)), d, s.enter + t);
}

// Tokens from position `pos` of a sequence to the end of its block.
template <class Op>
int64_t block_left(const Op& op, int64_t pos) {
  const int64_t in_chunk = pos % op.chunk;
  return HWY_MIN(op.chunk, (in_chunk / kSsdBlock + 1) * kSsdBlock) - in_chunk;
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
