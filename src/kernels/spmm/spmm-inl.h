// Where the sums of rows go, whichever loop made them. Re-included once per target, after math/strips-inl.h.
#if defined(BRAID_SPMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_SPMM_INL_H_
#undef BRAID_SPMM_INL_H_
#else
#define BRAID_SPMM_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>

#include "kernels/spmm/spmm.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// A row's share of one pass: channels [first, first + n) of row i, which lie inside one value of an edge, or with
// `full` have one each.
struct Strip {
  int64_t row, begin, end;  // edges
  int64_t first, n, value;
};

template <class Tag, class X>
HWY_INLINE hn::VFromD<Tag> own_terms(Tag d, const SpmmFwd& op, const Strip& s, int64_t at, hn::VFromD<Tag> y) {
  const int64_t c = s.first + at;
  if (op.reduce == Reduce::mean && s.end > s.begin) y = hn::Div(y, hn::Set(d, static_cast<float>(s.end - s.begin)));
  if (const int64_t i = s.row - op.self_row; op.self && i >= 0 && i < op.self.dim(0))
    y = hn::MulAdd(hn::Set(d, op.self.as<float>()[i]), load(d, op.x.as<X>(op.self_source + i) + c), y);
  if (op.own != 0 && s.row < op.x.dim(0)) y = hn::MulAdd(hn::Set(d, op.own), load(d, op.x.as<X>(s.row) + c), y);
  if (!op.add || s.begin == s.end) return y;
  return hn::Add(
      y, op.add.dtype == DType::bf16 ? load(d, op.add.as<Bf16>(s.row) + c) : load(d, op.add.as<float>(s.row) + c));
}

// Where the sums of rows go.
struct Sink {
  const SpmmFwd& op;
  float* y;  // null: BF16
  int64_t stride;
  bool plain, past;  // nothing is added to sums; past the caches

  explicit Sink(const SpmmFwd& call)
      : op(call),
        y(call.y.dtype == DType::f32 ? call.y.as<float>() : nullptr),
        stride(call.y.stride(0)),
        plain(call.reduce != Reduce::mean && !call.self && call.own == 0 && !call.add),
        past(call.tuning.past_caches) {}

  template <class Tag, class X>
  HWY_INLINE void put(Tag d, const Strip& s, int64_t at, hn::VFromD<Tag> sum) const {
    if (!plain) sum = own_terms<Tag, X>(d, op, s, at, sum);
    if (!y) return HWY_NAMESPACE::put(sum, d, op.y, s.row, s.first + at);
    float* to = y + s.row * stride + s.first + at;
    constexpr bool kWhole = hn::MaxLanes(Tag()) == hn::MaxLanes(hn::ScalableTag<float>());
    if (kWhole && past && reinterpret_cast<uintptr_t>(to) % sizeof(sum) == 0) {
      hn::Stream(sum, d, to);
    } else {
      hn::StoreU(sum, d, to);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
