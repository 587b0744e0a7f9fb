// Rotation with Highway: pairs are two vectors half a head apart; adjacent ones are left to the compiler.
#include "kernels/rope/rope_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;

// One head; `half` pairs.
template <class Num>
void rotate(const float* cos, const float* sin, float sign, Num* x, int64_t half) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto signs = hn::Set(d, sign);
  for (int64_t i = 0; i < half; i += lanes) {
    const int64_t n = HWY_MIN(lanes, half - i);
    const bool whole = n == lanes;
    const auto c = whole ? load(d, cos + i) : load_n(d, cos + i, n);
    const auto s = hn::Mul(signs, whole ? load(d, sin + i) : load_n(d, sin + i, n));
    const auto a = whole ? load(d, x + i) : load_n(d, x + i, n);
    const auto b = whole ? load(d, x + half + i) : load_n(d, x + half + i, n);
    const auto first = hn::NegMulAdd(b, s, hn::Mul(a, c)), second = hn::MulAdd(a, s, hn::Mul(b, c));
    if (whole) {
      store(first, d, x + i);
      store(second, d, x + half + i);
    } else {
      store_n(first, d, x + i, n);
      store_n(second, d, x + half + i, n);
    }
  }
}

inline void put(float value, float& to) { to = value; }
inline void put(float value, Bf16& to) { to = to_bf16(value); }

template <class Num>
void rotate_adjacent(const float* cos, const float* sin, float sign, Num* x, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_float(x[2 * i]), b = to_float(x[2 * i + 1]), s = sign * sin[i];
    put(a * cos[i] - b * s, x[2 * i]);
    put(b * cos[i] + a * s, x[2 * i + 1]);
  }
}

template <class Num>
void rotate_rows(const RopeArgs& op, const Seq& seq, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t pos = seq.pos0 + t;
    for (int64_t h = 0; h < op.x.dim(1); ++h) {
      Num* x = op.x.as<Num>(seq.start + t) + h * op.x.stride(1);
      const auto turn = op.adjacent ? &rotate_adjacent<Num> : &rotate<Num>;
      turn(op.cos.as<float>(pos), op.sin.as<float>(pos), op.sign, x, op.cos.dim(1));
    }
  }
}
void rotate_seq(const RopeArgs& op, const Seq& seq, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? rotate_rows<Bf16>(op, seq, begin, end) : rotate_rows<float>(op, seq, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(rotate_seq);

void rope_hwy(Ctx& ctx, const RopeArgs& op) {
  check_rope(op);
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  const std::vector<Seq>& seqs = op.seqs->seqs;
  sys::parallel_for(ctx.threads, op.seqs->tokens(), kGrain, [&](int64_t begin, int64_t end) {
    for (const Seq& seq : seqs) {
      const int64_t first = std::max(begin, seq.start), last = std::min(end, seq.start + seq.len);
      if (first < last) HWY_DYNAMIC_DISPATCH(rotate_seq)(op, seq, first - seq.start, last - seq.start);
    }
  });
}

}  // namespace braid
#endif
