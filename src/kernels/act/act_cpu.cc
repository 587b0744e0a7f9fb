// Activations and their gradients with Highway. The exact GELU goes lane by lane through the C library: no model that
// needs speed uses it.
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
    const FloatVec positive = positive_part(d, v);
    return hn::Mul(positive, positive);
  } else if constexpr (kKind == Act::relu) {
    return positive_part(d, v);
  } else if constexpr (kKind == Act::elu) {
    return hn::IfThenElse(hn::Le(v, hn::Zero(d)), hn::Expm1(d, at_most(d, 0.0f, v)), v);
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

// act(v) and act'(v).
struct ValueAndSlope {
  FloatVec value, slope;
};

// Beyond +-100 every slope is flat; stopping there keeps products with a vanishing 1 - s from overflowing.
template <Act kKind>
HWY_INLINE ValueAndSlope differentiate(FloatTag d, FloatVec v) {
  const FloatVec one = hn::Set(d, 1.0f), low = at_least(d, -100.0f, v), c = at_most(d, 100.0f, low);
  if constexpr (kKind == Act::relu2) {
    const FloatVec positive = positive_part(d, v);
    return {hn::Mul(positive, positive), hn::Add(positive, positive)};
  } else if constexpr (kKind == Act::relu || kKind == Act::elu) {
    // Above 0 the slope is 1, and NaN of NaN.
    const FloatVec above = hn::IfThenElse(hn::Gt(v, hn::Zero(d)), one, v);
    const auto below = hn::Le(v, hn::Zero(d));
    if constexpr (kKind == Act::relu) return {positive_part(d, v), hn::IfThenZeroElse(below, above)};
    const FloatVec less = hn::Expm1(d, at_most(d, 0.0f, low));
    return {hn::IfThenElse(below, less, v), hn::IfThenElse(below, hn::Add(less, one), above)};
  } else if constexpr (kKind == Act::silu) {
    const FloatVec s = sigmoid_times(d, c, one);
    return {hn::Mul(low, s), hn::MulAdd(hn::Mul(c, s), hn::Sub(one, s), s)};
  } else if constexpr (kKind == Act::gelu_tanh) {
    // With s the logistic of z = 2u: y = v s, y' = s + v s (1 - s) z'.
    const FloatVec square = hn::Mul(c, c), two_c = hn::Set(d, 1.5957691216057308f);  // 2 sqrt(2 / pi)
    const FloatVec u = hn::MulAdd(hn::Set(d, 0.044715f), hn::Mul(square, c), c);
    const FloatVec s = sigmoid_times(d, hn::Mul(u, two_c), one);
    const FloatVec dz = hn::Mul(two_c, hn::MulAdd(hn::Set(d, 3 * 0.044715f), square, one));
    return {hn::Mul(low, s), hn::MulAdd(hn::Mul(hn::Mul(c, s), hn::Sub(one, s)), dz, s)};
  } else {
    HWY_ALIGN float value[HWY_MAX_BYTES / sizeof(float)], slope[HWY_MAX_BYTES / sizeof(float)];
    store(v, d, value);
    for (size_t i = 0; i < hn::Lanes(d); ++i) {
      const float x = value[i], cdf = 0.5f * std::erfc(x * -0.70710678118654752f);
      value[i] = x * cdf;
      slope[i] = cdf + x * 0.39894228040143268f * std::exp(-0.5f * x * x);  // 1 / sqrt(2 pi)
    }
    return {load(d, value), load(d, slope)};
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
    case Act::relu:
      return act_dispatch<Act::relu>(op, begin, end);
    case Act::elu:
      return act_dispatch<Act::elu>(op, begin, end);
  }
}

template <Act kKind, class Dy, class X, class Dx>
void bwd_row(const ActBwd& op, int64_t t) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = op.x.dim(1);
  const Dy* dy = op.dy.as<Dy>(t);
  const X *x = op.x.as<X>(t), *gate = op.gate ? op.gate.as<X>(t) : nullptr;
  Dx *dx = op.dx.as<Dx>(t), *dgate = op.gate ? op.dgate.as<Dx>(t) : nullptr;
  for (int64_t i = 0; i < width; i += lanes) {
    const int64_t n = HWY_MIN(lanes, width - i);
    const bool whole = n == lanes;
    const FloatVec v = whole ? load(d, x + i) : load_n(d, x + i, n), g = whole ? load(d, dy + i) : load_n(d, dy + i, n);
    FloatVec to_x, to_gate = g;
    if (gate) {
      const ValueAndSlope a = differentiate<kKind>(d, whole ? load(d, gate + i) : load_n(d, gate + i, n));
      to_x = hn::Mul(g, a.value);
      to_gate = hn::Mul(hn::Mul(g, v), a.slope);
    } else {
      to_x = hn::Mul(g, differentiate<kKind>(d, v).slope);
    }
    whole ? store(to_x, d, dx + i) : store_n(to_x, d, dx + i, n);
    if (dgate) whole ? store(to_gate, d, dgate + i) : store_n(to_gate, d, dgate + i, n);
  }
}

template <Act kKind, class Dy, class X>
void bwd_dx(const ActBwd& op, int64_t t) {
  op.dx.dtype == DType::bf16 ? bwd_row<kKind, Dy, X, Bf16>(op, t) : bwd_row<kKind, Dy, X, float>(op, t);
}
template <Act kKind, class Dy>
void bwd_x(const ActBwd& op, int64_t t) {
  op.x.dtype == DType::bf16 ? bwd_dx<kKind, Dy, Bf16>(op, t) : bwd_dx<kKind, Dy, float>(op, t);
}
template <Act kKind>
void bwd_dispatch(const ActBwd& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    op.dy.dtype == DType::bf16 ? bwd_x<kKind, Bf16>(op, t) : bwd_x<kKind, float>(op, t);
  }
}
void bwd_range(const ActBwd& op, int64_t begin, int64_t end) {
  switch (op.kind) {
    case Act::relu2:
      return bwd_dispatch<Act::relu2>(op, begin, end);
    case Act::silu:
      return bwd_dispatch<Act::silu>(op, begin, end);
    case Act::gelu_tanh:
      return bwd_dispatch<Act::gelu_tanh>(op, begin, end);
    case Act::gelu:
      return bwd_dispatch<Act::gelu>(op, begin, end);
    case Act::relu:
      return bwd_dispatch<Act::relu>(op, begin, end);
    case Act::elu:
      return bwd_dispatch<Act::elu>(op, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(act_range);
HWY_EXPORT(bwd_range);

void act_fwd_hwy(Ctx& ctx, const ActFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(act_range)(op, begin, end);
  });
}

void act_bwd_hwy(Ctx& ctx, const ActBwd& op, std::span<std::byte>) {
  check_gate(op);
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(bwd_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
