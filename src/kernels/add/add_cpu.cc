// Sums of two rows with Highway.
#include "kernels/add/add_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add/add_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

template <class A, class B, class Y>
void add_rows(const AddFwd& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = op.b.dim(1);
  const auto scale = hn::Set(d, op.scale);
  for (int64_t t = begin; t < end; ++t) {
    const A* a = op.a ? op.a.as<A>(t) : nullptr;
    const B* b = op.b.as<B>(t);
    Y* y = op.y.as<Y>(t);
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes)
      store(hn::MulAdd(scale, load(d, b + i), a ? load(d, a + i) : hn::Zero(d)), d, y + i);
    if (i == width) continue;
    const auto rest = a ? load_n(d, a + i, width - i) : hn::Zero(d);
    store_n(hn::MulAdd(scale, load_n(d, b + i, width - i), rest), d, y + i, width - i);
  }
}

template <class A, class B>
void add_dispatch(const AddFwd& op, int64_t begin, int64_t end) {
  op.y.dtype == DType::bf16 ? add_rows<A, B, Bf16>(op, begin, end) : add_rows<A, B, float>(op, begin, end);
}
void add_range(const AddFwd& op, int64_t begin, int64_t end) {
  const bool wide = op.b.dtype == DType::f32;
  if (!op.a || op.a.dtype == DType::f32) {
    wide ? add_dispatch<float, float>(op, begin, end) : add_dispatch<float, Bf16>(op, begin, end);
  } else {
    wide ? add_dispatch<Bf16, float>(op, begin, end) : add_dispatch<Bf16, Bf16>(op, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(add_range);

void add_fwd_hwy(Ctx& ctx, const AddFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 16;  // tokens: a row is two loads and a store, a woken thread costs microseconds
  sys::parallel_for(ctx.threads, op.b.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
