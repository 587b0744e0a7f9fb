#include "kernels/linear/grouped_pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace braid {
namespace {

constexpr double kReserved = 1024;  // bytes of shared memory that the system takes of every block

// Seconds of `blocks` blocks at a time on every unit, `m` of them on each.
double wave_seconds(const Pipeline& p, const PipelineProblem& problem, const GpuLimits& g, double m, double blocks) {
  const double clock = 1e9 * g.clock_ghz, rows = p.height, tokens = p.tokens, depth = p.depth, stages = p.stages;
  const double chunks = std::ceil(static_cast<double>(problem.columns) / static_cast<double>(problem.groups) / depth);
  // Bytes of a chunk over this block's share of what brings them. Of the blocks of a wave, those of one group read the
  // same values, and those of the same tokens read the same x.
  const double groups = std::min(blocks, static_cast<double>(problem.groups)), tiles = std::max(1.0, blocks / groups);
  const double bytes = 2 * depth * (rows + tokens);
  const double x_share = std::min(1.0, static_cast<double>(problem.cols) / std::max(1.0, chunks * depth * groups));
  const double unique = 2 * depth * (rows / tiles + tokens * x_share);
  const double transfer = std::max(bytes * blocks / (1e9 * g.l2_gbs), unique * blocks / (1e9 * g.memory_gbs));
  const double load = g.load_cycles / clock + transfer;
  // 16 columns: products at the rate of four warps or fewer, operands from shared memory.
  const double flops = 2 * rows * tokens * 16, warps = p.warps();
  const double mma = flops / (g.mma_flops * std::min(1.0, warps / 4));
  const double operands = warps * 32 * (p.warp_rows() + p.warp_tokens()) / g.shared_bytes;
  const double steps = depth / 16;
  const double issue = g.chunk_cycles + depth / 8 / p.threads() * (g.value_cycles * rows + g.gather_cycles * tokens);
  const double use = (issue + steps * std::max(mma, (g.shared_cycles + operands + mma) / 2)) / clock;
  const double busy = steps * std::max(flops / g.mma_flops, operands) / clock;
  // Without a second stage a chunk is loaded, then used.
  const double chunk = std::max({m * busy, use, transfer, (load + use) / stages});
  const double end = rows * tokens * static_cast<double>(problem.out_bytes) * blocks / (1e9 * g.memory_gbs);
  return g.start_cycles / clock + load + chunks * chunk + end;
}

}  // namespace

int blocks_of_unit(const Pipeline& p, const GpuLimits& g) {
  if (p.shared_bytes() > g.block_shared_bytes || p.registers > g.thread_registers) return 0;
  const auto of = [](double all, double one) { return static_cast<int>(all / one); };
  const double registers = 8 * std::ceil(p.registers / 8.0) * p.threads();  // allocated eight at a time
  return std::min({of(static_cast<double>(g.unit_shared_bytes), p.shared_bytes() + kReserved),
                   of(static_cast<double>(g.unit_registers), registers), g.unit_threads / p.threads(), g.unit_blocks});
}

double pipeline_seconds(const Pipeline& p, const PipelineProblem& problem, const GpuLimits& g) {
  const int most = blocks_of_unit(p, g);
  if (most == 0) return std::numeric_limits<double>::infinity();
  const int64_t blocks = problem.groups * ((problem.tokens + p.tokens - 1) / p.tokens), wave = int64_t{g.units} * most,
                full = blocks / wave, left = blocks % wave;
  const auto of = [&](int64_t n) {
    const int64_t m = (n + g.units - 1) / g.units;
    return n == 0 ? 0 : wave_seconds(p, problem, g, static_cast<double>(m), static_cast<double>(n));
  };
  return static_cast<double>(full) * of(wave) + of(left);
}

std::vector<int> ranked_pipelines(const PipelineProblem& problem, const GpuLimits& limits) {
  std::vector<std::pair<double, int>> list;
  for (size_t i = 0; i < kPipelines.size(); ++i) {
    if (kPipelines[i].height == problem.height && blocks_of_unit(kPipelines[i], limits) > 0)
      list.emplace_back(problem.groups > 0 ? pipeline_seconds(kPipelines[i], problem, limits) : 0, static_cast<int>(i));
  }
  std::sort(list.begin(), list.end());
  std::vector<int> out;
  out.reserve(list.size());
  for (const auto& entry : list) out.push_back(entry.second);
  return out;
}

}  // namespace braid
