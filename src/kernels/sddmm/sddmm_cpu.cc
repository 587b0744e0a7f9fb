// Values of edges with Highway: the row of the destination stays in L1 while its edges are walked.
#include "kernels/sddmm/sddmm_rows.h"
#include "math/row_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sddmm/sddmm_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

template <class Num>
HWY_INLINE float number(const Num* p) {
  return to_float(*p);
}

// Sum of u v over n channels; without v, of u.
template <class Num>
HWY_INLINE float dot(FloatTag d, const Num* u, const Num* v, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes)
    sum = v ? hn::MulAdd(load(d, u + c), load(d, v + c), sum) : hn::Add(load(d, u + c), sum);
  float total = c > 0 ? hn::GetLane(hn::SumOfLanes(d, sum)) : 0;
  for (; c < n; ++c) total += v ? number(u + c) * number(v + c) : number(u + c);
  return total;
}

template <class Num>
void dots(const SddmmFwd& op, int64_t i, int64_t begin, int64_t end) {
  const FloatTag d;
  const int64_t values = op.y.dim(1), part = op.u.dim(1) / values;
  const float scale = op.scale * (op.u_scale ? op.u_scale.as<float>()[i] : 1.0f);
  for (int64_t e = begin; e < end; ++e) {
    const Num *u = op.u.as<Num>(i), *v = op.v ? op.v.as<Num>(op.col.as<int32_t>()[e]) : nullptr;
    float* y = op.y.as<float>(e);
    for (int64_t w = 0; w < values; ++w) {
      y[w] = scale * dot(d, u + w * part, v ? v + w * part : nullptr, part);
      if (op.op == PairOp::square) y[w] /= op.edge.as<float>(e)[w] * op.edge.as<float>(e)[w];
    }
  }
}

HWY_INLINE FloatVec pair(PairOp op, FloatVec u, FloatVec v) {
  switch (op) {
    case PairOp::add:
      return hn::Add(u, v);
    case PairOp::sub:
      return hn::Sub(u, v);
    case PairOp::mul:
      return hn::Mul(u, v);
    case PairOp::div:
      return hn::Div(u, v);
    case PairOp::copy_u:
      return u;
    default:
      return v;
  }
}

template <class Num>
void pairs(const SddmmFwd& op, int64_t i, int64_t begin, int64_t end) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = op.y.dim(1);
  for (int64_t e = begin; e < end; ++e) {
    const Num *u = op.u ? op.u.as<Num>(i) : nullptr, *v = op.v ? op.v.as<Num>(op.col.as<int32_t>()[e]) : nullptr;
    float* y = op.y.as<float>(e);
    for (int64_t c = 0; c < width; c += lanes) {
      const int64_t n = HWY_MIN(lanes, width - c);
      const auto read = [&](const Num* p) {
        return !p ? hn::Zero(d) : n == lanes ? load(d, p + c) : load_n(d, p + c, n);
      };
      const FloatVec value = pair(op.op, read(u), read(v));
      n == lanes ? store(value, d, y + c) : store_n(value, d, y + c, n);
    }
  }
}

template <class Num>
void sddmm_rows(const SddmmFwd& op, int64_t begin, int64_t end) {
  const int64_t* rowptr = op.rowptr.as<int64_t>();
  const bool sums = op.op == PairOp::dot || op.op == PairOp::square;
  for (int64_t i = begin; i < end; ++i) {
    sums ? dots<Num>(op, i, rowptr[i], rowptr[i + 1]) : pairs<Num>(op, i, rowptr[i], rowptr[i + 1]);
  }
}

void sddmm_range(const SddmmFwd& op, int64_t begin, int64_t end) {
  (op.u ? op.u : op.v).dtype == DType::bf16 ? sddmm_rows<Bf16>(op, begin, end) : sddmm_rows<float>(op, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(sddmm_range);

void sddmm_fwd_hwy(Ctx& ctx, const SddmmFwd& op, std::span<std::byte>) {
  check_sddmm(op);
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.rowptr.dim(0) - 1, op.flops(),
                     [&](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(sddmm_range)
                       (op, begin, end);
                     });
}

}  // namespace braid
#endif
