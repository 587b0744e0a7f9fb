// One channel with the edges of a row in the lanes of a vector: the parallel reductions of Huang et al. (arXiv
// 2106.16064), by rows and by edges. They sum in another order than the class f32, so nothing chooses them by
// itself; README.md says where each would pay.
#include "kernels/spmm/spmm_rows.h"
#include "math/row_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/spmm/spmm_lanes_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::CappedTag<float, 8>;
using LaneIds = hn::RebindToSigned<Lanes>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Lanes()));

// What both loops read: x[col[e]] times the value of edge e.
struct Products {
  const int64_t* rowptr;
  const int32_t* col;
  const float *x, *edge;
  float* y;
  explicit Products(const SpmmFwd& op)
      : rowptr(op.rowptr.as<int64_t>()),
        col(op.col.as<int32_t>()),
        x(op.x.as<float>()),
        edge(op.edge.as<float>()),
        y(op.y.as<float>()) {}
  HWY_INLINE hn::VFromD<Lanes> at(int64_t e) const {
    constexpr Lanes d;
    return hn::Mul(hn::LoadU(d, edge + e), hn::GatherIndex(d, x, hn::LoadU(LaneIds(), col + e)));
  }
};

HWY_INLINE float sum_of(hn::VFromD<Lanes> v) {
  constexpr Lanes d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

void pr_range(const SpmmFwd& op, int64_t begin, int64_t end) {
  constexpr Lanes d;
  const Products in(op);
  for (int64_t row = begin; row < end; ++row) {
    auto acc = hn::Zero(d);
    int64_t e = in.rowptr[row];
    const int64_t last = in.rowptr[row + 1];
    for (; e + kLanes <= last; e += kLanes) {
      const auto x = hn::GatherIndex(d, in.x, hn::LoadU(LaneIds(), in.col + e));
      acc = hn::MulAdd(hn::LoadU(d, in.edge + e), x, acc);
    }
    float sum = sum_of(acc);
    for (; e < last; ++e) sum += in.edge[e] * in.x[in.col[e]];
    in.y[row] = sum;
  }
}

// Sums of the lanes of `p` that have one row id, in the first lane of each: a segmented scan.
HWY_INLINE hn::VFromD<Lanes> sum_segments(hn::VFromD<Lanes> p, const int32_t* ids) {
  constexpr Lanes d;
  constexpr LaneIds i32;
  const auto row = hn::LoadU(i32, ids), lane = hn::Iota(i32, 0);
  for (int32_t step = 1; step < kLanes; step *= 2) {
    const auto from = hn::Min(hn::Add(lane, hn::Set(i32, step)), hn::Set(i32, static_cast<int32_t>(kLanes) - 1));
    const auto index = hn::IndicesFromVec(i32, from);
    const auto same = hn::And(hn::Eq(row, hn::TableLookupLanes(row, index)),
                              hn::Lt(lane, hn::Set(i32, static_cast<int32_t>(kLanes) - step)));
    p = hn::Add(p, hn::IfThenElseZero(hn::RebindMask(d, same), hn::TableLookupLanes(p, hn::IndicesFromVec(d, from))));
  }
  return p;
}

// Edges in blocks that begin at multiples of the lanes, whatever rows they belong to: a block at the border of two
// ranges is computed for both, so that where ranges begin changes no bit.
void eb_pr_range(const SpmmFwd& op, int64_t begin, int64_t end) {
  constexpr Lanes d;
  const Products in(op);
  for (int64_t row = begin; row < end; ++row) in.y[row] = 0;
  const int64_t edges = op.col.dim(0);
  int64_t row = begin;
  for (int64_t e = in.rowptr[begin] / kLanes * kLanes; e < in.rowptr[end]; e += kLanes) {
    HWY_ALIGN int32_t ids[kLanes];
    HWY_ALIGN float sums[kLanes];
    const int64_t count = HWY_MIN(kLanes, edges - e);
    for (int64_t k = 0; k < kLanes; ++k) {
      while (row < end && in.rowptr[row + 1] <= e + k) ++row;
      ids[k] = static_cast<int32_t>(e + k < in.rowptr[begin] ? begin - 1 : row);
    }
    if (count < kLanes) {
      for (int64_t k = 0; k < count; ++k)
        if (ids[k] >= begin && ids[k] < end) in.y[ids[k]] += in.edge[e + k] * in.x[in.col[e + k]];
      continue;
    }
    const auto p = in.at(e);
    if (ids[0] == ids[kLanes - 1]) {
      in.y[ids[0]] += sum_of(p);
      continue;
    }
    hn::Store(sum_segments(p, ids), d, sums);
    for (int64_t k = 0; k < kLanes; ++k) {
      if ((k == 0 || ids[k] != ids[k - 1]) && ids[k] >= begin && ids[k] < end) in.y[ids[k]] += sums[k];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(pr_range);
HWY_EXPORT(eb_pr_range);

void spmm_fwd_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.y.dim(0), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(pr_range)(op, begin, end);
  });
}

void spmm_fwd_eb_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.y.dim(0), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(eb_pr_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
