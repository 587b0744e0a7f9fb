// Sums of BF16 features over dense tiles by tensor cores (spmm_tiles.h). A block has the 16 rows of a window, each of
// its warps 8 C channels. Four tiles at a time, the threads write the values of their edges into 16 x 16 matrices in
// shared memory, while the warps multiply the four before by the rows of x that these name, each read once. A value is
// split into two BF16 numbers, which leaves out about 2^-17 of it. Tensor cores cut off what does not fit their sums,
// so a tile's begin at zero and are added to the row's with rounding. Channel 8 C b + C n + j is column n of the j-th
// product, so that a thread reads and writes neighbours.
// A tile multiplies what has no edge by zero: NaN or infinite sources reach all rows of their window. Values of edges
// beyond BF16's largest number, 3.39e38, are infinite.
#include <type_traits>

#include "core/device/mma.cuh"
#include "core/device/warp.cuh"
#include "kernels/spmm/spmm_gpu.cuh"
#include "kernels/spmm/spmm_tiles.h"

namespace braid {
namespace {

constexpr int kTiles = 4;      // at a time
constexpr int kMostWarps = 4;  // of a block
constexpr int kRow = 24;       // numbers of a row of a tile in shared memory: no two of a load share a bank
constexpr int kTile = 16 * kRow;

struct TileCall {
  const int32_t *window, *source, *begin, *edge;
  const uint8_t* cell;
};

// 16 columns of a tile, as mma.m16n8k16 wants them, rounded, and what rounding left.
struct Tile {
  uint32_t high[4], low[4];
};

// kTiles tiles in shared memory. All threads of the block zero them, and then put the edges there that they fetched
// before.
template <bool kValues>
struct Buffer {
  static constexpr int kPlane = kTiles * kTile, kNumbers = (kValues ? 2 : 1) * kPlane;
  __nv_bfloat16* numbers;

  __device__ void clear() const {
    auto* const words = reinterpret_cast<uint4*>(numbers);
    for (unsigned i = threadIdx.x; i < kNumbers / 8; i += blockDim.x) words[i] = make_uint4(0, 0, 0, 0);
  }
  __device__ void put(int at, float value) const {
    const __nv_bfloat16 high = __float2bfloat16_rn(value);
    const float rounded = __bfloat162float(high);
    numbers[at] = high;
    if constexpr (kValues) numbers[kPlane + at] = __float2bfloat16_rn(isinf(rounded) ? 0.0f : value - rounded);
  }
  __device__ Tile tile(int k) const {
    const int lane = lane_of_thread();
    Tile out{};
    const auto* pairs = reinterpret_cast<const uint32_t*>(numbers + k * kTile) + lane / 4 * (kRow / 2) + lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows 0 and 8 on, then eight columns further
      const int at = i % 2 * 8 * (kRow / 2) + i / 2 * 4;
      out.high[i] = pairs[at];
      if constexpr (kValues) out.low[i] = pairs[kPlane / 2 + at];
    }
    return out;
  }
};

// The edges of kTiles tiles: where they go and their values, as many as fit a thread's registers ahead of time.
template <bool kValues>
struct TileEdges {
  static constexpr int kAhead = 2;
  int32_t tile, begin[kTiles + 1];
  int at[kAhead];
  float value[kAhead];

  __device__ void fetch(const gpu::SpmmCall& a, const TileCall& t, int32_t first, int32_t last) {
    tile = first;
#pragma unroll
    for (int k = 0; k <= kTiles; ++k) begin[k] = __ldg(t.begin + min(first + k, last));
#pragma unroll
    for (int i = 0; i < kAhead; ++i) get(a, t, begin[0] + static_cast<int32_t>(threadIdx.x + i * blockDim.x), i);
  }
  __device__ void put(const gpu::SpmmCall& a, const TileCall& t, const Buffer<kValues>& buffer) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (at[i] >= 0) buffer.put(at[i], value[i]);
    }
    for (int32_t e = begin[0] + static_cast<int32_t>(threadIdx.x + kAhead * blockDim.x); e < begin[kTiles];
         e += static_cast<int32_t>(blockDim.x)) {
      get(a, t, e, 0);
      buffer.put(at[0], value[0]);
    }
  }

 private:
  __device__ void get(const gpu::SpmmCall& a, const TileCall& t, int32_t e, int i) {
    at[i] = -1;
    if (e >= begin[kTiles]) return;
    int k = 0;
    for (int n = 1; n < kTiles; ++n) k += e >= begin[n] ? 1 : 0;
    const int cell = __ldg(t.cell + e);
    at[i] = k * kTile + cell / 16 * kRow + cell % 16;
    value[i] = 1;
    if constexpr (kValues)
      value[i] = gpu::factor_of(a, __ldg(t.edge + e), __ldg(t.source + int64_t{tile + k} * 16 + cell % 16));
  }
};

// C channels of the four rows of x that a thread holds: columns 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of a tile.
template <int C>
struct Sources {
  uint32_t pairs[4][C / 2];

  __device__ void read(const gpu::SpmmCall& a, const TileCall& t, int32_t tile, int64_t c) {
    const int32_t* sources = t.source + int64_t{tile} * 16 + lane_of_thread() % 4 * 2;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto* row =
          reinterpret_cast<const __nv_bfloat16*>(a.x) + int64_t{__ldg(sources + k % 2 + k / 2 * 8)} * a.x_stride + c;
      using Pairs = std::conditional_t<C == 8, uint4, std::conditional_t<C == 4, uint2, uint32_t>>;
      *reinterpret_cast<Pairs*>(pairs[k]) = c < a.width ? __ldg(reinterpret_cast<const Pairs*>(row)) : Pairs{};
    }
  }
  template <bool kValues>
  __device__ void add(float (&sum)[C][4], const Tile& tile) const {
#pragma unroll
    for (int j = 0; j < C; ++j) {
      const unsigned halves = j % 2 == 0 ? 0x5410 : 0x7632;  // of two rows, the same channel
      const uint32_t x[2] = {__byte_perm(pairs[0][j / 2], pairs[1][j / 2], halves),
                             __byte_perm(pairs[2][j / 2], pairs[3][j / 2], halves)};
      float part[4] = {};
      multiply(part, tile.high, x[0], x[1]);
      if constexpr (kValues) multiply(part, tile.low, x[0], x[1]);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[j][k] += part[k];
    }
  }
};

template <int C, bool kValues>
__global__ void __launch_bounds__(32 * kMostWarps) sum_tiles(const gpu::SpmmCall a, const TileCall t) {
  constexpr int kAhead = C == 8 ? 2 : 4;  // tiles whose rows of x are on their way
  __shared__ __align__(16) __nv_bfloat16 shared[2][Buffer<kValues>::kNumbers];
  const int lane = lane_of_thread();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 16,
                strip = (static_cast<int64_t>(blockIdx.y) * (blockDim.x / 32) + warp_of_thread()) * 8 * C,
                channel = strip + lane / 4 * C;
  const int32_t first = __ldg(t.window + blockIdx.x), last = __ldg(t.window + blockIdx.x + 1);
  TileEdges<kValues> edges;
  edges.fetch(a, t, first, last);
  Sources<C> x[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if (first + k < last) x[k].read(a, t, first + k, channel);
  }
  Buffer<kValues>{shared[0]}.clear();
  __syncthreads();
  edges.put(a, t, {shared[0]});
  float sum[C][4] = {};
  int side = 0;
  for (int32_t tile = first; tile < last; tile += kTiles, side ^= 1) {
    __syncthreads();
    edges.fetch(a, t, min(tile + kTiles, last), last);
    const Buffer<kValues> buffer{shared[side]}, next{shared[side ^ 1]};
    next.clear();
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      if (tile + k >= last) break;
      x[k % kAhead].template add<kValues>(sum, buffer.tile(k));
      if (tile + k + kAhead < last) x[k % kAhead].read(a, t, tile + k + kAhead, channel);
    }
    __syncthreads();
    edges.put(a, t, next);
  }
#pragma unroll
  for (int half = 0; half < 4; ++half) {  // columns 2 q and 2 q + 1 of row lane / 4, then of the row eight further
    const int64_t i = row + lane / 4 + half / 2 * 8, c = strip + (2 * (lane % 4) + half % 2) * C;
    if (i >= a.rows || c >= a.width) continue;
    const int64_t degree = __ldg(a.rowptr + i + 1) - __ldg(a.rowptr + i);
    constexpr int V = C == 2 ? 2 : 4;
#pragma unroll
    for (int j = 0; j < C; j += V) {
      gpu::Values<V> part;
      for (int k = 0; k < V; ++k) part.v[k] = sum[j + k][half];
      gpu::finish<__nv_bfloat16, V>(a, i, degree, c + j, part);
    }
  }
}

template <int C>
void launch(Ctx& ctx, const SpmmFwd& op) {
  const gpu::SpmmCall a = gpu::call_of(op);
  const SpmmTileViews& v = *op.tiles;
  const TileCall t{.window = v.window.as<int32_t>(),
                   .source = v.source.as<int32_t>(),
                   .begin = v.begin.as<int32_t>(),
                   .edge = v.edge.as<int32_t>(),
                   .cell = v.cell.as<uint8_t>()};
  const int64_t strips = (a.width + 8 * C - 1) / (8 * C), warps = std::min<int64_t>(strips, kMostWarps);
  const dim3 blocks(static_cast<unsigned>(v.window.dim(0) - 1), static_cast<unsigned>((strips + warps - 1) / warps));
  const auto threads = static_cast<unsigned>(32 * warps);
  const auto stream = static_cast<cudaStream_t>(ctx.gpu->stream());
  if (a.edge || a.x_scale) {
    sum_tiles<C, true><<<blocks, threads, 0, stream>>>(a, t);
  } else {
    sum_tiles<C, false><<<blocks, threads, 0, stream>>>(a, t);
  }
  cuda_check(cudaGetLastError(), "spmm cannot be launched");
}

}  // namespace

void spmm_fwd_cuda_tiles(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  const int64_t width = op.y.dim(1);
  if (width <= 32) return launch<2>(ctx, op);
  width <= 64 ? launch<4>(ctx, op) : launch<8>(ctx, op);
}

}  // namespace braid
