// Rows plus a vector, and its gradient, with Highway.
#include <algorithm>

#include "kernels/bias/bias_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bias/bias_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;

template <class X, class Y>
void bias_rows(const BiasFwd& op, int64_t begin, int64_t end) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = op.b.dim(0);
  const float* b = op.b.as<float>();
  for (int64_t t = begin; t < end; ++t) {
    const X* x = op.x.as<X>(t);
    Y* y = op.y.as<Y>(t);
    int64_t c = 0;
    for (; c + lanes <= width; c += lanes) store(hn::Add(load(d, x + c), load(d, b + c)), d, y + c);
    if (const int64_t n = width - c; n > 0) store_n(hn::Add(load_n(d, x + c, n), load_n(d, b + c, n)), d, y + c, n);
  }
}

template <class X>
void bias_dispatch(const BiasFwd& op, int64_t begin, int64_t end) {
  op.y.dtype == DType::bf16 ? bias_rows<X, Bf16>(op, begin, end) : bias_rows<X, float>(op, begin, end);
}
void bias_range(const BiasFwd& op, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? bias_dispatch<Bf16>(op, begin, end) : bias_dispatch<float>(op, begin, end);
}

template <class Num>
void sum_rows(const View& dy, int64_t begin, int64_t end, float* sum) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = dy.dim(1);
  for (int64_t c = 0; c < width; ++c) sum[c] = 0;
  for (int64_t t = begin; t < end; ++t) {
    const Num* row = dy.as<Num>(t);
    int64_t c = 0;
    for (; c + lanes <= width; c += lanes) hn::StoreU(hn::Add(load(d, row + c), hn::LoadU(d, sum + c)), d, sum + c);
    for (; c < width; ++c) sum[c] += to_float(row[c]);
  }
}
void sum_range(const View& dy, int64_t begin, int64_t end, float* sum) {
  dy.dtype == DType::bf16 ? sum_rows<Bf16>(dy, begin, end, sum) : sum_rows<float>(dy, begin, end, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(bias_range);
HWY_EXPORT(sum_range);

namespace {

int64_t blocks_of(const BiasBwd& op) { return (op.dy.dim(0) + kBiasRows - 1) / kBiasRows; }

}  // namespace

void bias_fwd_hwy(Ctx& ctx, const BiasFwd& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 64;  // rows: a load and a store each
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(bias_range)(op, begin, end);
  });
}

int64_t bias_bwd_workspace(const BiasBwd& op, int) {
  return blocks_of(op) * op.dy.dim(1) * static_cast<int64_t>(sizeof(float));
}

void bias_bwd_hwy(Ctx& ctx, const BiasBwd& op, std::span<std::byte> workspace) {
  auto* sums = reinterpret_cast<float*>(workspace.data());
  const int64_t width = op.dy.dim(1), blocks = blocks_of(op);
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), blocks, [&](int64_t block) {
    const int64_t first = block * kBiasRows, last = std::min(op.dy.dim(0), first + kBiasRows);
    HWY_DYNAMIC_DISPATCH(sum_range)(op.dy, first, last, sums + block * width);
  });
  float* db = op.db.as<float>();
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t c = 0; c < width; ++c) db[c] += sums[block * width + c];
  }
}

}  // namespace braid
#endif
