// What the passes of attention over edges on a GPU share: a warp gathers rows of other nodes, weighted, for one node
// and head. 32 edges at a time: a lane has the weight of one; then groups of lanes, 16 bytes of channels each, take the
// edges in turn, several reads in flight.
#pragma once
#include <cstdint>

#include "core/device/long_rows.cuh"
#include "core/device/warp.cuh"

namespace braid {

constexpr int kGatWarps = 8, kGatThreads = kGatWarps * kWarpLanes;
// Blocks that a multiprocessor has registers for: few sums leave room for more warps, that is for more reads in flight.
constexpr int gat_blocks(int vec, int tiles) { return vec * tiles <= 4 ? 4 : 1; }
// A longer row is a block's: each of its warps has two chunks or more.
constexpr int64_t kGatLongRow = 2 * kGatThreads;

// Channels of a head that a warp accumulates at once: [first, first + width), in `tiles` times `group` lanes.
template <int kVec, int kTiles>
struct GatStrip {
  static constexpr int kMost = kVec * kTiles * kWarpLanes;
  int64_t first;
  int width, group;
  __device__ GatStrip(int64_t from, int64_t part, int lanes)
      : first(from), width(static_cast<int>(min(part - from, static_cast<int64_t>(kMost)))), group(lanes) {}
  __device__ int channel(int tile) const { return (tile * group + lane_of_thread() % group) * kVec; }
  // Does this lane write channels, after the groups were summed?
  __device__ bool writes() const { return lane_of_thread() < group; }
};

// acc[0] += weight x[source] over the edges of `count` lanes; lanes beyond have weights of 0. With two sets acc[0] gets
// |weight| x and acc[1] the same times `slope` where the weight is negative: its sign says on which side of leaky_relu
// the score was. `x` begins at the strip's first channel.
template <int kVec, int kTiles, int kSets, class X>
__device__ __forceinline__ void gat_gather(const X* x, int stride, const GatStrip<kVec, kTiles>& strip, int count,
                                           int source, float weight, float slope, float (&acc)[kSets][kTiles][kVec]) {
  constexpr int kBatch = kTiles == 1 ? 4 : 1;
  const int groups = kWarpLanes / strip.group;
  for (int from = 0; from < count; from += groups * kBatch) {
    float v[kBatch][kTiles][kVec], w[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int e = from + b * groups + lane_of_thread() / strip.group;
      const int j = __shfl_sync(kAllLanes, source, e % kWarpLanes);
      w[b] = __shfl_sync(kAllLanes, weight, e % kWarpLanes);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const int c = strip.channel(t);
        if (e < count && c < strip.width) {
          read<kVec>(x + c + int64_t{j} * stride, v[b][t]);
        } else {
#pragma unroll
          for (int n = 0; n < kVec; ++n) v[b][t][n] = 0;
        }
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float first = kSets == 2 ? fabsf(w[b]) : w[b], second = w[b] < 0 ? first * slope : first;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int n = 0; n < kVec; ++n) {
          acc[0][t][n] = fmaf(first, v[b][t][n], acc[0][t][n]);
          if constexpr (kSets == 2) acc[1][t][n] = fmaf(second, v[b][t][n], acc[1][t][n]);
        }
      }
    }
  }
}

// Over the groups of a warp; every lane gets the sums.
template <int kVec, int kTiles>
__device__ void gat_sum_groups(float (&acc)[kTiles][kVec], int group) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kVec; ++n) acc[t][n] = sum_of_groups(acc[t][n], group);
  }
}

__device__ inline float gat_leaky_relu(float v, float slope) { return v > 0 ? v : v * slope; }

// calls visit(source, count) with every chunk of 32 edges of a row that is this warp's, in order; the row itself is the
// last source where it has a loop. Lanes beyond `count` have source 0.
template <class Visit>
__device__ void gat_chunks(const int32_t* col, int64_t begin, int64_t edges, int64_t row, bool loop, int64_t from,
                           int64_t step, Visit&& visit) {
  const int64_t all = edges + (loop ? 1 : 0);
  for (; from < all; from += step) {
    const int count = static_cast<int>(min(all - from, static_cast<int64_t>(kWarpLanes)));
    const int64_t e = from + lane_of_thread();
    visit(e < edges ? col[begin + e] : e < all ? static_cast<int>(row) : 0, count);
  }
}

// Lanes that share an edge, for heads of `part` channels.
inline int gat_group(int64_t part, int vec) {
  int group = 1;
  while (group < kWarpLanes && int64_t{group} * vec < part) group *= 2;
  return group;
}

}  // namespace braid
