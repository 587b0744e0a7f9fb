// What the GPU variants of spmm share: the call as a kernel sees it, rows of x in vectors, messages, and a row's
// result. A group of 1 to 32 threads of a warp works on a row of the graph, its lanes along the channels or along the
// edges.
#pragma once
#include <cuda_bf16.h>

#include <algorithm>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_runtime.h"
#include "kernels/spmm/spmm_rows.h"

namespace braid::gpu {

constexpr int kThreads = 256;  // of a block

struct SpmmCall {
  const int64_t* rowptr;
  const int32_t *col, *order, *by_degree;
  const float *x_scale, *edge, *self;
  const std::byte *x, *add;
  std::byte* y;
  int32_t* arg;
  bool add_half, y_half;  // BF16
  int64_t x_stride, y_stride, add_stride, rows, sources, edges, width, values, part;
  int64_t self_row, self_source, selves;
  float own;
  EdgeOp op;
  Reduce reduce;
};

inline SpmmCall call_of(const SpmmFwd& op) {
  const auto pointer = [](const View& v) { return v ? v.data : nullptr; };
  const auto floats = [](const View& v) { return v ? v.as<float>() : nullptr; };
  const int64_t values = op.edge ? op.edge.dim(1) : 1;
  return {.rowptr = op.rowptr.as<int64_t>(),
          .col = op.col.as<int32_t>(),
          .order = op.order ? op.order.as<int32_t>() : nullptr,
          .by_degree = op.by_degree ? op.by_degree.as<int32_t>() : nullptr,
          .x_scale = floats(op.x_scale),
          .edge = floats(op.edge),
          .self = floats(op.self),
          .x = pointer(op.x),
          .add = pointer(op.add),
          .y = op.y.data,
          .arg = op.arg ? op.arg.as<int32_t>() : nullptr,
          .add_half = op.add && op.add.dtype == DType::bf16,
          .y_half = op.y.dtype == DType::bf16,
          .x_stride = op.x ? op.x.strides[0] : 0,
          .y_stride = op.y.strides[0],
          .add_stride = op.add ? op.add.strides[0] : 0,
          .rows = op.y.dim(0),
          .sources = op.x ? op.x.dim(0) : 0,
          .edges = op.col.dim(0),
          .width = op.y.dim(1),
          .values = values,
          .part = std::max<int64_t>(1, op.y.dim(1) / values),
          .self_row = op.self_row,
          .self_source = op.self_source,
          .selves = op.self ? op.self.dim(0) : 0,
          .own = op.own,
          .op = op.op,
          .reduce = op.reduce};
}

// The widest vector of channels, 4, 2 or 1, that lies within one value of an edge and whose loads and stores are
// aligned.
inline int vector_of(const SpmmFwd& op) {
  const int64_t width = op.y.dim(1), part = op.edge ? width / op.edge.dim(1) : width;
  for (const int vector : {4, 2}) {
    const auto fits = [&](const auto& v) {
      const int64_t bytes = vector * size_of(v.dtype);
      return !v ||
             (v.strides[0] % vector == 0 && reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(bytes) == 0);
    };
    if (part % vector == 0 && fits(op.x) && fits(op.y) && fits(op.add)) return vector;
  }
  return 1;
}

// The smallest power of two, at most 32, that is at least `n`, as its logarithm.
inline int lanes_log(int64_t n) {
  int log = 0;
  while (log < 5 && (int64_t{1} << log) < n) ++log;
  return log;
}

inline unsigned blocks_of(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

// The threads of a warp that share this one's row.
struct Group {
  int lane, lanes;
  unsigned mask;
  int64_t number;
};
// Of the blocks from `first_block` on.
__device__ inline Group group_of(int log, unsigned first_block = 0) {
  const int lanes = 1 << log, first = (threadIdx.x & 31) & ~(lanes - 1);
  const int64_t thread = static_cast<int64_t>(blockIdx.x - first_block) * kThreads + threadIdx.x;
  return {static_cast<int>(threadIdx.x) & (lanes - 1), lanes, log == 5 ? ~0u : ((1u << lanes) - 1) << first,
          thread >> log};
}

template <int V>
struct Values {
  float v[V];
};

template <int V>
__device__ Values<V> read(const float* p) {
  Values<V> out;
  if constexpr (V == 4) {
    const float4 in = __ldg(reinterpret_cast<const float4*>(p));
    out.v[0] = in.x, out.v[1] = in.y, out.v[2] = in.z, out.v[3] = in.w;
  } else if constexpr (V == 2) {
    const float2 in = __ldg(reinterpret_cast<const float2*>(p));
    out.v[0] = in.x, out.v[1] = in.y;
  } else {
    out.v[0] = __ldg(p);
  }
  return out;
}
template <int V>
__device__ Values<V> read(const __nv_bfloat16* p) {
  Values<V> out;
  if constexpr (V == 4) {
    const uint2 in = __ldg(reinterpret_cast<const uint2*>(p));
    out.v[0] = __uint_as_float(in.x << 16), out.v[1] = __uint_as_float(in.x & 0xffff0000u);
    out.v[2] = __uint_as_float(in.y << 16), out.v[3] = __uint_as_float(in.y & 0xffff0000u);
  } else if constexpr (V == 2) {
    const unsigned in = __ldg(reinterpret_cast<const unsigned*>(p));
    out.v[0] = __uint_as_float(in << 16), out.v[1] = __uint_as_float(in & 0xffff0000u);
  } else {
    out.v[0] = __bfloat162float(*p);
  }
  return out;
}

template <int V>
__device__ void write(float* p, const Values<V>& in) {
  if constexpr (V == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(in.v[0], in.v[1], in.v[2], in.v[3]);
  } else if constexpr (V == 2) {
    *reinterpret_cast<float2*>(p) = make_float2(in.v[0], in.v[1]);
  } else {
    *p = in.v[0];
  }
}

// The last of [low, high) that `holds`, which it does for `low` and for no index behind one for which it does not. All
// lanes of a group probe at once.
template <class Holds>
__device__ int64_t last_that(const Group& g, int64_t low, int64_t high, const Holds& holds) {
  while (high - low > 1) {
    const int64_t step = (high - low + g.lanes) / (g.lanes + 1), probe = low + (g.lane + 1) * step;
    const unsigned yes = __ballot_sync(g.mask, probe < high && holds(probe)) & g.mask;
    low += __popc(yes) * step;
    high = min(high, low + step);
  }
  return low;
}
// The row that edge `e` belongs to, in [low, high): the last whose first edge is not behind it.
__device__ inline int64_t row_of(const Group& g, const int64_t* rowptr, int64_t low, int64_t high, int64_t e) {
  return last_that(g, low, high, [&](int64_t row) { return __ldg(rowptr + row) <= e; });
}
// By one lane.
__device__ inline int64_t row_of(const int64_t* rowptr, int64_t low, int64_t high, int64_t e) {
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (__ldg(rowptr + middle) <= e ? low : high) = middle;
  }
  return low;
}

// The row that is number `n`.
__device__ inline int64_t nth_row(const SpmmCall& a, int64_t n) { return a.by_degree ? __ldg(a.by_degree + n) : n; }

// What one edge contributes besides x: with one value per edge, the product of that and the scale of its source.
__device__ inline float factor_of(const SpmmCall& a, int64_t e, int32_t j) {
  float f = a.edge ? __ldg(a.edge + (a.order ? __ldg(a.order + e) : e)) : 1.0f;
  if (a.x_scale) f *= __ldg(a.x_scale + j);
  return f;
}

__device__ inline float message(EdgeOp op, float x, float e) {
  switch (op) {
    case EdgeOp::copy_x:
      return x;
    case EdgeOp::copy_e:
      return e;
    case EdgeOp::add:
      return x + e;
    case EdgeOp::sub:
      return x - e;
    case EdgeOp::mul:
      return x * e;
    case EdgeOp::div:
      return x / e;
  }
  return x;
}

// Adds the terms of row i itself to channels [c, c + V), and stores them.
template <class X, int V>
__device__ void finish(const SpmmCall& a, int64_t i, int64_t degree, int64_t c, Values<V> sum) {
  const auto add_row = [&](float factor, int64_t source) {
    const Values<V> x = read<V>(reinterpret_cast<const X*>(a.x) + source * a.x_stride + c);
    for (int k = 0; k < V; ++k) sum.v[k] = fmaf(factor, x.v[k], sum.v[k]);
  };
  if (a.reduce == Reduce::mean && degree > 0) {
    for (int k = 0; k < V; ++k) sum.v[k] /= static_cast<float>(degree);
  }
  if (const int64_t own = i - a.self_row; own >= 0 && own < a.selves) add_row(__ldg(a.self + own), a.self_source + own);
  if (a.own != 0 && i < a.sources) add_row(a.own, i);
  if (a.add && degree > 0) {
    const int64_t at = i * a.add_stride + c;
    const Values<V> more = a.add_half ? read<V>(reinterpret_cast<const __nv_bfloat16*>(a.add) + at)
                                      : read<V>(reinterpret_cast<const float*>(a.add) + at);
    for (int k = 0; k < V; ++k) sum.v[k] += more.v[k];
  }
  if (a.y_half) {
    for (int k = 0; k < V; ++k)
      reinterpret_cast<__nv_bfloat16*>(a.y)[i * a.y_stride + c + k] = __float2bfloat16_rn(sum.v[k]);
  } else {
    write<V>(reinterpret_cast<float*>(a.y) + i * a.y_stride + c, sum);
  }
}

// Calls launch(X{}, std::integral_constant<int, V>{}) for the type of x and the vector of this call.
template <class Launch>
void with_types(const SpmmFwd& op, const Launch& launch) {
  const auto with_vector = [&](auto x) {
    const int vector = vector_of(op);
    if (vector == 4) return launch(x, std::integral_constant<int, 4>{});
    if (vector == 2) return launch(x, std::integral_constant<int, 2>{});
    launch(x, std::integral_constant<int, 1>{});
  };
  op.x&& op.x.dtype == DType::bf16 ? with_vector(__nv_bfloat16{}) : with_vector(float{});
}

}  // namespace braid::gpu
