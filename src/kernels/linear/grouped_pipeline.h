// The shapes of the pipelined main loop (pipelined_cuda.cuh), and how long each would take: an analytic model in the
// form of ALCOP (arXiv 2210.16691, section 4), derived here. It is arithmetic on sizes and limits, without a GPU.
//
// A block computes height x tokens of y from chunks of `depth` columns, S = stages of which lie in shared memory, S - 1
// on their way. With n chunks, m blocks on a unit (SM), a chunk that takes L to arrive and U to be used:
//   loop   = L + n max(m U_busy, U, X, (L + U) / S)
//   X      = max(bytes / rate of L2, bytes that no block of the wave loaded before / rate of memory), of all blocks
//   L      = latency + X
//   U      = issue + depth/16 max(U_mma, (L_reg + U_mma) / 2)   registers are loaded while others are used
//   U_busy = depth/16 max(products over the unit's rate, bytes read from shared memory over its rate)
//   time   = sum over waves of (start + loop + end)
// `issue` is what ALCOP's model lacks: the barrier of a chunk and the instructions that start its copies, during which
// the warps of a block multiply nothing. Rates and cycles were fitted with the products of bench/results/alcop-h200.csv
// in view, so that the model's errors there are no prediction.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace braid {

struct Pipeline {
  int height = 0;  // rows of a group, all of them
  int tokens = 0;  // of a block
  int depth = 0;   // columns of a chunk
  int stages = 0;  // 1: not pipelined
  int row_warps = 0, token_warps = 0;
  int registers = 0;  // of a thread, as nvcc 13.0 reports for sm_90a

  constexpr int warps() const { return row_warps * token_warps; }
  constexpr int threads() const { return 32 * warps(); }
  constexpr int warp_rows() const { return height / row_warps; }
  constexpr int warp_tokens() const { return tokens / token_warps; }
  constexpr int stage_bytes() const { return 2 * depth * (height + tokens); }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
};

// clang-format off
inline constexpr std::array kPipelines = {
    // height, tokens, depth, stages, warps along rows and tokens, registers
    Pipeline{16, 64, 32, 3, 1, 2, 64}, Pipeline{16, 64, 64, 4, 1, 4, 64}, Pipeline{16, 128, 32, 3, 1, 4, 71},
    Pipeline{16, 128, 64, 3, 1, 4, 118}, Pipeline{16, 256, 32, 4, 1, 4, 128}, Pipeline{16, 256, 64, 3, 1, 8, 117},
    Pipeline{32, 64, 32, 3, 1, 2, 96}, Pipeline{32, 64, 64, 4, 1, 4, 80}, Pipeline{32, 128, 32, 4, 1, 4, 94},
    Pipeline{32, 128, 64, 3, 2, 4, 80}, Pipeline{32, 256, 32, 4, 1, 4, 164}, Pipeline{32, 256, 64, 3, 1, 8, 96},
    Pipeline{64, 32, 64, 4, 2, 2, 80}, Pipeline{64, 64, 32, 4, 2, 2, 79}, Pipeline{64, 64, 64, 3, 2, 2, 123},
    Pipeline{64, 128, 32, 1, 2, 2, 166}, Pipeline{64, 128, 32, 2, 2, 2, 162}, Pipeline{64, 128, 32, 3, 2, 2, 162},
    Pipeline{64, 128, 32, 4, 2, 2, 162}, Pipeline{64, 128, 32, 6, 2, 2, 162}, Pipeline{64, 128, 64, 3, 1, 4, 218},
    Pipeline{64, 128, 64, 4, 2, 2, 224}, Pipeline{64, 256, 32, 3, 1, 4, 244}, Pipeline{64, 256, 32, 4, 2, 4, 128},
    Pipeline{64, 256, 64, 3, 1, 4, 252}, Pipeline{64, 256, 64, 4, 2, 4, 162},
    Pipeline{128, 32, 64, 4, 4, 1, 128}, Pipeline{128, 64, 32, 4, 2, 2, 156}, Pipeline{128, 64, 64, 3, 2, 2, 166},
    Pipeline{128, 128, 32, 1, 2, 2, 240}, Pipeline{128, 128, 32, 2, 2, 2, 241}, Pipeline{128, 128, 32, 3, 2, 2, 240},
    Pipeline{128, 128, 32, 5, 2, 2, 240}, Pipeline{128, 128, 64, 3, 2, 2, 244}, Pipeline{128, 128, 64, 3, 2, 4, 128},
    Pipeline{128, 256, 32, 3, 2, 4, 230}, Pipeline{128, 256, 32, 4, 2, 4, 230}, Pipeline{128, 256, 64, 3, 2, 4, 243},
    Pipeline{128, 256, 64, 4, 2, 4, 243}};
// clang-format on

// What a GPU can hold and do. The defaults are an H200's; sizes and the clock are read from the device where there is
// one.
struct GpuLimits {
  int units = 132;
  int64_t unit_shared_bytes = 228 << 10, block_shared_bytes = 227 << 10;
  int64_t unit_registers = 65536, thread_registers = 255;
  int unit_threads = 2048, unit_blocks = 32;
  double clock_ghz = 1.98;
  double memory_gbs = 4200;   // measured
  double shared_bytes = 128;  // in a cycle
  double shared_cycles = 33;  // until they arrive
  // Fitted.
  double l2_gbs = 9000;
  double mma_flops = 1600;                                           // of a unit in a cycle, by mma.sync
  double load_cycles = 700, start_cycles = 13000;                    // a copy, a block
  double chunk_cycles = 300, value_cycles = 20, gather_cycles = 90;  // of every chunk; of a thread's copies of 16 bytes
};

struct PipelineProblem {
  int64_t tokens = 0, groups = 0, height = 0;
  int64_t columns = 0;    // of all groups
  int64_t cols = 0;       // of x
  int64_t out_bytes = 2;  // of one result
};

// Blocks that a unit holds at a time; 0: not even one.
int blocks_of_unit(const Pipeline& p, const GpuLimits& limits);
// Infinite where no block fits.
double pipeline_seconds(const Pipeline& p, const PipelineProblem& problem, const GpuLimits& limits);
// Indices into kPipelines of those for the height that fit, the fastest first.
std::vector<int> ranked_pipelines(const PipelineProblem& problem, const GpuLimits& limits);

}  // namespace braid
