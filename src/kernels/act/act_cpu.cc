// Activations with Highway. The exact GELU goes lane by lane through the C library: no model of speed uses it.
#include "kernels/act/act_rows.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/act/act_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

template <Act kKind>
HWY_INLINE FloatVec apply(FloatTag d, FloatVec v) {
  if constexpr (kKind == Act::relu2) {
    const FloatVec positive = hn::Max(v, hn::Zero(d));
    return hn::Mul(positive, positive);
  } else if constexpr (kKind == Act::silu) {
    return sigmoid_times(d, v, v);
  } else if constexpr (kKind == Act::gelu_tanh) {
    // (1 + tanh u) / 2 = 1 / (1 + e^-2u)
    const FloatVec cube = hn::Mul(hn::Mul(v, v), v);
    const FloatVec u = hn::MulAdd(hn::Set(d, 0.044715f), cube, v);
    return sigmoid_times(d, hn::Mul(u, hn::Set(d, 1.5957691216057308f)), v);  // 2 sqrt(2 / pi)
  } else {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    store(v, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] *= 0.5f * std::erfc(lanes[i] * -0.70710678118654752f);
    return load(d, lanes);
  }
}

template <Act kKind, class X, class Y>
void act_row(const X* x, const X* gate, Y* y, int64_t width) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const FloatVec v = load(d, x + i);
    store(gate ? hn::Mul(apply<kKind>(d, load(d, gate + i)), v) : apply<kKind>(d, v), d, y + i);
  }
  if (i == width) return;
  const int64_t n = width - i;
  const FloatVec v = load_n(d, x + i, n);
  store_n(gate ? hn::Mul(apply<kKind>(d, load_n(d, gate + i, n)), v) : apply<kKind>(d, v), d, y + i, n);
}

template <Act kKind, class X>
void act_rows(const ActFwd& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const X* gate = op.gate ? op.gate.as<X>(t) : nullptr;
    if (op.y.dtype == DType::bf16) {
      act_row<kKind>(op.x.as<X>(t), gate, op.y.as<Bf16>(t), op.x.dim(1));
    } else {
      act_row<kKind>(op.x.as<X>(t), gate, op.y.as<float>(t), op.x.dim(1));
    }
  }
}
template <Act kKind>
void act_dispatch(const ActFwd& op, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? act_rows<kKind, Bf16>(op, begin, end) : act_rows<kKind, float>(op, begin, end);
}
void act_range(const ActFwd& op, int64_t begin, int64_t end) {
  switch (op.kind) {
    case Act::relu2:
      return act_dispatch<Act::relu2>(op, begin, end);
    case Act::silu:
      return act_dispatch<Act::silu>(op, begin, end);
    case Act::gelu_tanh:
      return act_dispatch<Act::gelu_tanh>(op, begin, end);
    case Act::gelu:
      return act_dispatch<Act::gelu>(op, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(act_range);

void act_fwd_hwy(Ctx& ctx, const ActFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(act_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
