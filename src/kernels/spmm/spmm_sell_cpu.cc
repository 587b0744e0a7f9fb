// Sums over a pack (spmm_pack.h). One channel of FP32: sixteen rows in the lanes of vectors, whose sources are
// gathered. Otherwise four or eight rows in flight, whose elements are loaded one by one, so that any width and type of
// up to eight channels takes the same code.
#include <type_traits>

#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_rows.h"
#include "math/row_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/spmm/spmm_sell_cpu.cc"
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

// Slices of a pack.
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
  // Without its edges, which lie far apart, where sums are all that is written.
  HWY_INLINE Strip strip(const Sink& sink, int32_t row) const {
    Strip s{.row = row, .begin = 0, .end = 0, .first = 0, .n = width, .value = 0};
    if (!sink.plain) s.begin = rowptr[row], s.end = rowptr[row + 1];
    return s;
  }
  // Of the entries at `at`: those that follow soon, which hardware alone fetches too late where a product waits for
  // nothing else (one channel on a Xeon: 1.2 to 1.6 times as fast), and with `ahead` the sources of some.
  HWY_INLINE void look_ahead(int64_t at) const {
    constexpr int64_t kSoon = 128;  // entries, eight lines
    const int32_t* col = pack.col.data() + at;
    hwy::Prefetch(col + kSoon);
    if (value) hwy::Prefetch(value + at + kSoon);
    for (int64_t lane = 0; ahead > 0 && lane < SpmmPack::kLanes; ++lane) hwy::Prefetch(x + col[ahead + lane] * width);
  }
};

// Up to eight channels: kRows rows in flight, from lane `lane` on.
template <class Tag, int kVecs, int kRows, bool kValues, class X>
HWY_INLINE void rows_of_slice(const Sink& sink, const Slices<X>& in, int64_t slice, int64_t lane) {
  const Tag d;
  const SpmmPack& p = in.pack;
  const int64_t width = kVecs == 1 ? static_cast<int64_t>(hn::MaxLanes(Tag())) : in.width;
  const VectorOffsets<Tag, kVecs> offsets(width);
  const int64_t at = p.long_rows + slice * SpmmPack::kLanes + lane, begin = p.slice[static_cast<size_t>(slice)] + lane;
  const int32_t *length = p.length.data() + at, *row = p.row.data() + at, *col = p.col.data() + begin;
  const float* value = kValues ? in.value + begin : nullptr;
  hn::VFromD<Tag> acc[kRows][kVecs];
  for (auto& sums : acc) {
    for (auto& sum : sums) sum = hn::Zero(d);
  }
  const auto next = [&](hn::VFromD<Tag>(&sums)[kVecs], int64_t entry) HWY_ATTR {
    const X* x = in.x + col[entry] * width;
    if constexpr (kValues) {
      const auto f = hn::Set(d, value[entry]);
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::MulAdd(f, load(d, x + offsets.at[v]), sums[v]);
    } else {
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::Add(load(d, x + offsets.at[v]), sums[v]);
    }
  };
  const int64_t least = length[kRows - 1];
  for (int64_t j = 0; j < least; ++j) {
    if (lane == 0) in.look_ahead(begin + j * SpmmPack::kLanes);
    for (int r = 0; r < kRows; ++r) next(acc[r], j * SpmmPack::kLanes + r);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = least; j < length[r]; ++j) next(acc[r], j * SpmmPack::kLanes + r);
    for (int v = 0; v < kVecs && row[r] >= 0; ++v)
      sink.put<Tag, X>(d, in.strip(sink, row[r]), offsets.at[v], acc[r][v]);
  }
}

// One channel: rows in lanes. A row that is shorter than others of the slice keeps its sum: what fills its entries is
// gathered, and dropped, so that a NaN of another source stays out.
template <bool kValues>
HWY_INLINE void lanes_of_slice(const Sink& sink, const Slices<float>& in, int64_t slice) {
  using Tag = hn::CappedTag<float, SpmmPack::kLanes>;
  constexpr Tag d;
  constexpr hn::RebindToSigned<Tag> i32;
  constexpr auto kEach = static_cast<int64_t>(hn::MaxLanes(Tag()));
  constexpr int kVecs = static_cast<int>(SpmmPack::kLanes / kEach);
  const SpmmPack& p = in.pack;
  const int64_t at = p.long_rows + slice * SpmmPack::kLanes, begin = p.slice[static_cast<size_t>(slice)];
  const int32_t *length = p.length.data() + at, *row = p.row.data() + at, *col = p.col.data() + begin;
  const float* value = kValues ? in.value + begin : nullptr;
  const auto next = [&](hn::VFromD<Tag> sum, int64_t entry) HWY_ATTR {
    const auto x = hn::GatherIndex(d, in.x, hn::LoadU(i32, col + entry));
    if constexpr (kValues) return hn::MulAdd(hn::LoadU(d, value + entry), x, sum);
    return hn::Add(x, sum);
  };
  hn::VFromD<Tag> acc[kVecs];
  for (auto& sum : acc) sum = hn::Zero(d);
  const int64_t least = length[SpmmPack::kLanes - 1], most = length[0];
  for (int64_t j = 0; j < least; ++j) {
    in.look_ahead(begin + j * SpmmPack::kLanes);
    for (int v = 0; v < kVecs; ++v) acc[v] = next(acc[v], j * SpmmPack::kLanes + v * kEach);
  }
  for (int64_t j = least; j < most; ++j) {
    in.look_ahead(begin + j * SpmmPack::kLanes);
    const auto edge = hn::Set(i32, static_cast<int32_t>(j));
    for (int v = 0; v < kVecs; ++v) {
      const auto more = hn::RebindMask(d, hn::Lt(edge, hn::LoadU(i32, length + v * kEach)));
      acc[v] = hn::IfThenElse(more, next(acc[v], j * SpmmPack::kLanes + v * kEach), acc[v]);
    }
  }
  HWY_ALIGN float sums[SpmmPack::kLanes];
  for (int v = 0; v < kVecs; ++v) hn::Store(acc[v], d, sums + v * kEach);
  if (row[SpmmPack::kLanes - 1] >= 0 && sink.plain && sink.y) {
    for (int64_t r = 0; r < SpmmPack::kLanes; ++r) sink.y[row[r] * sink.stride] = sums[r];
    return;
  }
  using One = hn::CappedTag<float, 1>;
  for (int64_t r = 0; r < SpmmPack::kLanes && row[r] >= 0; ++r)
    sink.put<One, float>(One(), in.strip(sink, row[r]), 0, hn::Set(One(), sums[r]));
}

void sell_lanes(const SpmmFwd& op, const Slices<float>& in, int64_t begin, int64_t end) {
  const Sink sink(op);
  for (int64_t slice = begin; slice < end; ++slice)
    in.value ? lanes_of_slice<true>(sink, in, slice) : lanes_of_slice<false>(sink, in, slice);
}

template <class X>
void sell_slices(const SpmmFwd& op, int64_t begin, int64_t end) {
  const Slices<X> in(op, HWY_MIN(HWY_MAX(op.tuning.ahead, 0), SpmmPack::kPast - SpmmPack::kLanes));
  if constexpr (std::is_same_v<X, float>) {
    if (in.width == 1) return sell_lanes(op, in, begin, end);
  }
  const Sink sink(op);
  with_vectors(in.width, [&]<class Tag, int kVecs>() {
    if constexpr (kVecs <= 2) {                  // eight channels take no more
      constexpr int kRows = kVecs == 1 ? 8 : 4;  // eight sums fit the registers of AVX2 with what they add
      for (int64_t slice = begin; slice < end; ++slice) {
        for (int64_t lane = 0; lane < SpmmPack::kLanes; lane += kRows) {
          in.value ? rows_of_slice<Tag, kVecs, kRows, true>(sink, in, slice, lane)
                   : rows_of_slice<Tag, kVecs, kRows, false>(sink, in, slice, lane);
        }
      }
    }
  });
}

void sell_range(const SpmmFwd& op, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? sell_slices<Bf16>(op, begin, end) : sell_slices<float>(op, begin, end);
  if (op.tuning.past_caches) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(sell_range);

void spmm_fwd_sell(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace) {
  check_spmm(op);
  const SpmmPack& p = *op.pack;
  const int team = sys::team_for(ctx.threads, op.flops());
  for_each_row_range(ctx.threads, p.slice.data(), p.slices(), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sell_range)(op, begin, end);
  });
  if (workspace.empty())
    return sys::parallel_tasks(team, p.long_rows, [&](int64_t k) { spmm_one_row(op, p.row[static_cast<size_t>(k)]); });
  const SpmmLongRows longs = list_long_rows(op.rowptr, workspace);
  spmm_long_rows(team, op, longs, workspace);
}

}  // namespace braid
#endif
