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

// Rows [begin, end) of dense arrays.
template <class Num>
void gradient_rows(const EdgeSoftmaxBwd& op, int64_t begin, int64_t end, const Num* x, const Num* y, const Num* dy,
                   Num* dx) {
  const auto* rowptr = op.rowptr.as<int64_t>();
  const int64_t heads = op.x.dim(1);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      Num mean = 0;
      for (int64_t at = rowptr[i] * heads + h; at < rowptr[i + 1] * heads; at += heads) mean += y[at] * dy[at];
      for (int64_t at = rowptr[i] * heads + h; at < rowptr[i + 1] * heads; at += heads) {
        const Num slope = x[at] > 0 ? Num(1) : static_cast<Num>(op.slope);
        dx[at] = y[at] * (dy[at] - mean) * slope;
      }
    }
  }
}

void bwd_ref(Ctx&, const EdgeSoftmaxBwd& op, std::span<std::byte>) {
  const std::vector<double> x = to_doubles(op.x), y = to_doubles(op.y), dy = to_doubles(op.dy);
  std::vector<double> dx(x.size());
  gradient_rows(op, 0, op.rowptr.dim(0) - 1, x.data(), y.data(), dy.data(), dx.data());
  store(op.dx, dx);
}

const char* fwd_supports(const EdgeSoftmaxFwd& op) {
  return op.x.contiguous() && op.y.contiguous() ? nullptr : "strided";
}
const char* bwd_supports(const EdgeSoftmaxBwd& op) {
  return op.x.contiguous() && op.y.contiguous() && op.dy.contiguous() && op.dx.contiguous() ? nullptr : "strided";
}

}  // namespace

void edge_softmax_bwd_loops(Ctx& ctx, const EdgeSoftmaxBwd& op, std::span<std::byte>) {
  for_each_row_range(
      ctx.threads, op.rowptr.as<int64_t>(), op.rowptr.dim(0) - 1, op.flops(), [&](int64_t begin, int64_t end) {
        gradient_rows(op, begin, end, op.x.as<float>(), op.y.as<float>(), op.dy.as<float>(), op.dx.as<float>());
      });
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
       .supports = &bwd_supports,
       .run = kHasCuda ? &edge_softmax_bwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "loops", .numerics = "f32", .supports = &bwd_supports, .run = &edge_softmax_bwd_loops},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
