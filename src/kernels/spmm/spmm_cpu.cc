// Sequential reduction with Highway: a row at a time, its channels in up to eight vectors of accumulators, so that a
// width of 128 (AVX-512) is one pass over the edges. Each channel sums its edges in their order, whatever the vectors.
#include <algorithm>
#include <type_traits>

#include "kernels/spmm/spmm_pack.h"
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

// What the loop over the edges of a row does.
enum class Kind : uint8_t {
  copy,      // sums of x
  edge,      // of x times the value of the edge, in the order of edges
  factor,    // of x times one factor, wherever its parts are
  messages,  // of any op
  most,
  least
};

HWY_INLINE Kind kind_of(const SpmmFwd& op) {
  if (picks(op.reduce)) return op.reduce == Reduce::max ? Kind::most : Kind::least;
  if (op.op == EdgeOp::copy_x) return op.x_scale ? Kind::factor : Kind::copy;
  const int64_t values = op.edge ? op.edge.dim(1) : 0;
  if (op.op != EdgeOp::mul || (values > 1 && values == op.y.dim(1))) return Kind::messages;
  return op.order || op.x_scale || values > 1 ? Kind::factor : Kind::edge;
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
  int64_t ahead = 0, last = 0;  // edges: how far prefetches are ahead, and the last of the graph

  Source(const SpmmFwd& op, const Strip& s, int64_t distance)
      : x(op.x ? op.x.as<X>() + s.first : nullptr),
        stride(op.x ? op.x.stride(0) : 0),
        scale(op.x_scale ? op.x_scale.as<float>() : nullptr),
        edge(op.edge ? op.edge.as<float>() + s.value : nullptr),
        values(op.edge ? op.edge.dim(1) : 0),
        full(op.edge && op.edge.dim(1) > 1 && op.edge.dim(1) == op.y.dim(1)),
        col(op.col.as<int32_t>()),
        order(op.order ? op.order.as<int32_t>() : nullptr),
        ahead(distance),
        last(op.col.dim(0) - 1) {}
  const X* row(int64_t e) const { return x + col[e] * stride; }
  // Also into the rows of the graph that follow: most have fewer edges than a prefetch needs.
  template <class Tag, int kVecs>
  HWY_INLINE void look_ahead(int64_t e) const {
    if (ahead <= 0) return;
    constexpr size_t kLine = 64 / sizeof(X);
    const X* next = row(HWY_MIN(e + ahead, last));
    for (size_t c = 0; c < kVecs * hn::MaxLanes(Tag()); c += kLine) hwy::Prefetch(next + c);
  }
  int64_t place(int64_t e) const { return order ? order[e] : e; }
};

// Sums of x, or of x times one factor per edge: most calls.
template <class Tag, int kVecs, Kind kKind, class X>
HWY_INLINE void sum_edges(Tag d, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  const Places<Tag, kVecs> places(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    const X* row = in.row(e);
    in.template look_ahead<Tag, kVecs>(e);
    if constexpr (kKind == Kind::copy) {
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Add(load(d, row + places.at[v]), acc[v]);
    } else {
      float factor = 1;
      if constexpr (kKind == Kind::edge) {
        factor = in.edge[e];
      } else {
        if (in.edge) factor = in.edge[in.place(e) * in.values];
        if (in.scale) factor *= in.scale[in.col[e]];
      }
      const auto f = hn::Set(d, factor);
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::MulAdd(f, load(d, row + places.at[v]), acc[v]);
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
    in.template look_ahead<Tag, kVecs>(e);
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
  if ((op.self || op.own != 0) && s.row < op.x.dim(0)) {
    const float factor = op.own + (op.self ? op.self.as<float>()[s.row] : 0.0f);
    y = hn::MulAdd(hn::Set(d, factor), load(d, op.x.as<X>(s.row) + c), y);
  }
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

// At most kSpmmPiece edges.
template <class Tag, int kVecs, Kind kKind, class X>
HWY_INLINE void sum_piece(Tag d, EdgeOp op, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  for (int v = 0; v < kVecs; ++v) acc[v] = hn::Zero(d);
  if constexpr (kKind == Kind::messages) {
    sum_messages<Tag, kVecs>(d, op, in, s, acc);
  } else {
    sum_edges<Tag, kVecs, kKind>(d, in, s, acc);
  }
}

template <class Tag, int kVecs, Kind kKind, class X>
HWY_INLINE void sum_pieces(Tag d, EdgeOp op, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  if (s.end - s.begin <= kSpmmPiece) return sum_piece<Tag, kVecs, kKind>(d, op, in, s, acc);
  Strip piece = s;
  for (int64_t begin = s.begin; begin < s.end; begin = piece.end) {
    hn::VFromD<Tag> sum[kVecs];
    piece.begin = begin;
    piece.end = HWY_MIN(s.end, begin + kSpmmPiece);
    sum_piece<Tag, kVecs, kKind>(d, op, in, piece, sum);
    for (int v = 0; v < kVecs; ++v) acc[v] = begin == s.begin ? sum[v] : hn::Add(acc[v], sum[v]);
  }
}

// The channels of strip `s` of rows [begin, end).
template <class Tag, int kVecs, Kind kKind, class X>
HWY_NOINLINE void rows_of(const SpmmFwd& op, const Source<X>& in, Strip s, int64_t begin, int64_t end) {
  const Tag d;
  const hn::RebindToSigned<Tag> i32;
  const Places<Tag, kVecs> places(s.n);
  const Sink sink(op);
  const int64_t* rowptr = op.rowptr.as<int64_t>();
  for (s.row = begin; s.row < end; ++s.row) {
    s.begin = rowptr[s.row], s.end = rowptr[s.row + 1];
    hn::VFromD<Tag> acc[kVecs];
    if constexpr (kKind == Kind::most || kKind == Kind::least) {
      hn::VFromD<hn::RebindToSigned<Tag>> arg[kVecs];
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Zero(d), arg[v] = hn::Set(i32, -1);
      pick_messages<Tag, kVecs, kKind == Kind::most>(d, op.op, in, s, acc, arg);
      for (int v = 0; v < kVecs && op.arg; ++v)
        hn::StoreU(arg[v], i32, op.arg.as<int32_t>(s.row) + s.first + places.at[v]);
    } else {
      sum_pieces<Tag, kVecs, kKind>(d, op.op, in, s, acc);
    }
    // A vector that overlaps the one before has the same values there.
    for (int v = 0; v < kVecs; ++v) sink.put<Tag, X>(d, s, places.at[v], acc[v]);
  }
}

template <class Tag, int kVecs, class X>
void rows_of_kind(Kind kind, const SpmmFwd& op, const Source<X>& in, const Strip& s, int64_t begin, int64_t end) {
  switch (kind) {
    case Kind::copy:
      return rows_of<Tag, kVecs, Kind::copy>(op, in, s, begin, end);
    case Kind::edge:
      return rows_of<Tag, kVecs, Kind::edge>(op, in, s, begin, end);
    case Kind::factor:
      return rows_of<Tag, kVecs, Kind::factor>(op, in, s, begin, end);
    case Kind::messages:
      return rows_of<Tag, kVecs, Kind::messages>(op, in, s, begin, end);
    case Kind::most:
      return rows_of<Tag, kVecs, Kind::most>(op, in, s, begin, end);
    case Kind::least:
      return rows_of<Tag, kVecs, Kind::least>(op, in, s, begin, end);
  }
}

// How many edges ahead rows of x are prefetched: README.md has the measurements. Rows of two cache lines or more that
// come from beyond L2 gain where a row of the graph has many edges; a mesh's neighbours are in the cache already.
HWY_INLINE int64_t distance_of(const SpmmFwd& op) {
  if (!op.x || op.col.dim(0) == 0) return 0;
  if (op.tuning.ahead >= 0) return op.tuning.ahead;
  constexpr int64_t kAhead = 16, kMany = 5, kCached = 1 << 20, kLong = 64;  // edges, edges a row, bytes, bytes
  const bool many = op.col.dim(0) >= kMany * op.y.dim(0), wide = op.x.dim(1) * size_of(op.x.dtype) >= kLong;
  return many && wide && op.x.bytes() > kCached ? kAhead : 0;
}

template <class X>
void spmm_rows(const SpmmFwd& op, int64_t begin, int64_t end) {
  const int64_t width = op.y.dim(1), values = op.edge ? op.edge.dim(1) : 1, ahead = distance_of(op);
  const bool full = values > 1 && values == width;
  const int64_t part = full ? width : width / values;
  const Kind kind = kind_of(op);
  // Of several strips a few rows at a time, so that the lines of x that they share are still in L1.
  const int64_t block = HWY_MIN(part, kStripMost) == width ? HWY_MAX(end - begin, 1) : 8;
  for (int64_t row = begin; row < end; row += block) {
    for (int64_t from = 0; from < width; from += part) {
      for (int64_t c = from; c < from + part; c += kStripMost) {
        const Strip s{.row = 0,
                      .begin = 0,
                      .end = 0,
                      .first = c,
                      .n = HWY_MIN(kStripMost, from + part - c),
                      .value = full ? c : from / part};
        const Source<X> in(op, s, ahead);
        with_vectors(s.n, [&]<class Tag, int kVecs>() {
          rows_of_kind<Tag, kVecs>(kind, op, in, s, row, HWY_MIN(row + block, end));
        });
      }
    }
  }
}

void spmm_range(const SpmmFwd& op, int64_t begin, int64_t end) {
  op.x&& op.x.dtype == DType::bf16 ? spmm_rows<Bf16>(op, begin, end) : spmm_rows<float>(op, begin, end);
  if (op.tuning.past_caches) hwy::FlushStream();
}

// Slices of a pack. `at` is the first of eight rows in the order of the pack.
template <class X>
struct Slices {
  const SpmmPack& pack;
  const X* x;
  const float* value;  // null: none
  const int64_t* rowptr;
  int64_t width, ahead;

  Slices(const SpmmFwd& op, int64_t distance)
      : pack(*op.pack),
        x(op.x.as<X>()),
        value(op.edge ? op.pack->value.data() : nullptr),
        rowptr(op.rowptr.as<int64_t>()),
        width(op.y.dim(1)),
        ahead(distance) {}
  HWY_INLINE Strip strip(int32_t row) const {
    return {.row = row, .begin = rowptr[row], .end = rowptr[row + 1], .first = 0, .n = width, .value = 0};
  }
  HWY_INLINE void look_ahead(const int32_t* col) const {
    for (int64_t lane = 0; lane < SpmmPack::kLanes; ++lane) hwy::Prefetch(x + col[ahead + lane] * width);
  }
};

// One channel: a lane per row.
HWY_INLINE void lanes_of_slice(const Sink& sink, const Slices<float>& in, int64_t slice) {
  constexpr hn::CappedTag<float, SpmmPack::kLanes> d;
  constexpr hn::RebindToSigned<decltype(d)> i32;
  constexpr hn::CappedTag<float, 1> one;
  const SpmmPack& p = in.pack;
  const int64_t at = p.long_rows + slice * SpmmPack::kLanes;
  HWY_ALIGN float sums[SpmmPack::kLanes];
  for (int64_t lane = 0; lane < SpmmPack::kLanes; lane += static_cast<int64_t>(hn::Lanes(d))) {
    const int32_t *length = p.length.data() + at + lane, most = length[0], least = length[hn::Lanes(d) - 1];
    const int32_t* col = p.col.data() + p.slice[static_cast<size_t>(slice)] + lane;
    const float* value = in.value ? in.value + p.slice[static_cast<size_t>(slice)] + lane : nullptr;
    auto acc = hn::Zero(d);
    const auto next = [&](int32_t j) HWY_ATTR {
      const int64_t step = j * SpmmPack::kLanes;
      if (in.ahead > 0) in.look_ahead(col + step);
      const auto x = hn::GatherIndex(d, in.x, hn::LoadU(i32, col + step));
      return value ? hn::MulAdd(hn::LoadU(d, value + step), x, acc) : hn::Add(x, acc);
    };
    int32_t j = 0;
    for (; j < least; ++j) acc = next(j);
    for (const auto lengths = hn::LoadU(i32, length); j < most; ++j)
      acc = hn::IfThenElse(hn::RebindMask(d, hn::Gt(lengths, hn::Set(i32, j))), next(j), acc);
    hn::Store(acc, d, sums + lane);
  }
  for (int64_t lane = 0; lane < SpmmPack::kLanes && p.row[static_cast<size_t>(at + lane)] >= 0; ++lane)
    sink.put<decltype(one), float>(one, in.strip(p.row[static_cast<size_t>(at + lane)]), 0, hn::Set(one, sums[lane]));
}

// Up to eight channels: kRows rows in flight, from lane `lane` on.
template <class Tag, int kVecs, int kRows, class X>
HWY_INLINE void rows_of_slice(const Sink& sink, const Slices<X>& in, int64_t slice, int64_t lane) {
  const Tag d;
  const SpmmPack& p = in.pack;
  const Places<Tag, kVecs> places(in.width);
  const int64_t at = p.long_rows + slice * SpmmPack::kLanes + lane, begin = p.slice[static_cast<size_t>(slice)] + lane;
  const int32_t *length = p.length.data() + at, *row = p.row.data() + at, *col = p.col.data() + begin;
  const float* value = in.value ? in.value + begin : nullptr;
  hn::VFromD<Tag> acc[kRows][kVecs];
  for (auto& sums : acc) {
    for (auto& sum : sums) sum = hn::Zero(d);
  }
  const auto next = [&](hn::VFromD<Tag>(&sums)[kVecs], int64_t entry) HWY_ATTR {
    const X* x = in.x + col[entry] * in.width;
    if (value) {
      const auto f = hn::Set(d, value[entry]);
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::MulAdd(f, load(d, x + places.at[v]), sums[v]);
    } else {
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::Add(load(d, x + places.at[v]), sums[v]);
    }
  };
  const int64_t least = length[kRows - 1];
  for (int64_t j = 0; j < least; ++j) {
    if (in.ahead > 0 && lane == 0) in.look_ahead(col + j * SpmmPack::kLanes);
    for (int r = 0; r < kRows; ++r) next(acc[r], j * SpmmPack::kLanes + r);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = least; j < length[r]; ++j) next(acc[r], j * SpmmPack::kLanes + r);
    for (int v = 0; v < kVecs && row[r] >= 0; ++v) sink.put<Tag, X>(d, in.strip(row[r]), places.at[v], acc[r][v]);
  }
}

template <class X>
void sell_slices(const SpmmFwd& op, int64_t begin, int64_t end) {
  const Slices<X> in(op, HWY_MIN(HWY_MAX(op.tuning.ahead, 0), SpmmPack::kPast - SpmmPack::kLanes));
  const Sink sink(op);
  if constexpr (std::is_same_v<X, float>) {
    if (in.width == 1) {
      for (int64_t slice = begin; slice < end; ++slice) lanes_of_slice(sink, in, slice);
      return;
    }
  }
  with_vectors(in.width, [&]<class Tag, int kVecs>() {
    constexpr int kRows = kVecs == 1 ? 8 : 4;  // eight sums fit the registers of AVX2 with what they add
    for (int64_t slice = begin; slice < end; ++slice) {
      for (int64_t lane = 0; lane < SpmmPack::kLanes; lane += kRows)
        rows_of_slice<Tag, kVecs, kRows>(sink, in, slice, lane);
    }
  });
}

void sell_range(const SpmmFwd& op, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? sell_slices<Bf16>(op, begin, end) : sell_slices<float>(op, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(spmm_range);
HWY_EXPORT(sell_range);

void spmm_fwd_sell(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  const SpmmPack& p = *op.pack;
  for (int64_t k = 0; k < p.long_rows; ++k) {
    const int32_t row = p.row[static_cast<size_t>(k)];
    HWY_DYNAMIC_DISPATCH(spmm_range)(op, row, row + 1);
  }
  for_each_row_range(ctx.threads, p.slice.data(), p.slices(), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sell_range)(op, begin, end);
  });
}

void spmm_fwd_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.y.dim(0), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(spmm_range)(op, begin, end);
  });
}

}  // namespace braid
#endif
