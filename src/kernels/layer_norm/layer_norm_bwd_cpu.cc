// Backward of LayerNorm with Highway. Threads take blocks of tokens and compute dx of each token and the block's sums
// of dw and dbias, which stay in L1. Then threads take columns and add the blocks' sums in order.
#include <algorithm>
#include <cmath>

#include "kernels/layer_norm/layer_norm_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/layer_norm_bwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int64_t kLanes = static_cast<int64_t>(sizeof(FloatVec) / sizeof(float));

template <class Num>
HWY_INLINE FloatVec load_part(FloatTag d, const Num* p, int64_t n) {
  return n == kLanes ? load(d, p) : load_n(d, p, n);
}
template <class Num>
HWY_INLINE void store_part(FloatVec v, FloatTag d, Num* p, int64_t n) {
  n == kLanes ? store(v, d, p) : store_n(v, d, p, n);
}

HWY_INLINE float mean_of(FloatTag d, FloatVec sums, int64_t width) {
  return hn::GetLane(hn::SumOfLanes(d, sums)) / static_cast<float>(width);
}

struct Statistics {
  float mean, rstd;
};

// As in forward.
template <class X>
Statistics statistics(const X* x, int64_t width, float eps) {
  const FloatTag d;
  FloatVec sums = hn::Zero(d), squares = hn::Zero(d);
  for (int64_t i = 0; i < width; i += kLanes) sums = hn::Add(sums, load_part(d, x + i, HWY_MIN(kLanes, width - i)));
  const float mean = mean_of(d, sums, width);
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t n = HWY_MIN(kLanes, width - i);
    FloatVec v = hn::Sub(load_part(d, x + i, n), hn::Set(d, mean));
    if (n < kLanes) v = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), v);
    squares = hn::MulAdd(v, v, squares);
  }
  return {mean, 1.0f / std::sqrt(mean_of(d, squares, width) + eps)};
}

template <class Dy, class X, class Dx>
void bwd_token(const LayerNormBwd& op, int64_t t, float* dw, float* dbias) {
  const FloatTag d;
  const int64_t width = op.x.dim(1);
  const Dy* dy = op.dy.as<Dy>(t);
  const X* x = op.x.as<X>(t);
  const float* w = op.w.as<float>();
  const Statistics s =
      op.rstd ? Statistics{*op.mean.as<float>(t), *op.rstd.as<float>(t)} : statistics(x, width, op.eps);
  const FloatVec centre = hn::Set(d, s.mean), scale = hn::Set(d, s.rstd);
  FloatVec sums = hn::Zero(d), dots = hn::Zero(d);
  // dy is zero beyond the width, so xhat does not count there.
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t n = HWY_MIN(kLanes, width - i);
    const FloatVec g = load_part(d, dy + i, n), xhat = hn::Mul(hn::Sub(load_part(d, x + i, n), centre), scale);
    const FloatVec gw = hn::Mul(g, load_part(d, w + i, n));
    sums = hn::Add(sums, gw);
    dots = hn::MulAdd(gw, xhat, dots);
    store(hn::MulAdd(g, xhat, load(d, dw + i)), d, dw + i);
    store(hn::Add(g, load(d, dbias + i)), d, dbias + i);
  }
  const FloatVec sum = hn::Set(d, mean_of(d, sums, width)), dot = hn::Set(d, mean_of(d, dots, width));
  Dx* dx = op.dx.as<Dx>(t);
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t n = HWY_MIN(kLanes, width - i);
    const FloatVec xhat = hn::Mul(hn::Sub(load_part(d, x + i, n), centre), scale);
    const FloatVec gw = hn::Mul(load_part(d, dy + i, n), load_part(d, w + i, n));
    store_part(hn::Mul(scale, hn::NegMulAdd(xhat, dot, hn::Sub(gw, sum))), d, dx + i, n);
  }
}

template <class Dy, class X>
void bwd_dx(const LayerNormBwd& op, int64_t t, float* dw, float* dbias) {
  op.dx.dtype == DType::bf16 ? bwd_token<Dy, X, Bf16>(op, t, dw, dbias) : bwd_token<Dy, X, float>(op, t, dw, dbias);
}
template <class Dy>
void bwd_x(const LayerNormBwd& op, int64_t t, float* dw, float* dbias) {
  op.x.dtype == DType::bf16 ? bwd_dx<Dy, Bf16>(op, t, dw, dbias) : bwd_dx<Dy, float>(op, t, dw, dbias);
}
void bwd_tokens(const LayerNormBwd& op, int64_t begin, int64_t end, float* dw, float* dbias) {
  for (int64_t t = begin; t < end; ++t) {
    op.dy.dtype == DType::bf16 ? bwd_x<Bf16>(op, t, dw, dbias) : bwd_x<float>(op, t, dw, dbias);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(bwd_tokens);

namespace {

int64_t padded(const LayerNormBwd& op) { return (op.x.dim(1) + 15) / 16 * 16; }

int64_t blocks_of(const Seq& seq) { return (seq.len + kLayerNormBlock - 1) / kLayerNormBlock; }

// visit(block, begin, end) for the blocks of all sequences, in order; returns their number.
template <class Visit>
int64_t for_each_block(const LayerNormBwd& op, Visit&& visit) {
  int64_t block = 0;
  const auto walk = [&](const Seq& seq) {
    for (int64_t i = 0; i < blocks_of(seq); ++i, ++block) {
      const int64_t begin = seq.start + i * kLayerNormBlock;
      visit(block, begin, HWY_MIN(begin + kLayerNormBlock, seq.start + seq.len));
    }
  };
  if (!op.seqs) {
    walk({.len = op.x.dim(0)});
  } else {
    for (const Seq& seq : op.seqs->seqs) walk(seq);
  }
  return block;
}
int64_t count_blocks(const LayerNormBwd& op) {
  return for_each_block(op, [](int64_t, int64_t, int64_t) {});
}

}  // namespace

int64_t layer_norm_bwd_hwy_workspace(const LayerNormBwd& op, int) {
  return count_blocks(op) * 2 * padded(op) * static_cast<int64_t>(sizeof(float));
}

void layer_norm_bwd_hwy(Ctx& ctx, const LayerNormBwd& op, std::span<std::byte> workspace) {
  check_rows(op);
  const int64_t pad = padded(op), width = op.x.dim(1), blocks = count_blocks(op);
  auto* sums = reinterpret_cast<float*>(workspace.data());  // [blocks][dw, dbias][pad]
  const int team = sys::team_for(ctx.threads, op.flops());
  sys::parallel(team, [&](int thread, int members) {
    for_each_block(op, [&](int64_t block, int64_t begin, int64_t end) {
      if (block * members / blocks != thread) return;
      float* own = sums + block * 2 * pad;
      std::fill(own, own + 2 * pad, 0.0f);
      HWY_DYNAMIC_DISPATCH(bwd_tokens)(op, begin, end, own, own + pad);
    });
  });
  constexpr int64_t kGrain = 256;  // columns
  sys::parallel_for(team, width, kGrain, [&](int64_t begin, int64_t end) {
    float *dw = op.dw.as<float>(), *dbias = op.dbias ? op.dbias.as<float>() : nullptr;
    for (int64_t block = 0; block < blocks; ++block) {
      const float* own = sums + block * 2 * pad;
      for (int64_t i = begin; i < end; ++i) dw[i] += own[i];
      if (!dbias) continue;
      for (int64_t i = begin; i < end; ++i) dbias[i] += own[pad + i];
    }
  });
}

}  // namespace braid
#endif
