#include "kernels/edge_softmax/edge_softmax.h"

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/edge_softmax/edge_softmax_ref.h"
#include "kernels/edge_softmax/edge_softmax_rows.h"
#include "math/row_split.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const EdgeSoftmaxFwd& op, std::span<std::byte>) {
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  edge_softmax_ref(op.rowptr, op.x.dim(1), op.slope, to_doubles(op.x), y);
  store(op.y, y);
}

// Rows [begin, end); `dx` in `Num`.
template <class Num>
void gradient_rows(const EdgeSoftmaxBwd& op, int64_t begin, int64_t end, Num* dx) {
  const auto* rowptr = op.rowptr.as<int64_t>();
  const float *x = op.x.as<float>(), *y = op.y.as<float>(), *dy = op.dy.as<float>();
  const int64_t heads = op.x.dim(1);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      Num mean = 0;
      for (int64_t at = rowptr[i] * heads + h; at < rowptr[i + 1] * heads; at += heads)
        mean += static_cast<Num>(y[at]) * static_cast<Num>(dy[at]);
      for (int64_t at = rowptr[i] * heads + h; at < rowptr[i + 1] * heads; at += heads) {
        const Num slope = x[at] > 0 ? Num(1) : static_cast<Num>(op.slope);
        dx[at] = static_cast<Num>(y[at]) * (static_cast<Num>(dy[at]) - mean) * slope;
      }
    }
  }
}

void bwd_ref(Ctx&, const EdgeSoftmaxBwd& op, std::span<std::byte>) {
  std::vector<double> dx(static_cast<size_t>(op.dx.count()));
  gradient_rows(op, 0, op.rowptr.dim(0) - 1, dx.data());
  store(op.dx, dx);
}

const char* fwd_supports(const EdgeSoftmaxFwd& op) {
  return op.x.contiguous() && op.y.contiguous() ? nullptr : "strided";
}
const char* bwd_cuda_supports(const EdgeSoftmaxBwd& op) {
  return op.x.contiguous() && op.y.contiguous() && op.dy.contiguous() && op.dx.contiguous() ? nullptr : "strided";
}

}  // namespace

void edge_softmax_bwd_loops(Ctx& ctx, const EdgeSoftmaxBwd& op, std::span<std::byte>) {
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.rowptr.dim(0) - 1, op.flops(),
                     [&](int64_t begin, int64_t end) { gradient_rows(op, begin, end, op.dx.as<float>()); });
}

std::span<const Row<EdgeSoftmaxFwd>> EdgeSoftmaxFwd::rows() {
  static constexpr Row<EdgeSoftmaxFwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &fwd_supports,
       .run = kHasCuda ? &edge_softmax_fwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "hwy", .numerics = "f32", .supports = &fwd_supports, .run = &edge_softmax_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<EdgeSoftmaxBwd>> EdgeSoftmaxBwd::rows() {
  static constexpr Row<EdgeSoftmaxBwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &bwd_cuda_supports,
       .run = kHasCuda ? &edge_softmax_bwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "loops", .numerics = "f32", .run = &edge_softmax_bwd_loops},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
