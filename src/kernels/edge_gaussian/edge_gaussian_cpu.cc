// Gaussian weights with Highway: exponents edge by edge into a block of the output, whose exponentials are vectors.
#include "kernels/edge_gaussian/edge_gaussian_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/edge_gaussian/edge_gaussian_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

#include "math/act-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

void gaussian_range(const EdgeGaussianFwd& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t kernels = op.mu.dim(0), dims = op.mu.dim(1);
  const float *mu = op.mu.as<float>(), *sigma = op.sigma.as<float>();
  float* w = op.w.as<float>();
  for (int64_t e = begin; e < end; ++e) {
    const float* u = op.u.as<float>(e);
    for (int64_t k = 0; k < kernels; ++k) {
      float sum = 0;
      for (int64_t p = 0; p < dims; ++p) {
        const float diff = u[p] - mu[k * dims + p], s = sigma[k * dims + p];
        sum += diff * diff / (kGaussianEps + s * s);
      }
      w[e * kernels + k] = -0.5f * sum;
    }
  }
  for (int64_t i = begin * kernels; i < end * kernels; i += lanes) {
    const int64_t n = HWY_MIN(lanes, end * kernels - i);
    n == lanes ? store(exp_or_nan(d, load(d, w + i)), d, w + i)
               : store_n(exp_or_nan(d, load_n(d, w + i, n)), d, w + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(gaussian_range);

void edge_gaussian_fwd_hwy(Ctx& ctx, const EdgeGaussianFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 64;  // edges: their weights stay in L1 between the two loops
  sys::parallel_for(sys::team_for(ctx.threads, op.flops()), op.w.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; e += kGrain)
      HWY_DYNAMIC_DISPATCH(gaussian_range)(op, e, e + kGrain < end ? e + kGrain : end);
  });
}

}  // namespace braid
#endif
