// Sums of x times one factor per edge over a run of edges, in their order, lanes along the channels: the inner loop of
// the variants that reduce sequentially. What limits it is how many rows of x are on their way at once, so they are
// read in batches before the first is added. A group of eight lanes or more reads the columns and factors of as many
// edges as it has lanes, the next ones while it adds these, and passes them around by shuffles.
#pragma once
#include "kernels/spmm/spmm_gpu.cuh"

namespace braid::gpu {

// A lane's channels: CF vectors of V.
template <int V, int CF>
struct Lane {
  int64_t at[CF];
  bool inside[CF];
  float sum[CF][V];

  __device__ Lane(const SpmmCall& a, const Group& g) {
    for (int t = 0; t < CF; ++t) {
      at[t] = ((static_cast<int64_t>(blockIdx.y) * CF + t) * g.lanes + g.lane) * V;
      inside[t] = at[t] < a.width;
    }
    clear();
  }
  __device__ void clear() {
    for (int t = 0; t < CF; ++t) {
      for (int k = 0; k < V; ++k) sum[t][k] = 0;
    }
  }
  __device__ Values<V> values(int t) const {
    Values<V> out;
    for (int k = 0; k < V; ++k) out.v[k] = sum[t][k];
    return out;
  }
};

// Rows of x per batch: about 32 numbers per lane.
template <int V, int CF>
inline constexpr int kBatch = V* CF > 4 ? 4 : 8;

template <class X, int V, int CF>
__device__ void add_batch(const SpmmCall& a, const int32_t (&j)[kBatch<V, CF>], const float (&f)[kBatch<V, CF>], int n,
                          Lane<V, CF>& lane) {
  Values<V> x[kBatch<V, CF>][CF];
#pragma unroll
  for (int b = 0; b < kBatch<V, CF>; ++b) {
#pragma unroll
    for (int t = 0; t < CF; ++t) {
      if (b < n && lane.inside[t]) x[b][t] = read<V>(reinterpret_cast<const X*>(a.x) + j[b] * a.x_stride + lane.at[t]);
    }
  }
#pragma unroll
  for (int b = 0; b < kBatch<V, CF>; ++b) {
#pragma unroll
    for (int t = 0; t < CF; ++t) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (b < n && lane.inside[t]) lane.sum[t][k] = fmaf(f[b], x[b][t].v[k], lane.sum[t][k]);
      }
    }
  }
}

template <class X, int V, int CF>
__device__ void add_edges(const SpmmCall& a, const Group& g, int64_t begin, int64_t end, Lane<V, CF>& lane) {
  constexpr int B = kBatch<V, CF>;
  int32_t j[B];
  float f[B];
  if (g.lanes < 8) {
    for (int64_t e = begin; e < end; e += B) {
      const int n = static_cast<int>(min(static_cast<int64_t>(B), end - e));
#pragma unroll
      for (int b = 0; b < B; ++b) j[b] = b < n ? __ldg(a.col + e + b) : 0;
#pragma unroll
      for (int b = 0; b < B; ++b) f[b] = b < n ? factor_of(a, e + b, j[b]) : 0.0f;
      add_batch<X>(a, j, f, n, lane);
    }
    return;
  }
  int32_t next_j = 0;
  float next_f = 0;
  const auto fetch = [&](int64_t e) {
    if (e >= end) return;
    next_j = __ldg(a.col + e);
    next_f = factor_of(a, e, next_j);
  };
  fetch(begin + g.lane);
  for (int64_t first = begin; first < end; first += g.lanes) {
    const int32_t own_j = next_j;
    const float own_f = next_f;
    fetch(first + g.lanes + g.lane);
    const int n = static_cast<int>(min(static_cast<int64_t>(g.lanes), end - first));
    for (int k = 0; k < n; k += B) {
#pragma unroll
      for (int b = 0; b < B; ++b) {
        j[b] = __shfl_sync(g.mask, own_j, k + b, g.lanes);
        f[b] = __shfl_sync(g.mask, own_f, k + b, g.lanes);
      }
      add_batch<X>(a, j, f, n - k, lane);
    }
  }
}

// Rows of many edges are cut where multiples of a piece fall, other groups sum the pieces, and these are added in
// order, so that no row delays the rest. First a thread per row lists the rows of more than a piece and their pieces,
// in any order; one launch sums pieces and short rows, the last one adds pieces up. A piece keeps two sums: of the row
// that goes on from the piece before, and of the one that begins inside and goes on behind.
struct CutRows {
  int64_t piece = 0, most = 0;  // edges; pieces listed, at most
  unsigned* counts = nullptr;   // pieces and rows that are listed
  longlong2* pieces = nullptr;  // row and number of the piece
  int64_t* rows = nullptr;
  float* sums = nullptr;       // [number of pieces * 2][width]
  int32_t* winners = nullptr;  // as `sums`, of maxima and minima

  // Where the sums of a row's piece are.
  __device__ int64_t slot(int64_t number, int64_t begin) const { return 2 * number + (begin > number * piece ? 1 : 0); }
  // Visits the slots of a row in order, up to `kAtOnce` of them in a call: visit(slots, n).
  template <int kAtOnce, class Visit>
  __device__ void each(int64_t begin, int64_t end, const Visit& visit) const {
    const int64_t first = begin / piece, last = (end - 1) / piece;
    int64_t slots[kAtOnce];
    for (int64_t p = first; p <= last; p += kAtOnce) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) slots[k] = p + k == first ? slot(first, begin) : 2 * (p + k);
      visit(slots, static_cast<int>(min(static_cast<int64_t>(kAtOnce), last + 1 - p)));
    }
  }
};

// Lanes take their places in the list together, by one addition per warp.
static __global__ void __launch_bounds__(kThreads) list_cut_rows(const SpmmCall a, CutRows list) {
  const Group g = group_of(5);
  const int64_t number = g.number * 32 + g.lane, row = number < a.rows ? nth_row(a, number) : 0,
                begin = __ldg(a.rowptr + row), end = number < a.rows ? __ldg(a.rowptr + row + 1) : begin;
  const bool cut = end - begin > list.piece;
  const unsigned cuts = __ballot_sync(~0u, cut);
  if (cuts == 0) return;
  const int64_t first = begin / list.piece, last = (end - 1) / list.piece;
  const auto own = cut ? static_cast<unsigned>(last - first + 1) : 0u;
  unsigned upto = own;  // of the lanes up to this one
  for (int d = 1; d < 32; d *= 2) {
    const unsigned before = __shfl_up_sync(~0u, upto, d);
    if (g.lane >= d) upto += before;
  }
  unsigned pieces = 0, rows = 0;
  if (g.lane == 31) {
    pieces = atomicAdd(list.counts, upto);
    rows = atomicAdd(list.counts + 1, static_cast<unsigned>(__popc(cuts)));
  }
  pieces = __shfl_sync(~0u, pieces, 31) + upto - own;
  rows = __shfl_sync(~0u, rows, 31) + static_cast<unsigned>(__popc(cuts & ((1u << g.lane) - 1)));
  if (!cut) return;
  list.rows[rows] = row;
  for (int64_t p = first; p <= last; ++p) list.pieces[pieces + (p - first)] = make_longlong2(row, p);
}

// The list in memory of the pool, made by the stream; `none` where no row can be so long.
class CutRowsInPool {
 public:
  CutRowsInPool(GpuRuntime& gpu, const SpmmFwd& op, bool winners) : memory_(gpu.memory()) {
    const int64_t edges = op.col.dim(0);
    while (list.piece < 1024 && list.piece < (edges >> 14)) list.piece *= 2;
    const int64_t longest = op.tuning.longest < 0 ? edges : op.tuning.longest;
    if (longest <= list.piece) return;
    const int64_t count = (edges + list.piece - 1) / list.piece, floats = 2 * count * op.y.dim(1);
    list.most = 2 * count;
    block_ = memory_.take(32 + 16 * list.most + 8 * count + floats * (winners ? 8 : 4));
    list.counts = reinterpret_cast<unsigned*>(block_);
    list.pieces = reinterpret_cast<longlong2*>(block_ + 16);
    list.rows = reinterpret_cast<int64_t*>(list.pieces + list.most);
    list.sums = reinterpret_cast<float*>(list.rows + (count + 1) / 2 * 2);
    list.winners = reinterpret_cast<int32_t*>(list.sums + floats);
    const auto stream = static_cast<cudaStream_t>(gpu.stream());
    cuda_check(cudaMemsetAsync(list.counts, 0, 16, stream), "cannot clear");
    list_cut_rows<<<blocks_of(op.y.dim(0)), kThreads, 0, stream>>>(call_of(op), list);
  }
  CutRowsInPool(const CutRowsInPool&) = delete;
  CutRowsInPool& operator=(const CutRowsInPool&) = delete;
  ~CutRowsInPool() {
    if (block_) memory_.give_back(block_);
  }
  bool none() const { return !block_; }

  CutRows list{.piece = 64};

 private:
  DevicePool& memory_;
  std::byte* block_ = nullptr;
};

}  // namespace braid::gpu
