// Every shape of the pipelined main loop timed on a GPU, beside the model that ranks them (grouped_pipeline.h) and
// cuBLASLt's dense product of the same weight: what `braid repro alcop` prints. A build without CUDA, or a machine
// without a GPU, measures nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/device/gpu.h"
#include "kernels/linear/grouped_pipeline.h"

namespace braid {

// y [tokens, rows] = x [tokens, cols] w^T in BF16; w has groups of `height` rows, each with density * cols columns, all
// drawn.
struct GroupedCase {
  int64_t rows = 0, cols = 0, tokens = 0, height = 0;
  double density = 1;
};

// Columns that a group has.
int64_t kept_columns(const GroupedCase& c);

// Medians of rounds in which each program runs once, on memory that the caches do not hold.
struct GroupedTimes {
  GroupedCase of{};
  int64_t columns = 0;             // of all groups
  std::vector<int> pipelines{};    // into kPipelines: all of the height
  std::vector<double> seconds{};   // of their main loops
  std::vector<double> modelled{};  // the same by the model
  std::vector<int> by_model{};     // into `pipelines`, the fastest by the model first
  double transposes = 0;           // of x and y
  double whole = 0, untuned = 0;   // the op, with the fastest of the model's first four and with its first
  double dense = 0;                // cuBLASLt
  double error = 0;                // largest |difference| of their results, over the largest result

  double flops() const { return 2.0 * static_cast<double>(of.tokens * of.height * columns); }  // without the zeros
  double best() const;                                                                         // of `seconds`
};

// The model's times and order, under limits.
void model_pipelines(GroupedTimes& times, const GpuLimits& limits);

// Under limits read from the device, with the rates of `roofs`.
std::vector<GroupedTimes> time_grouped(const std::vector<GroupedCase>& cases, int rounds, const GpuRoofs& roofs,
                                       const std::function<void(int64_t done)>& progress);

// After 1, 2, ... trials in an order: the best so far over the best of all, less 1.
std::vector<double> regret_of(const std::vector<double>& seconds, const std::vector<int>& order);
// The mean over `shuffles` drawn orders.
std::vector<double> random_regret(const std::vector<double>& seconds, int shuffles);

}  // namespace braid
