// Sum of two rows with Highway.
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
  const int64_t width = op.a.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const A* a = op.a.as<A>(t);
    const B* b = op.b.as<B>(t);
    Y* y = op.y.as<Y>(t);
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) store(hn::Add(load(d, a + i), load(d, b + i)), d, y + i);
    if (i < width) store_n(hn::Add(load_n(d, a + i, width - i), load_n(d, b + i, width - i)), d, y + i, width - i);
  }
}

template <class A, class B>
void add_dispatch(const AddFwd& op, int64_t begin, int64_t end) {
  op.y.dtype == DType::bf16 ? add_rows<A, B, Bf16>(op, begin, end) : add_rows<A, B, float>(op, begin, end);
}
void add_range(const AddFwd& op, int64_t begin, int64_t end) {
  const bool wide = op.b.dtype == DType::f32;
  if (op.a.dtype == DType::f32) {
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
  sys::parallel_for(ctx.threads, op.a.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
