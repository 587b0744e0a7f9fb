// The gradients of RMSNorm with Highway, a group of one token at a time in two passes over it: the sums, then dx, dz
// and its share of dw. A task is a block of tokens; blocks begin with their sequence, each has a row of dw of its own,
// and the rows are added in order. The gate is computed in both passes, as in forward.
#include <cmath>
#include <cstring>

#include "kernels/rms_norm/rms_norm_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_bwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

// A row of F32 or BF16 numbers, or neither. A branch per vector costs less than 32 copies of the code.
template <class Wide, class Narrow>
struct Stretch {
  Wide* wide = nullptr;
  Narrow* narrow = nullptr;
  explicit operator bool() const { return wide || narrow; }
};
using In = Stretch<const float, const Bf16>;
using Out = Stretch<float, Bf16>;

template <class To, class From>
To stretch(const From& view, int64_t t, int64_t at) {
  if (!view) return {};
  if (view.dtype == DType::bf16) return {nullptr, view.template as<Bf16>(t) + at};
  return {view.template as<float>(t) + at, nullptr};
}

// Entries [i, i + n), n at most a vector.
HWY_INLINE FloatVec read(In from, int64_t i, int64_t n) {
  const FloatTag d;
  if (n < static_cast<int64_t>(hn::Lanes(d)))
    return from.wide ? load_n(d, from.wide + i, n) : load_n(d, from.narrow + i, n);
  return from.wide ? load(d, from.wide + i) : load(d, from.narrow + i);
}
HWY_INLINE void write(FloatVec v, Out to, int64_t i, int64_t n) {
  const FloatTag d;
  if (n < static_cast<int64_t>(hn::Lanes(d))) {
    to.wide ? store_n(v, d, to.wide + i, n) : store_n(v, d, to.narrow + i, n);
  } else {
    to.wide ? store(v, d, to.wide + i) : store(v, d, to.narrow + i);
  }
}

// One group of one token.
struct NormGroup {
  In dy, x, z, w;
  Out dx, dz, dw;
  int64_t size;
};

// sum u^2 and sum w dy u, with u the gated x.
template <bool kGated>
void sum_group(const NormGroup& g, float& squares, float& product) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec square = hn::Zero(d), dot = hn::Zero(d);
  for (int64_t i = 0; i < g.size; i += lanes) {
    const int64_t n = HWY_MIN(lanes, g.size - i);
    FloatVec v = read(g.x, i, n);
    if constexpr (kGated) {
      const FloatVec z = read(g.z, i, n);
      v = hn::Mul(v, sigmoid_times(d, z, z));
    }
    square = hn::MulAdd(v, v, square);
    dot = hn::MulAdd(hn::Mul(read(g.w, i, n), read(g.dy, i, n)), v, dot);
  }
  squares = hn::GetLane(hn::SumOfLanes(d, square));
  product = hn::GetLane(hn::SumOfLanes(d, dot));
}

template <bool kGated>
void differentiate_group(const NormGroup& g, float r, float mean) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec rstd = hn::Set(d, r), shift = hn::Set(d, mean), one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < g.size; i += lanes) {
    const int64_t n = HWY_MIN(lanes, g.size - i);
    const FloatVec x = read(g.x, i, n), dy = read(g.dy, i, n), w = read(g.w, i, n);
    FloatVec gate = one, slope = one;
    if constexpr (kGated) {
      const FloatVec z = read(g.z, i, n), s = sigmoid_times(d, z, one);
      gate = hn::Mul(z, s);
      slope = hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
    }
    const FloatVec normed = hn::Mul(kGated ? hn::Mul(x, gate) : x, rstd);
    const FloatVec du = hn::Mul(rstd, hn::NegMulAdd(normed, shift, hn::Mul(w, dy)));
    write(kGated ? hn::Mul(du, gate) : du, g.dx, i, n);
    if (kGated && g.dz) write(hn::Mul(hn::Mul(du, x), slope), g.dz, i, n);
    write(hn::MulAdd(dy, normed, read({g.dw.wide, nullptr}, i, n)), g.dw, i, n);
  }
}

// Tokens [first, first + count): their dx and dz, and their part of dw.
void differentiate_tokens(const RmsNormBwd& op, int64_t first, int64_t count, float* dw) {
  const int64_t width = op.x.dim(1), size = width / op.groups;
  std::memset(dw, 0, static_cast<size_t>(width) * sizeof(float));
  for (int64_t t = first; t < first + count; ++t) {
    for (int64_t k = 0; k < op.groups; ++k) {
      const int64_t at = k * size;
      const NormGroup g{.dy = stretch<In>(op.dy, t, at),
                        .x = stretch<In>(op.x, t, at),
                        .z = stretch<In>(op.z, t, at),
                        .w = stretch<In>(op.w, 0, at),
                        .dx = stretch<Out>(op.dx, t, at),
                        .dz = stretch<Out>(op.dz, t, at),
                        .dw = {dw + at, nullptr},
                        .size = size};
      float squares = 0, product = 0;
      g.z ? sum_group<true>(g, squares, product) : sum_group<false>(g, squares, product);
      const float r = op.rstd ? op.rstd.as<float>(t)[k] : 1.0f / std::sqrt(squares / static_cast<float>(size) + op.eps);
      const float mean = op.mean ? op.mean.as<float>(t)[k] : r * product / static_cast<float>(size);
      g.z ? differentiate_group<true>(g, r, mean) : differentiate_group<false>(g, r, mean);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

namespace braid {
namespace {

constexpr int64_t kBlock = 32;  // tokens: rows of dw are 3% of x

struct Tokens {
  int64_t first, count;
};

// visit(first row, rows) for the blocks of every sequence in order.
template <class Visit>
void for_each_block(const RmsNormBwd& op, Visit&& visit) {
  const auto blocks_of = [&](int64_t start, int64_t rows) {
    for (int64_t r = 0; r < rows; r += kBlock) visit(start + r, std::min(kBlock, rows - r));
  };
  if (!op.seqs) return blocks_of(0, op.x.dim(0));
  for (const Seq& seq : op.seqs->seqs) blocks_of(seq.start * op.rows_per_token, seq.len * op.rows_per_token);
}

int64_t count_blocks(const RmsNormBwd& op) {
  int64_t blocks = 0;
  for_each_block(op, [&](int64_t, int64_t) { ++blocks; });
  return blocks;
}

}  // namespace

HWY_EXPORT(differentiate_tokens);

int64_t rms_norm_bwd_hwy_workspace(const RmsNormBwd& op, int) {
  const int64_t of_block = op.x.dim(1) * static_cast<int64_t>(sizeof(float)) + static_cast<int64_t>(sizeof(Tokens));
  return count_blocks(op) * of_block;
}

void rms_norm_bwd_hwy(Ctx& ctx, const RmsNormBwd& op, std::span<std::byte> workspace) {
  const int64_t width = op.x.dim(1), blocks = count_blocks(op);
  auto* const tokens = reinterpret_cast<Tokens*>(workspace.data());
  auto* const dw = reinterpret_cast<float*>(tokens + blocks);
  int64_t filled = 0;
  for_each_block(op, [&](int64_t first, int64_t count) { tokens[filled++] = {first, count}; });
  const int team = sys::team_for(ctx.threads, op.flops());
  sys::parallel_tasks(team, blocks, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(differentiate_tokens)(op, tokens[i].first, tokens[i].count, dw + i * width);
  });
  sys::parallel_for(team, width, 64, [&](int64_t begin, int64_t end) {
    float* const sum = op.dw.as<float>();
    for (int64_t i = 0; i < blocks; ++i) {
      for (int64_t c = begin; c < end; ++c) sum[c] += dw[i * width + c];
    }
  });
}

}  // namespace braid
#endif
