// Sequential reduction with Highway: a row at a time, its channels in up to eight vectors of accumulators, so that a
// width of 128 (AVX-512) is one pass over the edges. Each channel sums its edges in their order, whatever the vectors.
#include <algorithm>

#include "kernels/spmm/spmm_rows.h"
#include "math/row_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/spmm/spmm_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "math/vec-inl.h"
// after vec-inl
#include "math/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// A row's share of one pass: channels [first, first + n) of row i, which lie inside one value of an edge, or with
// `full` have one each.
struct Strip {
  int64_t row, begin, end;  // edges
  int64_t first, n, value;
};

template <class Tag>
HWY_INLINE hn::VFromD<Tag> apply_edge(EdgeOp op, hn::VFromD<Tag> x, hn::VFromD<Tag> e) {
  switch (op) {
    case EdgeOp::copy_x:
      return x;
    case EdgeOp::copy_e:
      return e;
    case EdgeOp::add:
      return hn::Add(x, e);
    case EdgeOp::sub:
      return hn::Sub(x, e);
    case EdgeOp::mul:
      return hn::Mul(x, e);
    case EdgeOp::div:
      return hn::Div(x, e);
  }
  return x;
}

// Lines of the row of a later edge; the pointer may be anything.
template <class X>
HWY_INLINE void prefetch(const X* row, int64_t n) {
  for (int64_t c = 0; c < n; c += static_cast<int64_t>(64 / sizeof(X))) hwy::Prefetch(row + c);
}

template <class X>
struct Source {
  const X* x = nullptr;  // at the strip's first channel
  int64_t stride = 0;
  const float* scale = nullptr;
  const float* edge = nullptr;  // at the strip's value
  int64_t values = 0;
  bool full = false;  // a value per channel
  const int32_t *col = nullptr, *order = nullptr;
  int64_t ahead = 0;  // edges

  Source(const SpmmFwd& op, const Strip& s, int64_t distance)
      : x(op.x ? op.x.as<X>() + s.first : nullptr),
        stride(op.x ? op.x.stride(0) : 0),
        scale(op.x_scale ? op.x_scale.as<float>() : nullptr),
        edge(op.edge ? op.edge.as<float>() + s.value : nullptr),
        values(op.edge ? op.edge.dim(1) : 0),
        full(op.edge && op.edge.dim(1) == op.y.dim(1)),
        col(op.col.as<int32_t>()),
        order(op.order ? op.order.as<int32_t>() : nullptr),
        ahead(distance) {}
  const X* row(int64_t e) const { return x + col[e] * stride; }
  int64_t place(int64_t e) const { return order ? order[e] : e; }
};

// Sums of x, or of x times one factor per edge: most calls.
template <class Tag, int kVecs, bool kFactor, class X>
HWY_INLINE void sum_edges(Tag d, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  const Places<Tag, kVecs> places(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    const X* row = in.row(e);
    if (in.ahead > 0 && e + in.ahead < s.end) prefetch(in.row(e + in.ahead), s.n);
    if constexpr (kFactor) {
      float factor = in.edge ? in.edge[in.place(e) * in.values] : 1.0f;
      if (in.scale) factor *= in.scale[in.col[e]];
      const auto f = hn::Set(d, factor);
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::MulAdd(f, load(d, row + places.at[v]), acc[v]);
    } else {
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Add(load(d, row + places.at[v]), acc[v]);
    }
  }
}

// Vector v of the message of edge e, for any op.
template <class Tag, class X>
HWY_INLINE hn::VFromD<Tag> message(Tag d, EdgeOp op, const Source<X>& in, int64_t e, int64_t at) {
  auto x = in.x ? load(d, in.row(e) + at) : hn::Zero(d);
  if (in.scale) x = hn::Mul(x, hn::Set(d, in.scale[in.col[e]]));
  if (!in.edge) return x;
  const float* value = in.edge + in.place(e) * in.values;
  return apply_edge<Tag>(op, x, in.full ? hn::LoadU(d, value + at) : hn::Set(d, *value));
}

template <class Tag, int kVecs, class X>
HWY_INLINE void sum_messages(Tag d, EdgeOp op, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  const Places<Tag, kVecs> places(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    for (int v = 0; v < kVecs; ++v) acc[v] = hn::Add(acc[v], message(d, op, in, e, places.at[v]));
  }
}

// The best message of every channel and its edge: the first wins a tie, NaN wins over all.
template <class Tag, int kVecs, bool kMax, class X>
HWY_INLINE void pick_messages(Tag d, EdgeOp op, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs],
                              hn::VFromD<hn::RebindToSigned<Tag>> (&arg)[kVecs]) {
  const hn::RebindToSigned<Tag> i32;
  const Places<Tag, kVecs> places(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    const auto place = hn::Set(i32, static_cast<int32_t>(in.place(e)));
    if (in.ahead > 0 && e + in.ahead < s.end && in.x) prefetch(in.row(e + in.ahead), s.n);
    for (int v = 0; v < kVecs; ++v) {
      const auto m = message(d, op, in, e, places.at[v]);
      const auto loses = kMax ? hn::Le(m, acc[v]) : hn::Ge(m, acc[v]);
      const auto keeps = e > s.begin ? hn::Or(loses, hn::IsNaN(acc[v])) : hn::MaskFromVec(hn::Zero(d));
      acc[v] = hn::IfThenElse(keeps, acc[v], m);
      arg[v] = hn::IfThenElse(hn::RebindMask(i32, keeps), arg[v], place);
    }
  }
}

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

template <class Tag, int kVecs, class X>
void strip_of(const SpmmFwd& op, const Strip& s, int64_t ahead) {
  const Tag d;
  const hn::RebindToSigned<Tag> i32;
  const Source<X> in(op, s, ahead);
  hn::VFromD<Tag> acc[kVecs];
  for (int v = 0; v < kVecs; ++v) acc[v] = hn::Zero(d);
  const Places<Tag, kVecs> places(s.n);
  if (picks(op.reduce)) {
    hn::VFromD<hn::RebindToSigned<Tag>> arg[kVecs];
    for (int v = 0; v < kVecs; ++v) arg[v] = hn::Set(i32, -1);
    op.reduce == Reduce::max ? pick_messages<Tag, kVecs, true>(d, op.op, in, s, acc, arg)
                             : pick_messages<Tag, kVecs, false>(d, op.op, in, s, acc, arg);
    for (int v = 0; v < kVecs && op.arg; ++v)
      hn::StoreU(arg[v], i32, op.arg.as<int32_t>(s.row) + s.first + places.at[v]);
  } else if (op.op == EdgeOp::copy_x && !in.scale) {
    sum_edges<Tag, kVecs, false>(d, in, s, acc);
  } else if (op.op == EdgeOp::copy_x || (op.op == EdgeOp::mul && !in.full)) {
    sum_edges<Tag, kVecs, true>(d, in, s, acc);
  } else {
    sum_messages<Tag, kVecs>(d, op.op, in, s, acc);
  }
  // A vector that overlaps the one before has the same values there.
  for (int v = 0; v < kVecs; ++v)
    put(own_terms<Tag, X>(d, op, s, places.at[v], acc[v]), d, op.y, s.row, s.first + places.at[v]);
}

// How many edges ahead rows of x are fetched. It pays where they are long, come from beyond L2, and have many others in
// the same row of the graph to look ahead to: on Zen 5, 8 to 10% at 128 channels; at 16 it costs as much.
HWY_INLINE int64_t distance_of(const SpmmFwd& op) {
  if (!op.x) return 0;
  constexpr int64_t kAhead = 16, kCached = 1 << 20, kLong = 512;  // edges, bytes, bytes
  const bool many = op.col.dim(0) >= kAhead * op.y.dim(0), wide = op.x.dim(1) * size_of(op.x.dtype) >= kLong;
  return many && wide && op.x.bytes() > kCached ? kAhead : 0;
}

template <class X>
void spmm_rows(const SpmmFwd& op, int64_t begin, int64_t end) {
  const int64_t width = op.y.dim(1), values = op.edge ? op.edge.dim(1) : 1;
  const bool full = values == width;
  const int64_t part = full ? width : width / values, ahead = distance_of(op);
  const int64_t* rowptr = op.rowptr.as<int64_t>();
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t from = 0; from < width; from += part) {
      for (int64_t c = from; c < from + part; c += kStripMost) {
        const Strip s{.row = i,
                      .begin = rowptr[i],
                      .end = rowptr[i + 1],
                      .first = c,
                      .n = HWY_MIN(kStripMost, from + part - c),
                      .value = full ? c : from / part};
        with_vectors(s.n, [&]<class Tag, int kVecs>() { strip_of<Tag, kVecs, X>(op, s, ahead); });
      }
    }
  }
}

void spmm_range(const SpmmFwd& op, int64_t begin, int64_t end) {
  op.x&& op.x.dtype == DType::bf16 ? spmm_rows<Bf16>(op, begin, end) : spmm_rows<float>(op, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(spmm_range);

void spmm_fwd_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.y.dim(0), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(spmm_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
