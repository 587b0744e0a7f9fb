// A group of lanes per row, along its channels; edges one after another (GE-SpMM, arXiv 2007.03179). Bound by the reads
// of x: 4 D bytes per edge from L2, or from memory where x exceeds it. Rows of many edges are cut (spmm_gpu_run.cuh).
#include "kernels/spmm/spmm_gpu_run.cuh"

namespace braid {
namespace {
using namespace gpu;

// Sums of x times one factor per edge.
template <class X, int V, int CF>
struct Sums {
  Lane<V, CF> lane;

  __device__ Sums(const SpmmCall& a, const Group& g) : lane(a, g) {}
  __device__ void walk(const SpmmCall& a, const Group& g, int64_t begin, int64_t end) {
    add_edges<X>(a, g, begin, end, lane);
  }
  __device__ void keep(const SpmmCall& a, const CutRows& list, int64_t slot) const {
    for (int t = 0; t < CF; ++t) {
      if (lane.inside[t]) write<V>(list.sums + slot * a.width + lane.at[t], lane.values(t));
    }
  }
  static constexpr int kAtOnce = CF == 1 ? 16 : 8;  // slots
  __device__ void add(const SpmmCall& a, const CutRows& list, const int64_t (&slots)[kAtOnce], int n) {
    for (int t = 0; t < CF; ++t) {
      if (!lane.inside[t]) continue;
      Values<V> more[kAtOnce];
#pragma unroll
      for (int b = 0; b < kAtOnce; ++b) {
        if (b < n) more[b] = read<V>(list.sums + slots[b] * a.width + lane.at[t]);
      }
#pragma unroll
      for (int b = 0; b < kAtOnce; ++b) {
        for (int k = 0; k < V && b < n; ++k) lane.sum[t][k] += more[b].v[k];
      }
    }
  }
  __device__ void put(const SpmmCall& a, int64_t row, int64_t degree) const {
    for (int t = 0; t < CF; ++t) {
      if (lane.inside[t]) finish<X, V>(a, row, degree, lane.at[t], lane.values(t));
    }
  }
};

// Sums, means, maxima and minima of any message, one vector of channels per lane.
template <class X, int V, bool kPicks>
struct Messages {
  Lane<V, 1> lane;
  int32_t arg[V];  // of maxima and minima: the winner's position

  __device__ Messages(const SpmmCall& a, const Group& g) : lane(a, g) {
    for (int k = 0; k < V; ++k) arg[k] = -1;
  }
  __device__ void pick(Reduce reduce, int k, float value, int32_t position) {
    const float best = lane.sum[0][k];
    const bool beats = reduce == Reduce::max ? !(value <= best) : !(value >= best);
    if (arg[k] >= 0 && (isnan(best) || !beats)) return;
    lane.sum[0][k] = value;
    arg[k] = position;
  }
  __device__ void walk(const SpmmCall& a, const Group&, int64_t begin, int64_t end) {
    if (!lane.inside[0]) return;
    const int64_t c = lane.at[0], value_at = a.values > 1 ? c / a.part : 0;
#pragma unroll 4
    for (int64_t e = begin; e < end; ++e) {
      const int32_t j = __ldg(a.col + e);
      const int64_t position = a.order ? __ldg(a.order + e) : e;
      const float scale = a.x_scale ? __ldg(a.x_scale + j) : 1.0f,
                  value = a.edge ? __ldg(a.edge + position * a.values + value_at) : 0.0f;
      Values<V> x{};
      if (a.x) x = read<V>(reinterpret_cast<const X*>(a.x) + j * a.x_stride + c);
      for (int k = 0; k < V; ++k) {
        const float m = message(a.op, x.v[k] * scale, value);
        if constexpr (kPicks) {
          pick(a.reduce, k, m, static_cast<int32_t>(position));
        } else {
          lane.sum[0][k] += m;
        }
      }
    }
  }
  __device__ void keep(const SpmmCall& a, const CutRows& list, int64_t slot) const {
    if (!lane.inside[0]) return;
    for (int k = 0; k < V; ++k) {
      const int64_t at = slot * a.width + lane.at[0] + k;
      list.sums[at] = lane.sum[0][k];
      if constexpr (kPicks) list.winners[at] = arg[k];
    }
  }
  static constexpr int kAtOnce = 4;
  __device__ void add(const SpmmCall& a, const CutRows& list, const int64_t (&slots)[kAtOnce], int n) {
    for (int k = 0; k < V * n && lane.inside[0]; ++k) {
      const int64_t at = slots[k / V] * a.width + lane.at[0] + k % V;
      if constexpr (kPicks) {
        pick(a.reduce, k % V, list.sums[at], list.winners[at]);
      } else {
        lane.sum[0][k % V] += list.sums[at];
      }
    }
  }
  __device__ void put(const SpmmCall& a, int64_t row, int64_t degree) const {
    if (!lane.inside[0]) return;
    if constexpr (kPicks) {
      for (int k = 0; k < V && a.arg; ++k) a.arg[row * a.width + lane.at[0] + k] = arg[k];
    }
    finish<X, V>(a, row, degree, lane.at[0], lane.values(0));
  }
};

// Pieces in the first blocks, so that they begin early; then rows.
template <class Walk>
__global__ void __launch_bounds__(kThreads) sum_rows(const SpmmCall a, int log, unsigned piece_blocks, CutRows list) {
  if (blockIdx.x < piece_blocks) {
    const Group g = group_of(log);
    if (g.number >= *list.counts) return;
    const longlong2 task = list.pieces[g.number];
    const int64_t begin = __ldg(a.rowptr + task.x), end = __ldg(a.rowptr + task.x + 1), from = task.y * list.piece;
    Walk walk(a, g);
    walk.walk(a, g, max(begin, from), min(end, from + list.piece));
    walk.keep(a, list, list.slot(task.y, begin));
    return;
  }
  const Group g = group_of(log, piece_blocks);
  if (g.number >= a.rows) return;
  const int64_t row = nth_row(a, g.number), begin = __ldg(a.rowptr + row), end = __ldg(a.rowptr + row + 1);
  if (piece_blocks > 0 && end - begin > list.piece) return;
  Walk walk(a, g);
  walk.walk(a, g, begin, end);
  walk.put(a, row, end - begin);
}

template <class Walk>
__global__ void __launch_bounds__(kThreads) add_pieces(const SpmmCall a, int log, CutRows list) {
  const Group g = group_of(log);
  if (g.number >= list.counts[1]) return;
  const int64_t row = list.rows[g.number], begin = __ldg(a.rowptr + row), end = __ldg(a.rowptr + row + 1);
  Walk walk(a, g);
  list.each<Walk::kAtOnce>(begin, end, [&](const auto& slots, int n) { walk.add(a, list, slots, n); });
  walk.put(a, row, end - begin);
}

// CF vectors of V channels per lane.
template <class Walk, int V, int CF>
void launch(Ctx& ctx, const SpmmFwd& op, bool winners) {
  const SpmmCall a = call_of(op);
  const int64_t vectors = (a.width + V - 1) / V;
  const int log = lanes_log(vectors);
  const unsigned strips = static_cast<unsigned>(((vectors - 1) >> log) / CF + 1);
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  const CutRowsInPool cut(*ctx.gpu, op, winners);
  const unsigned pieces = cut.none() ? 0 : blocks_of(cut.list.most << log);
  sum_rows<Walk><<<dim3(pieces + blocks_of(a.rows << log), strips), kThreads, 0, stream>>>(a, log, pieces, cut.list);
  if (!cut.none())
    add_pieces<Walk><<<dim3(blocks_of((cut.list.most / 2) << log), strips), kThreads, 0, stream>>>(a, log, cut.list);
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace

void spmm_fwd_cuda_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const int64_t width = op.y.dim(1), values = op.edge ? op.edge.dim(1) : 1;
  with_types(op, [&](auto x, auto vector) {
    using X = decltype(x);
    constexpr int V = decltype(vector)::value;
    if (op.reduce == Reduce::max || op.reduce == Reduce::min) return launch<Messages<X, V, true>, V, 1>(ctx, op, true);
    if ((op.op != EdgeOp::copy_x && op.op != EdgeOp::mul) || values > 1)
      return launch<Messages<X, V, false>, V, 1>(ctx, op, false);
    width > 32 * V ? launch<Sums<X, V, 2>, V, 2>(ctx, op, false) : launch<Sums<X, V, 1>, V, 1>(ctx, op, false);
  });
}

}  // namespace braid
