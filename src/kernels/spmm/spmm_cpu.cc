// Sequential reduction with Highway: a row at a time, its channels in up to eight vectors of accumulators, so that a
// width of 128 (AVX-512) is one pass over the edges. Each channel sums its edges in their order, whatever the vectors.
#include <span>

#include "kernels/spmm/spmm_long_rows.h"
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
// after strips-inl
#include "kernels/spmm/spmm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

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
  picks      // max and min
};

HWY_INLINE Kind kind_of(const SpmmFwd& op) {
  if (picks(op.reduce)) return Kind::picks;
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
  int64_t position(int64_t e) const { return order ? order[e] : e; }
};

// Sums of x, or of x times one factor per edge: most calls.
template <class Tag, int kVecs, Kind kKind, class X>
HWY_INLINE void sum_edges(Tag d, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  const VectorOffsets<Tag, kVecs> offsets(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    const X* row = in.row(e);
    in.template look_ahead<Tag, kVecs>(e);
    if constexpr (kKind == Kind::copy) {
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Add(load(d, row + offsets.at[v]), acc[v]);
    } else {
      float factor = 1;
      if constexpr (kKind == Kind::edge) {
        factor = in.edge[e];
      } else {
        if (in.edge) factor = in.edge[in.position(e) * in.values];
        if (in.scale) factor *= in.scale[in.col[e]];
      }
      const auto f = hn::Set(d, factor);
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::MulAdd(f, load(d, row + offsets.at[v]), acc[v]);
    }
  }
}

// Vector v of the message of edge e, for any op.
template <class Tag, class X>
HWY_INLINE hn::VFromD<Tag> message(Tag d, EdgeOp op, const Source<X>& in, int64_t e, int64_t at) {
  auto x = in.x ? load(d, in.row(e) + at) : hn::Zero(d);
  if (in.scale) x = hn::Mul(x, hn::Set(d, in.scale[in.col[e]]));
  if (!in.edge) return x;
  const float* value = in.edge + in.position(e) * in.values;
  return apply_edge<Tag>(op, x, in.full ? hn::LoadU(d, value + at) : hn::Set(d, *value));
}

template <class Tag, int kVecs, class X>
HWY_INLINE void sum_messages(Tag d, EdgeOp op, const Source<X>& in, const Strip& s, hn::VFromD<Tag> (&acc)[kVecs]) {
  const VectorOffsets<Tag, kVecs> offsets(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    for (int v = 0; v < kVecs; ++v) acc[v] = hn::Add(acc[v], message(d, op, in, e, offsets.at[v]));
  }
}

// The best message of every channel and its edge: the first wins a tie, NaN wins over all.
template <class Tag, int kVecs, class X>
HWY_INLINE void pick_messages(Tag d, EdgeOp op, bool max, const Source<X>& in, const Strip& s,
                              hn::VFromD<Tag> (&acc)[kVecs], hn::VFromD<hn::RebindToSigned<Tag>> (&arg)[kVecs]) {
  const hn::RebindToSigned<Tag> i32;
  const VectorOffsets<Tag, kVecs> offsets(s.n);
  for (int64_t e = s.begin; e < s.end; ++e) {
    const auto position = hn::Set(i32, static_cast<int32_t>(in.position(e)));
    in.template look_ahead<Tag, kVecs>(e);
    for (int v = 0; v < kVecs; ++v) {
      const auto m = message(d, op, in, e, offsets.at[v]);
      const auto loses = max ? hn::Le(m, acc[v]) : hn::Ge(m, acc[v]);
      const auto keeps = e > s.begin ? hn::Or(loses, hn::IsNaN(acc[v])) : hn::MaskFromVec(hn::Zero(d));
      acc[v] = hn::IfThenElse(keeps, acc[v], m);
      arg[v] = hn::IfThenElse(hn::RebindMask(i32, keeps), arg[v], position);
    }
  }
}

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
  Strip piece = s;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  HWY_ALIGN float before[kVecs * hn::MaxLanes(Tag())];  // sums of the pieces before: few rows have any
  for (;;) {
    piece.end = HWY_MIN(s.end, piece.begin + kSpmmPiece);
    sum_piece<Tag, kVecs, kKind>(d, op, in, piece, acc);
    if (piece.begin != s.begin) {
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Add(hn::LoadU(d, before + v * lanes), acc[v]);
    }
    if (piece.end == s.end) return;
    for (int v = 0; v < kVecs; ++v) hn::StoreU(acc[v], d, before + v * lanes);
    piece.begin = piece.end;
  }
}

// The channels of strip `s` of rows [begin, end).
template <class Tag, int kVecs, Kind kKind, class X>
HWY_NOINLINE void rows_of(const SpmmFwd& op, const Source<X>& in, Strip s, int64_t begin, int64_t end) {
  const Tag d;
  const hn::RebindToSigned<Tag> i32;
  const VectorOffsets<Tag, kVecs> offsets(s.n);
  const Sink sink(op);
  const int64_t* rowptr = op.rowptr.as<int64_t>();
  for (s.row = begin; s.row < end; ++s.row) {
    s.begin = rowptr[s.row], s.end = rowptr[s.row + 1];
    hn::VFromD<Tag> acc[kVecs];
    if constexpr (kKind == Kind::picks) {
      hn::VFromD<hn::RebindToSigned<Tag>> arg[kVecs];
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Zero(d), arg[v] = hn::Set(i32, -1);
      pick_messages<Tag, kVecs>(d, op.op, op.reduce == Reduce::max, in, s, acc, arg);
      for (int v = 0; v < kVecs && op.arg; ++v)
        hn::StoreU(arg[v], i32, op.arg.as<int32_t>(s.row) + s.first + offsets.at[v]);
    } else {
      sum_pieces<Tag, kVecs, kKind>(d, op.op, in, s, acc);
    }
    // A vector that overlaps the one before has the same values there.
    for (int v = 0; v < kVecs; ++v) sink.put<Tag, X>(d, s, offsets.at[v], acc[v]);
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
    default:
      break;
  }
  if constexpr (kVecs <= 4) {  // of these as many are in registers beside what they compute
    if (kind == Kind::messages) return rows_of<Tag, kVecs, Kind::messages>(op, in, s, begin, end);
    return rows_of<Tag, kVecs, Kind::picks>(op, in, s, begin, end);
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
  const bool sums = kind == Kind::copy || kind == Kind::edge || kind == Kind::factor;
  const int64_t most = sums ? kStripMost : kStripMost / 2;
  // Of several strips a few rows at a time, with about kEdges edges, so that the lines of x that they share are in L2
  // yet.
  constexpr int64_t kEdges = 256, kRowsLeast = 8, kRowsMost = 64;
  const int64_t few = HWY_MIN(kRowsMost, HWY_MAX(kRowsLeast, kEdges * op.y.dim(0) / HWY_MAX(op.col.dim(0), 1)));
  const int64_t block = next_strip(part, most) == width ? HWY_MAX(end - begin, 1) : few;
  for (int64_t row = begin; row < end; row += block) {
    for (int64_t from = 0; from < width; from += part) {
      for (int64_t c = from, n = 0; c < from + part; c += n) {
        n = next_strip(from + part - c, most);
        const Strip s{.row = 0, .begin = 0, .end = 0, .first = c, .n = n, .value = full ? c : from / part};
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

// The results of the pieces of a row, [pieces, width] each; `args` null where no edge is asked for.
struct PieceResults {
  const float* values;
  const int32_t* args;
  int64_t pieces, width;
};

template <class Tag>
HWY_INLINE hn::VFromD<Tag> sum_of_pieces(Tag d, const PieceResults& in, int64_t at) {
  auto acc = hn::LoadU(d, in.values + at);
  for (int64_t k = 1; k < in.pieces; ++k) acc = hn::Add(acc, hn::LoadU(d, in.values + k * in.width + at));
  return acc;
}

// As pick_messages chooses among edges: the first wins a tie, NaN wins over all.
template <class Tag>
HWY_INLINE hn::VFromD<Tag> best_of_pieces(Tag d, bool max, const PieceResults& in, int64_t at, int32_t* arg) {
  const hn::RebindToSigned<Tag> i32;
  auto acc = hn::LoadU(d, in.values + at);
  auto edge = in.args ? hn::LoadU(i32, in.args + at) : hn::Zero(i32);
  for (int64_t k = 1; k < in.pieces; ++k) {
    const auto m = hn::LoadU(d, in.values + k * in.width + at);
    const auto keeps = hn::Or(max ? hn::Le(m, acc) : hn::Ge(m, acc), hn::IsNaN(acc));
    acc = hn::IfThenElse(keeps, acc, m);
    if (in.args) edge = hn::IfThenElse(hn::RebindMask(i32, keeps), edge, hn::LoadU(i32, in.args + k * in.width + at));
  }
  if (in.args) hn::StoreU(edge, i32, arg + at);
  return acc;
}

template <class X>
void join_pieces(const SpmmFwd& op, int64_t row, const PieceResults& in) {
  const int64_t width = op.y.dim(1), *rowptr = op.rowptr.as<int64_t>();
  const Sink sink(op);
  int32_t* arg = in.args ? op.arg.as<int32_t>(row) : nullptr;
  for (int64_t c = 0, n = 0; c < width; c += n) {
    n = next_strip(width - c, kStripMost);
    const Strip s{.row = row, .begin = rowptr[row], .end = rowptr[row + 1], .first = c, .n = n, .value = 0};
    with_vectors(s.n, [&]<class Tag, int kVecs>() {
      const Tag d;
      const VectorOffsets<Tag, kVecs> offsets(s.n);
      for (const int64_t at : offsets.at) {
        sink.template put<Tag, X>(d, s, at,
                                  picks(op.reduce) ? best_of_pieces(d, op.reduce == Reduce::max, in, c + at, arg)
                                                   : sum_of_pieces(d, in, c + at));
      }
    });
  }
}

void spmm_join_pieces(const SpmmFwd& op, int64_t row, const float* values, const int32_t* args, int64_t pieces) {
  const PieceResults in{values, args, pieces, op.y.dim(1)};
  op.x&& op.x.dtype == DType::bf16 ? join_pieces<Bf16>(op, row, in) : join_pieces<float>(op, row, in);
  if (op.tuning.past_caches) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(spmm_range);
HWY_EXPORT(spmm_join_pieces);

void spmm_one_row(const SpmmFwd& op, int64_t row) { HWY_DYNAMIC_DISPATCH(spmm_range)(op, row, row + 1); }

int64_t spmm_pieces_workspace(const SpmmFwd& op, int threads) {
  if (threads == 1 || op.col.dim(0) <= kSpmmPiece) return 0;
  const auto [rows, pieces] = count_long_rows(op.rowptr);
  const int64_t results = op.arg ? 2 : 1;  // values, and edges
  return rows * static_cast<int64_t>(sizeof(SpmmLongRow)) + results * pieces * op.y.dim(1) * size_of(DType::f32);
}

void spmm_long_rows(int team, const SpmmFwd& op, const SpmmLongRows& rows, std::span<std::byte> space) {
  const int64_t width = op.y.dim(1);
  auto* values = reinterpret_cast<float*>(space.data());
  auto* args = op.arg ? reinterpret_cast<int32_t*>(values + rows.pieces * width) : nullptr;
  sys::parallel_tasks(team, rows.pieces, [&](int64_t k) {
    const SpmmPiece piece = rows.piece(op.rowptr, k);
    const int64_t bounds[2] = {piece.begin, piece.end};
    SpmmFwd part = op;  // a matrix of one row
    part.rowptr = view_of(bounds, {2});
    part.y = {reinterpret_cast<std::byte*>(values + k * width), DType::f32, {1, width}};
    part.arg = args ? mut_view_of(args + k * width, {1, width}) : MutView();
    part.self = part.add = {};
    part.own = 0;
    if (!picks(op.reduce)) part.reduce = Reduce::sum;
    part.tuning.past_caches = false;
    HWY_DYNAMIC_DISPATCH(spmm_range)(part, 0, 1);
  });
  sys::parallel_tasks(team, std::ssize(rows.list), [&](int64_t k) {
    const auto [row, first] = rows.list[static_cast<size_t>(k)];
    const int64_t after = k + 1 < std::ssize(rows.list) ? rows.list[static_cast<size_t>(k) + 1].first : rows.pieces;
    HWY_DYNAMIC_DISPATCH(spmm_join_pieces)
    (op, row, values + first * width, args ? args + first * width : nullptr, after - first);
  });
}

void spmm_fwd_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace) {
  check_spmm(op);
  const int64_t *rowptr = op.rowptr.as<int64_t>(), rows = op.y.dim(0);
  const auto range = [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(spmm_range)(op, begin, end); };
  if (workspace.empty()) return for_each_row_range(ctx.threads, rowptr, rows, op.flops(), range);
  const SpmmLongRows longs = list_long_rows(op.rowptr, workspace);
  for_each_row_range(ctx.threads, rowptr, rows, op.flops(), [&](int64_t begin, int64_t end) {
    for (const SpmmLongRow& r : longs.list) {
      if (r.row < begin || r.row >= end) continue;
      if (begin < r.row) range(begin, r.row);
      begin = r.row + 1;
    }
    if (begin < end) range(begin, end);
  });
  spmm_long_rows(sys::team_for(ctx.threads, op.flops()), op, longs, workspace);
}

}  // namespace braid
#endif
