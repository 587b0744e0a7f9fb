// SsdStep with Highway: a row of the state (one p of one head) is read once, taken through up to 8 tokens in the L1
// cache and written once, so that the cost is the traffic of the state. Threads own contiguous stretches of it.
#include <cmath>

#include "kernels/ssd/ssd_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd/ssd_step_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/contrib/math/math-inl.h>

#include "kernels/ssd/ssd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

constexpr int64_t kTokens = 8;  // of a pass: their b and c stay in the L1 cache beside the row

template <class X>
struct Tokens {
  const X *b[kTokens], *c[kTokens], *x[kTokens];
  float* y[kTokens];
  float decay[kTokens];
  HWY_ALIGN float step[HWY_MAX(static_cast<size_t>(kTokens), HWY_MAX_BYTES / sizeof(float))];
};

template <class X>
Tokens<X> tokens_of(const SsdStep& op, int64_t first, int64_t count, int64_t head) {
  Tokens<X> tokens{};
  const int64_t group = head / (op.x.dim(1) / op.b.dim(1));
  const float a = -std::exp(op.a_log.as<float>()[head]), bias = op.dt_bias.as<float>()[head];
  for (int64_t i = 0; i < count; ++i) tokens.step[i] = op.dt.as<float>(first + i)[head * op.dt.stride(1)] + bias;
  finish_steps(op, tokens.step, count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t t = first + i;
    tokens.b[i] = op.b.as<X>(t) + group * op.b.stride(1);
    tokens.c[i] = op.c.as<X>(t) + group * op.c.stride(1);
    tokens.x[i] = op.x.as<X>(t) + head * op.x.stride(1);
    tokens.y[i] = op.y.as<float>(t) + head * op.y.stride(1);
    tokens.decay[i] = std::exp(tokens.step[i] * a);
  }
  return tokens;
}

// Tokens [first, first + kCount) through one row of the state. The order over n is the same for every kCount.
template <int kCount, class X>
HWY_INLINE void advance_row(const Tokens<X>& tokens, int64_t first, int64_t p, float skip, float* row, int64_t states) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum[kCount], input[kCount], decay[kCount];
  for (int i = 0; i < kCount; ++i) {
    sum[i] = hn::Zero(d);
    input[i] = hn::Set(d, tokens.step[first + i] * to_float(tokens.x[first + i][p]));
    decay[i] = hn::Set(d, tokens.decay[first + i]);
  }
  int64_t n = 0;
  for (; n + lanes <= states; n += lanes) {
    FloatVec s = hn::LoadU(d, row + n);
    for (int i = 0; i < kCount; ++i) {
      s = hn::MulAdd(decay[i], s, hn::Mul(input[i], load(d, tokens.b[first + i] + n)));
      sum[i] = hn::MulAdd(s, load(d, tokens.c[first + i] + n), sum[i]);
    }
    hn::StoreU(s, d, row + n);
  }
  if (const int64_t rest = states - n; rest > 0) {
    FloatVec s = load_n(d, row + n, rest);
    for (int i = 0; i < kCount; ++i) {
      s = hn::MulAdd(decay[i], s, hn::Mul(input[i], load_n(d, tokens.b[first + i] + n, rest)));
      sum[i] = hn::MulAdd(s, load_n(d, tokens.c[first + i] + n, rest), sum[i]);
    }
    store_n(s, d, row + n, rest);
  }
  for (int i = 0; i < kCount; ++i) {
    const float x = to_float(tokens.x[first + i][p]);
    tokens.y[first + i][p] = std::fma(skip, x, hn::GetLane(hn::SumOfLanes(d, sum[i])));
  }
}

template <class X>
void step_head(const SsdStep& op, const Seq& seq, int64_t head) {
  const int64_t states = op.state.dim(3);
  const float skip = op.d_skip.as<float>()[head];
  for (int64_t begin = 0; begin < seq.len; begin += kTokens) {
    const int64_t count = HWY_MIN(kTokens, seq.len - begin);
    const Tokens<X> tokens = tokens_of<X>(op, seq.start + begin, count, head);
    for (int64_t p = 0; p < op.x.dim(2); ++p) {
      float* row = op.state.as<float>(seq.slot) + head * op.state.stride(1) + p * op.state.stride(2);
      int64_t i = 0;
      for (; i + 4 <= count; i += 4) advance_row<4>(tokens, i, p, skip, row, states);
      for (; i + 2 <= count; i += 2) advance_row<2>(tokens, i, p, skip, row, states);
      for (; i < count; ++i) advance_row<1>(tokens, i, p, skip, row, states);
    }
  }
}

// Pairs (sequence, head), in that order.
void step_range(const SsdStep& op, int64_t begin, int64_t end) {
  const int64_t heads = op.x.dim(1);
  for (int64_t i = begin; i < end; ++i) {
    const Seq& seq = op.seqs->seqs[static_cast<size_t>(i / heads)];
    op.x.dtype == DType::bf16 ? step_head<Bf16>(op, seq, i % heads) : step_head<float>(op, seq, i % heads);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(step_range);

void ssd_step_hwy(Ctx& ctx, const SsdStep& op, std::span<std::byte>) {
  const int64_t pairs = static_cast<int64_t>(op.seqs->seqs.size()) * op.x.dim(1);
  sys::parallel_for(ctx.threads, pairs, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(step_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
