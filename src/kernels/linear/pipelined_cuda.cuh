// The pipelined main loop of products with groups of rows: for each group y^T [height, tokens] = values^T [n, height]
// by the rows of x^T [K, T] that the group's columns name. BF16 operands, FP32 sums by mma.sync, 16 columns at a time
// in ascending order whatever the shape of the pipeline, so that all shapes give the same bits.
//
// Two pipelines, as ALCOP (arXiv 2210.16691) nests them. Chunks of `depth` columns go from memory to one of `stages`
// buffers in shared memory by cp.async, S - 1 ahead of their use; what lies beyond the columns or tokens is filled with
// zeros there. Operands of 16 columns go from shared memory to registers while the previous 16 are multiplied. The
// columns' numbers are read one chunk ahead of the rows of x^T that they name (the gather of Shfl-BW, arXiv
// 2203.05016).
//
// A buffer has rows of one column: height or tokens values, both operands transposed by ldmatrix. Pieces of 16 bytes
// are permuted within a row by the row's number, so that the eight rows of an 8 x 8 matrix lie in different banks.
#pragma once
#include <cstdint>
#include <utility>

#include "core/device/mma.cuh"
#include "kernels/linear/grouped_launch.cuh"
#include "kernels/linear/grouped_pipeline.h"

namespace braid {

namespace pipelined {

// Of the 16-byte piece of a row of a buffer, in pieces.
template <int kPieces>
__device__ __forceinline__ int place(int row, int piece) {
  if constexpr (kPieces >= 8)
    return row * kPieces + (piece ^ (row & 7));
  else
    return row * kPieces + (piece ^ (row / (8 / kPieces) & (kPieces - 1)));
}

// 16 bytes to shared memory, or zeros.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

template <int kIndex>
struct Shape {
  static constexpr Pipeline kP = kPipelines[kIndex];
  static constexpr int kHeight = kP.height, kTokens = kP.tokens, kDepth = kP.depth, kStages = kP.stages,
                       kThreads = kP.threads();
  static constexpr int kRowTiles = kP.warp_rows() / 16, kTokenTiles = kP.warp_tokens() / 8;  // of a warp
  static constexpr int kRowPieces = kHeight / 8, kTokenPieces = kTokens / 8;                 // of a buffer's row
  static constexpr int kValues = kDepth * kRowPieces, kGathers = kDepth * kTokenPieces / kThreads;
  static constexpr int kStageBytes = kP.stage_bytes(), kValueBytes = 2 * kDepth * kHeight;
  static_assert(kRowTiles * 16 * kP.row_warps == kHeight && kTokenTiles % 2 == 0);
  static_assert(kTokenTiles * 8 * kP.token_warps == kTokens && kDepth % 16 == 0);
  static_assert(kGathers * kThreads == kDepth * kTokenPieces && kTokens >= 16);
};

// What a block reads: one group's values and columns, some tokens of x.
template <int kIndex>
struct Source {
  using S = Shape<kIndex>;
  const int32_t* columns;
  const __nv_bfloat16* values;
  const __nv_bfloat16* x;
  int64_t stride, token;
  int n;  // columns

  // The columns that this thread gathers of a chunk.
  __device__ __forceinline__ void look_up(int (&at)[S::kGathers], int chunk) const {
#pragma unroll
    for (int j = 0; j < S::kGathers; ++j) {
      const int k = chunk * S::kDepth + (static_cast<int>(threadIdx.x) + j * S::kThreads) / S::kTokenPieces;
      at[j] = k < n ? columns[k] : -1;
    }
  }
  __device__ __forceinline__ void fetch(uint32_t buffer, int chunk, const int (&at)[S::kGathers]) const {
    const int first = chunk * S::kDepth, thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int j = 0; j < (S::kValues + S::kThreads - 1) / S::kThreads; ++j) {
      const int i = thread + j * S::kThreads, k = i / S::kRowPieces, piece = i % S::kRowPieces;
      if (S::kValues % S::kThreads != 0 && i >= S::kValues) break;
      const bool valid = first + k < n;
      const __nv_bfloat16* from = values + (valid ? int64_t{first + k} * S::kHeight + piece * 8 : 0);
      copy_async(buffer + 16 * place<S::kRowPieces>(k, piece), from, valid);
    }
#pragma unroll
    for (int j = 0; j < S::kGathers; ++j) {
      const int i = thread + j * S::kThreads, k = i / S::kTokenPieces, piece = i % S::kTokenPieces;
      const int64_t t = token + piece * 8;
      const bool valid = at[j] >= 0 && t < stride;
      copy_async(buffer + S::kValueBytes + 16 * place<S::kTokenPieces>(k, piece), valid ? x + at[j] * stride + t : x,
                 valid);
    }
  }
};

// The part of a block's sums that a warp has.
template <int kIndex>
struct Sums {
  using S = Shape<kIndex>;
  float c[S::kRowTiles][S::kTokenTiles][4] = {};

  // Adds the products of a chunk.
  __device__ __forceinline__ void add(uint32_t buffer, int row_warp, int token_warp, int lane) {
    uint32_t a[2][S::kRowTiles][4], b[2][S::kTokenTiles / 2][4];
    // Of the four 8 x 8 matrices of a load, a lane names a row of one: rows 0-7 and 8-15 of w for columns 0-7, then for
    // 8-15; and of x columns 0-7 and 8-15 for tokens 0-7, then for 8-15.
    const int a_row = (lane & 7) + (lane >> 4 << 3), a_piece = row_warp * S::kRowTiles * 2 + (lane >> 3 & 1);
    const int b_row = lane & 15, b_piece = token_warp * S::kTokenTiles + (lane >> 4);
    const auto load = [&](int set, int step) {
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i)
        load_transposed(a[set][i], buffer + 16 * place<S::kRowPieces>(step * 16 + a_row, a_piece + 2 * i));
#pragma unroll
      for (int j = 0; j < S::kTokenTiles / 2; ++j)
        load_transposed(b[set][j],
                        buffer + S::kValueBytes + 16 * place<S::kTokenPieces>(step * 16 + b_row, b_piece + 2 * j));
    };
    load(0, 0);
#pragma unroll
    for (int step = 0; step < S::kDepth / 16; ++step) {
      if (step + 1 < S::kDepth / 16) load((step + 1) % 2, step + 1);
#pragma unroll
      for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < S::kTokenTiles; ++j)
          multiply(c[i][j], a[step % 2][i], b[step % 2][j / 2][j % 2 * 2], b[step % 2][j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  // To the rows' own places. Tokens are written in twos, the last one with one beside it that nobody reads.
  __device__ __forceinline__ void write(const PipelineArgs& args, const int32_t* row_of, int64_t token,
                                        int lane) const {
#pragma unroll
    for (int i = 0; i < S::kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of[i * 16 + half * 8 + lane / 4];
        if (row < 0) continue;
        const float bias = args.bias ? args.bias[row] : 0;
#pragma unroll
        for (int j = 0; j < S::kTokenTiles; ++j) {
          const int64_t t = token + j * 8 + lane % 4 * 2, at = row * args.stride + t;
          if (t >= args.stride) continue;
          const float2 v = {c[i][j][half * 2] + bias, c[i][j][half * 2 + 1] + bias};
          if (args.wide)
            *reinterpret_cast<float2*>(static_cast<float*>(args.y) + at) = v;
          else
            *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(args.y) + at) = __float22bfloat162_rn(v);
        }
      }
    }
  }
};

// A block has a group and some tokens. Groups come first in the grid: blocks that run together share tokens of x in L2.
template <int kIndex>
__global__ void __launch_bounds__(Shape<kIndex>::kThreads) main_loop(PipelineArgs args) {
  using S = Shape<kIndex>;
  extern __shared__ __align__(128) unsigned char shared[];
  const auto buffers = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int group = args.order[blockIdx.x], warp = static_cast<int>(threadIdx.x) / 32,
            lane = static_cast<int>(threadIdx.x) % 32;
  const int row_warp = warp % S::kP.row_warps, token_warp = warp / S::kP.row_warps;
  const int64_t begin = args.begin[group], token = int64_t{blockIdx.y} * S::kTokens;
  const Source<kIndex> source{.columns = args.columns + begin,
                              .values = args.values + begin * S::kHeight,
                              .x = args.x,
                              .stride = args.stride,
                              .token = token,
                              .n = static_cast<int>(args.begin[group + 1] - begin)};
  const int chunks = (source.n + S::kDepth - 1) / S::kDepth;
  Sums<kIndex> sums;
  if constexpr (S::kStages == 1) {
    for (int i = 0; i < chunks; ++i) {
      int at[S::kGathers];
      source.look_up(at, i);
      source.fetch(buffers, i, at);
      commit();
      wait<0>();
      __syncthreads();
      sums.add(buffers, row_warp, token_warp, lane);
      __syncthreads();  // the next chunk goes where this one was read
    }
  } else {
    int at[S::kStages][S::kGathers];  // only the last lives on after the prologue
#pragma unroll
    for (int i = 0; i < S::kStages; ++i) source.look_up(at[i], i);
#pragma unroll
    for (int i = 0; i < S::kStages - 1; ++i) {
      if (i < chunks) source.fetch(buffers + i * S::kStageBytes, i, at[i]);
      commit();
    }
    int reads = 0, writes = S::kStages - 1;
    for (int i = 0; i < chunks; ++i) {
      // One group is committed for every chunk, if empty, so that this many may be pending. Beyond the barrier all have
      // chunk i, and none still reads chunk i - 1, whose buffer is the one that is filled next.
      wait<S::kStages - 2>();
      __syncthreads();
      const int next = i + S::kStages - 1;
      if (next < chunks) source.fetch(buffers + writes * S::kStageBytes, next, at[S::kStages - 1]);
      commit();
      source.look_up(at[S::kStages - 1], next + 1);
      sums.add(buffers + reads * S::kStageBytes, row_warp, token_warp, lane);
      reads = reads + 1 == S::kStages ? 0 : reads + 1;
      writes = writes + 1 == S::kStages ? 0 : writes + 1;
    }
  }
  sums.write(args, args.row_of + group * S::kHeight + row_warp * S::kRowTiles * 16,
             token + token_warp * S::kTokenTiles * 8, lane);
}

template <int kHeight, int kIndex>
constexpr PipelineKernel kernel_of() {
  if constexpr (kPipelines[kIndex].height == kHeight)
    return &main_loop<kIndex>;
  else
    return nullptr;
}

template <int kHeight, int... kIndex>
PipelineKernel find(int index, std::integer_sequence<int, kIndex...>) {
  static constexpr PipelineKernel kKernels[] = {kernel_of<kHeight, kIndex>()...};
  return kKernels[index];
}

template <int kHeight>
PipelineKernel find(int index) {
  return find<kHeight>(index, std::make_integer_sequence<int, static_cast<int>(kPipelines.size())>());
}

}  // namespace pipelined
}  // namespace braid
