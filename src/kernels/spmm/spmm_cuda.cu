// A group of lanes per row, along its channels; edges one after another (GE-SpMM, arXiv 2007.03179). The lanes read the
// columns and values of as many edges as they are together and pass them around by shuffles. Rows of more than kPiece
// edges are cut where a multiple of kPiece falls, their pieces are summed by other groups first, so that a row of many
// edges delays nothing, and added in order. Bound by the reads of x: 4 D bytes per edge from L2, or from memory where x
// exceeds it.
#include "kernels/spmm/spmm_gpu.cuh"

namespace braid {
namespace {
using namespace gpu;

constexpr int64_t kPiece = 512;  // edges

enum class Kind : uint8_t {
  factor,    // sums of x times one factor per edge
  messages,  // sums of any message
  picks      // max and min
};

// CF vectors of V channels per lane.
template <Kind kKind, int V, int CF>
struct Channels {
  float sum[CF][V];
  int32_t arg[CF][V];  // of picks
  int64_t at[CF];      // the first channel of a vector
  bool inside[CF];

  __device__ Channels(const SpmmCall& a, const Group& g) {
    for (int t = 0; t < CF; ++t) {
      at[t] = ((static_cast<int64_t>(blockIdx.y) * CF + t) * g.lanes + g.lane) * V;
      inside[t] = at[t] < a.width;
      for (int k = 0; k < V; ++k) sum[t][k] = 0, arg[t][k] = -1;
    }
  }
  __device__ void pick(Reduce reduce, int t, int k, float value, int32_t place) {
    const float best = sum[t][k];
    const bool beats = reduce == Reduce::max ? !(value <= best) : !(value >= best);
    if (arg[t][k] >= 0 && (isnan(best) || !beats)) return;
    sum[t][k] = value;
    arg[t][k] = place;
  }
};

// What the lanes know of an edge: its source, where its values are, and, of a call with one value per edge, that value;
// of sums times the scale of the source.
struct Edge {
  int32_t source = 0;
  int64_t place = 0;
  float value = 0, scale = 1;
};

template <Kind kKind>
__device__ Edge edge_at(const SpmmCall& a, int64_t e) {
  Edge out;
  out.source = __ldg(a.col + e);
  out.place = a.order ? __ldg(a.order + e) : e;
  if (a.x_scale) out.scale = __ldg(a.x_scale + out.source);
  if (a.edge && a.values == 1) out.value = __ldg(a.edge + out.place);
  if constexpr (kKind == Kind::factor) out.value = a.edge && a.values == 1 ? out.value * out.scale : out.scale;
  return out;
}

template <Kind kKind, class X, int V, int CF>
__device__ void take(const SpmmCall& a, const Edge& edge, Channels<kKind, V, CF>& c) {
  for (int t = 0; t < CF; ++t) {
    if (!c.inside[t]) continue;
    float value = edge.value;
    if (a.values > 1) value = __ldg(a.edge + edge.place * a.values + c.at[t] / a.part);
    Values<V> x{};
    if (a.x) x = read<V>(reinterpret_cast<const X*>(a.x) + edge.source * a.x_stride + c.at[t]);
    if constexpr (kKind == Kind::factor) {
      const float f = a.values > 1 ? value * edge.value : value;
      for (int k = 0; k < V; ++k) c.sum[t][k] = fmaf(f, x.v[k], c.sum[t][k]);
    } else {
      for (int k = 0; k < V; ++k) {
        const float m = message(a.op, x.v[k] * edge.scale, value);
        if constexpr (kKind == Kind::messages) {
          c.sum[t][k] += m;
        } else {
          c.pick(a.reduce, t, k, m, static_cast<int32_t>(edge.place));
        }
      }
    }
  }
}

template <Kind kKind, class X, int V, int CF>
__device__ void walk(const SpmmCall& a, const Group& g, int64_t begin, int64_t end, Channels<kKind, V, CF>& c) {
  if (g.lanes < 8) {
#pragma unroll 4
    for (int64_t e = begin; e < end; ++e) take<kKind, X>(a, edge_at<kKind>(a, e), c);
    return;
  }
  const bool places = kKind == Kind::picks || a.values > 1;
  for (int64_t first = begin; first < end; first += g.lanes) {
    const int n = static_cast<int>(min(static_cast<int64_t>(g.lanes), end - first));
    const Edge own = g.lane < n ? edge_at<kKind>(a, first + g.lane) : Edge{};
#pragma unroll 4
    for (int k = 0; k < n; ++k) {
      Edge edge;
      edge.source = __shfl_sync(g.mask, own.source, k, g.lanes);
      edge.value = __shfl_sync(g.mask, own.value, k, g.lanes);
      if constexpr (kKind != Kind::factor) edge.scale = __shfl_sync(g.mask, own.scale, k, g.lanes);
      if (places) edge.place = __shfl_sync(g.mask, own.place, k, g.lanes);
      take<kKind, X>(a, edge, c);
    }
  }
}

// Sums of pieces of rows of more than kPiece edges: [pieces][2][width], of the row that goes on from an earlier piece
// and of the one that begins inside; no more than these two can be so long.
struct Pieces {
  float* sum;
  int32_t* arg;  // of picks
};

template <Kind kKind, int V, int CF>
__device__ void keep(const SpmmCall& a, const Pieces& pieces, int64_t slot, const Channels<kKind, V, CF>& c) {
  for (int t = 0; t < CF; ++t) {
    if (!c.inside[t]) continue;
    for (int k = 0; k < V; ++k) {
      pieces.sum[slot * a.width + c.at[t] + k] = c.sum[t][k];
      if constexpr (kKind == Kind::picks) pieces.arg[slot * a.width + c.at[t] + k] = c.arg[t][k];
    }
  }
}

template <Kind kKind, class X, int V, int CF>
__global__ void __launch_bounds__(kThreads) sum_pieces(const SpmmCall a, int log, Pieces pieces) {
  const Group g = group_of(log);
  const int64_t begin = g.number * kPiece, end = min(begin + kPiece, a.edges);
  if (begin >= end) return;
  const int64_t first = row_of(a.rowptr, 0, a.rows, begin), last = row_of(a.rowptr, first, a.rows, end - 1);
  for (int64_t row = first;; row = last) {
    const int64_t from = max(begin, __ldg(a.rowptr + row)), to = __ldg(a.rowptr + row + 1);
    if (to - __ldg(a.rowptr + row) > kPiece) {
      Channels<kKind, V, CF> c(a, g);
      walk<kKind, X>(a, g, from, min(end, to), c);
      keep(a, pieces, 2 * g.number + (from > begin ? 1 : 0), c);
    }
    if (row == last) return;
  }
}

template <Kind kKind, int V, int CF>
__device__ void add_pieces(const SpmmCall& a, const Pieces& pieces, int64_t begin, int64_t end,
                           Channels<kKind, V, CF>& c) {
  for (int64_t piece = begin / kPiece; piece * kPiece < end; ++piece) {
    const int64_t slot = 2 * piece + (begin > piece * kPiece ? 1 : 0);
    for (int t = 0; t < CF; ++t) {
      if (!c.inside[t]) continue;
      for (int k = 0; k < V; ++k) {
        const int64_t at = slot * a.width + c.at[t] + k;
        if constexpr (kKind == Kind::picks) {
          c.pick(a.reduce, t, k, pieces.sum[at], pieces.arg[at]);
        } else {
          c.sum[t][k] += pieces.sum[at];
        }
      }
    }
  }
}

template <Kind kKind, class X, int V, int CF>
__global__ void __launch_bounds__(kThreads) sum_rows(const SpmmCall a, int log, Pieces pieces) {
  const Group g = group_of(log);
  if (g.number >= a.rows) return;
  const int64_t begin = __ldg(a.rowptr + g.number), end = __ldg(a.rowptr + g.number + 1);
  Channels<kKind, V, CF> c(a, g);
  if (end - begin > kPiece) {
    add_pieces(a, pieces, begin, end, c);
  } else {
    walk<kKind, X>(a, g, begin, end, c);
  }
  for (int t = 0; t < CF; ++t) {
    if (!c.inside[t]) continue;
    Values<V> sum;
    for (int k = 0; k < V; ++k) sum.v[k] = c.sum[t][k];
    if constexpr (kKind == Kind::picks) {
      for (int k = 0; k < V && a.arg; ++k) a.arg[g.number * a.width + c.at[t] + k] = c.arg[t][k];
    }
    finish<X, V>(a, g.number, end - begin, c.at[t], sum);
  }
}

template <Kind kKind, class X, int V, int CF>
void launch(Ctx& ctx, const SpmmCall& a) {
  const int64_t vectors = (a.width + V - 1) / V;
  const int log = lanes_log(vectors);
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  const unsigned strips = static_cast<unsigned>(((vectors - 1) >> log) / CF + 1);
  const int64_t count = (a.edges + kPiece - 1) / kPiece, floats = 2 * count * a.width;
  DevicePool& memory = ctx.gpu->memory();
  std::byte* const scratch = a.edges > kPiece ? memory.take(floats * (kKind == Kind::picks ? 8 : 4)) : nullptr;
  const Pieces pieces{.sum = reinterpret_cast<float*>(scratch), .arg = reinterpret_cast<int32_t*>(scratch) + floats};
  if (scratch) {
    sum_pieces<kKind, X, V, CF><<<dim3(blocks_of(count << log), strips), kThreads, 0, stream>>>(a, log, pieces);
    cuda_check(cudaGetLastError(), "spmm cannot be launched");
  }
  sum_rows<kKind, X, V, CF><<<dim3(blocks_of(a.rows << log), strips), kThreads, 0, stream>>>(a, log, pieces);
  if (scratch) memory.give_back(scratch);
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace

void spmm_fwd_cuda_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const SpmmCall a = call_of(op);
  with_types(op, [&](auto x, auto vector) {
    using X = decltype(x);
    constexpr int V = decltype(vector)::value;
    if (op.reduce == Reduce::max || op.reduce == Reduce::min) return launch<Kind::picks, X, V, 1>(ctx, a);
    if (op.op != EdgeOp::copy_x && op.op != EdgeOp::mul) return launch<Kind::messages, X, V, 1>(ctx, a);
    a.width > 32 * V ? launch<Kind::factor, X, V, 2>(ctx, a) : launch<Kind::factor, X, V, 1>(ctx, a);
  });
}

}  // namespace braid
