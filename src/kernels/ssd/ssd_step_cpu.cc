// SsdStep with Highway: a row of the state (one p of one head) is read once, taken through up to 8 tokens in the L1
// cache and written once, so that the cost is the traffic of the state; with a trail it is written after each token.
// Threads own contiguous stretches of it.
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
  const float a = -std::exp(op.a_log.as<float>()[head]);
  load_steps(op, first, count, head, tokens.step);
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

// Tokens [first, first + kCount) through kRows rows of the state, from one place to another or the same. Every row sums
// over n in the same order whatever kRows and kCount are.
template <int kRows, int kCount, class X>
HWY_INLINE void advance(const Tokens<X>& tokens, int64_t first, int64_t p, float skip, const float* from, float* to,
                        int64_t stride, int64_t states) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum[kRows][kCount], input[kRows][kCount], decay[kCount];
  for (int i = 0; i < kCount; ++i) {
    decay[i] = hn::Set(d, tokens.decay[first + i]);
    for (int r = 0; r < kRows; ++r) {
      sum[r][i] = hn::Zero(d);
      input[r][i] = hn::Set(d, tokens.step[first + i] * to_float(tokens.x[first + i][p + r]));
    }
  }
  const auto visit = [&](int64_t n, auto&& read, auto&& write) HWY_ATTR {
    FloatVec s[kRows];
    for (int r = 0; r < kRows; ++r) s[r] = read(from + r * stride + n);
    for (int i = 0; i < kCount; ++i) {
      const FloatVec b = read(tokens.b[first + i] + n), c = read(tokens.c[first + i] + n);
      for (int r = 0; r < kRows; ++r) {
        s[r] = hn::MulAdd(decay[i], s[r], hn::Mul(input[r][i], b));
        sum[r][i] = hn::MulAdd(s[r], c, sum[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) write(s[r], to + r * stride + n);
  };
  int64_t n = 0;
  for (; n + lanes <= states; n += lanes) {
    visit(
        n, [&](const auto* at) HWY_ATTR { return load(d, at); },
        [&](FloatVec v, float* at) HWY_ATTR { hn::StoreU(v, d, at); });
  }
  if (const int64_t rest = states - n; rest > 0) {
    visit(
        n, [&](const auto* at) HWY_ATTR { return load_n(d, at, rest); },
        [&](FloatVec v, float* at) HWY_ATTR { store_n(v, d, at, rest); });
  }
  for (int i = 0; i < kCount; ++i) {
    for (int r = 0; r < kRows; ++r) {
      const float x = to_float(tokens.x[first + i][p + r]), inner = hn::GetLane(hn::SumOfLanes(d, sum[r][i]));
      tokens.y[first + i][p + r] = std::fma(skip, x, inner);
    }
  }
}

template <class X>
void step_head(const SsdStep& op, const Seq& seq, int64_t head) {
  const int64_t width = op.x.dim(2), states = op.state.dim(3), stride = op.state.stride(2);
  const float skip = op.d_skip.as<float>()[head];
  const auto state = [&](int64_t slot) { return op.state.as<float>(slot) + head * op.state.stride(1); };
  for (int64_t begin = 0; begin < seq.len; begin += kTokens) {
    const int64_t count = HWY_MIN(kTokens, seq.len - begin);
    const Tokens<X> tokens = tokens_of<X>(op, seq.start + begin, count, head);
    int64_t p = 0;
    for (; p + 4 <= width; p += 4) {
      int64_t i = 0;
      for (; seq.trail < 0 && i + 2 <= count; i += 2) {
        float* rows = state(seq.slot) + p * stride;
        advance<4, 2>(tokens, i, p, skip, rows, rows, stride, states);
      }
      for (; i < count; ++i) {
        const float* from = state(op.seqs->slot_before(seq, begin + i)) + p * stride;
        advance<4, 1>(tokens, i, p, skip, from, state(op.seqs->slot_after(seq, begin + i)) + p * stride, stride,
                      states);
      }
    }
    for (; p < width; ++p) {
      for (int64_t i = 0; i < count; ++i) {
        const float* from = state(op.seqs->slot_before(seq, begin + i)) + p * stride;
        advance<1, 1>(tokens, i, p, skip, from, state(op.seqs->slot_after(seq, begin + i)) + p * stride, stride,
                      states);
      }
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
  sys::parallel_for(sys::team_for(ctx.threads, op.flops()), pairs, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(step_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
