// Softmax over the edges of rows with Highway: what is subtracted head by head, exponentials along the edges of a row,
// which lie beside each other with all their heads.
#include <cmath>

#include "kernels/edge_softmax/edge_softmax_rows.h"
#include "math/row_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/edge_softmax/edge_softmax_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

#include "math/act-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

void edge_softmax_range(const EdgeSoftmaxFwd& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t heads = op.x.dim(1);
  const auto* rowptr = op.rowptr.as<int64_t>();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = rowptr[i] * heads, n = rowptr[i + 1] * heads - first;
    const float* x = op.x.as<float>() + first;
    float* y = op.y.as<float>() + first;
    for (int64_t h = 0; h < heads; ++h) {
      float top = -HUGE_VALF;
      for (int64_t at = h; at < n; at += heads) {
        y[at] = x[at] > 0 ? x[at] : x[at] * op.slope;
        top = HWY_MAX(y[at], top);  // of those that are not NaN, which the sum then is
      }
      for (int64_t at = h; at < n; at += heads) y[at] -= top;
    }
    for (int64_t at = 0; at < n; at += lanes) {
      const int64_t left = HWY_MIN(lanes, n - at);
      left == lanes ? store(exp_or_nan(d, load(d, y + at)), d, y + at)
                    : store_n(exp_or_nan(d, load_n(d, y + at, left)), d, y + at, left);
    }
    for (int64_t h = 0; h < heads; ++h) {
      float sum = 0;
      for (int64_t at = h; at < n; at += heads) sum += y[at];
      for (int64_t at = h; at < n; at += heads) y[at] /= sum;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(edge_softmax_range);

void edge_softmax_fwd_hwy(Ctx& ctx, const EdgeSoftmaxFwd& op, std::span<std::byte>) {
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.rowptr.dim(0) - 1, op.flops(),
                     [&](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(edge_softmax_range)
                       (op, begin, end);
                     });
}

}  // namespace braid
#endif
