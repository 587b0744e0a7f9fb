// SsdStep with Highway: a row of the state (one p of one head) is read once, updated by up to 8 tokens in the L1 cache
// and written once, so the cost is the memory traffic of the state; with a trail it is written after each token. Rows
// of a stored type pass through a few rows of FP32 in L1. Threads own contiguous parts of the state.
#include <cmath>

#include "kernels/ssd/ssd_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd/ssd_step_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/contrib/math/math-inl.h>

#include "kernels/ssd/ssd-inl.h"
#include "kernels/ssd/ssd_stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

constexpr int64_t kTokens = kSsdStepTokens;  // of a pass: their b and c stay in the L1 cache with the row
constexpr int64_t kRowsMax = 4;              // of the state at a time

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

// Tokens [first, first + kCount) through kRows rows of the state, to other memory or in place. Every row sums over n in
// the same order whatever kRows and kCount are.
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

// `count` tokens of a sequence from its token `begin` on, which one pass applies to a head's state.
struct Pass {
  const SsdStep& op;
  const Seq& seq;
  int64_t head, begin, count;

  bool trail() const { return seq.trail >= 0; }
  int64_t before(int64_t i) const { return op.seqs->slot_before(seq, begin + i); }
  int64_t after(int64_t i) const { return op.seqs->slot_after(seq, begin + i); }
};

template <int kRows, class X>
void step_rows(const Pass& pass, const Tokens<X>& tokens, int64_t p) {
  const SsdStep& op = pass.op;
  const int64_t states = op.state.dim(3), stride = op.state.stride(2);
  const float skip = op.d_skip.as<float>()[pass.head];
  const auto rows = [&](int64_t slot) {
    return op.state.as<float>(slot) + pass.head * op.state.stride(1) + p * stride;
  };
  int64_t i = 0;
  for (; kRows > 1 && !pass.trail() && i + 2 <= pass.count; i += 2) {
    float* own = rows(pass.seq.slot);
    advance<kRows, 2>(tokens, i, p, skip, own, own, stride, states);
  }
  for (; i < pass.count; ++i)
    advance<kRows, 1>(tokens, i, p, skip, rows(pass.before(i)), rows(pass.after(i)), stride, states);
}

template <int kRows, class X>
void step_stored_rows(const Pass& pass, const Tokens<X>& tokens, int64_t p) {
  const SsdStep& op = pass.op;
  const int64_t states = op.state.dim(3), stride = (states + 15) / 16 * 16;
  const float skip = op.d_skip.as<float>()[pass.head];
  HWY_ALIGN float rows[kRows * kStoredStatesMax];
  const auto load_rows = [&](int64_t slot) {
    for (int r = 0; r < kRows; ++r) load_stored(op, slot, pass.head, p + r, rows + r * stride);
  };
  const auto store_rows = [&](int64_t i) {
    const int64_t position = pass.seq.pos0 + pass.begin + i + 1;
    for (int r = 0; r < kRows; ++r) store_stored(op, rows + r * stride, position, pass.after(i), pass.head, p + r);
  };
  load_rows(pass.before(0));
  for (int64_t i = 0; i < pass.count; ++i) {
    if (pass.trail() && i > 0) load_rows(pass.before(i));
    advance<kRows, 1>(tokens, i, p, skip, rows, rows, stride, states);
    if (pass.trail() || i + 1 == pass.count) store_rows(i);
  }
}

template <class X>
void step_head(const SsdStep& op, const Seq& seq, int64_t head) {
  const bool stored = op.state.dtype != DType::f32;
  const int64_t width = op.x.dim(2);
  for (int64_t begin = 0; begin < seq.len; begin += kTokens) {
    const Pass pass{op, seq, head, begin, HWY_MIN(kTokens, seq.len - begin)};
    const Tokens<X> tokens = tokens_of<X>(op, seq.start + begin, pass.count, head);
    int64_t p = 0;
    for (; p + kRowsMax <= width; p += kRowsMax)
      stored ? step_stored_rows<kRowsMax>(pass, tokens, p) : step_rows<kRowsMax>(pass, tokens, p);
    for (; p < width; ++p) stored ? step_stored_rows<1>(pass, tokens, p) : step_rows<1>(pass, tokens, p);
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
