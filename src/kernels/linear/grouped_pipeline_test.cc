// The model that ranks main loops of products with groups of rows: what must hold of its numbers, without a GPU.
#include "kernels/linear/grouped_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/linear/grouped_study.h"

namespace braid {
namespace {

constexpr PipelineProblem kProblem{
    .tokens = 2048, .groups = 64, .height = 64, .columns = 64 * 1024, .cols = 4096, .out_bytes = 2};

TEST(GroupedPipeline, MoreStagesAreFasterUntilFewerBlocksFit) {
  for (const Pipeline& shape : kPipelines) {
    Pipeline p = shape;
    PipelineProblem problem = kProblem;
    problem.height = p.height;
    p.stages = 1;
    for (int cliffs = 0; blocks_of_unit(p, {}) > 0; ++p.stages) {
      Pipeline more = p;
      ++more.stages;
      if (blocks_of_unit(more, {}) == blocks_of_unit(p, {})) {
        EXPECT_LE(pipeline_seconds(more, problem, {}), pipeline_seconds(p, problem, {})) << p.stages;
      } else {
        EXPECT_LT(blocks_of_unit(more, {}), blocks_of_unit(p, {})) << ++cliffs;
      }
    }
    EXPECT_TRUE(std::isinf(pipeline_seconds(p, problem, {})));
    EXPECT_GT(p.shared_bytes(), 227 << 10);
  }
}

TEST(GroupedPipeline, MoreWorkTakesLonger) {
  for (const Pipeline& p : kPipelines) {
    PipelineProblem problem = kProblem;
    problem.height = p.height;
    double before = 0;
    for (const int64_t tokens : {1, 300, 2048, 8192, 65536}) {
      problem.tokens = tokens;
      const double seconds = pipeline_seconds(p, problem, {});
      EXPECT_GE(seconds, before);
      before = seconds;
    }
    problem.columns *= 2;
    EXPECT_GT(pipeline_seconds(p, problem, {}), before);
  }
}

// Between the time that products alone take at the unit's rate and a hundred times that, for work that fills the GPU.
TEST(GroupedPipeline, TimesAreOfTheRightSize) {
  const GpuLimits limits;
  const double least = 2.0 * 2048 * 64 * kProblem.columns / (limits.units * limits.mma_flops * 1e9 * limits.clock_ghz);
  for (const Pipeline& p : kPipelines) {
    if (p.height != kProblem.height) continue;
    EXPECT_GT(pipeline_seconds(p, kProblem, limits), least);
    EXPECT_LT(pipeline_seconds(p, kProblem, limits), 100 * least);
  }
}

TEST(GroupedPipeline, ResourcesBoundTheBlocks) {
  const Pipeline p{64, 128, 32, 3, 2, 2, 162};
  EXPECT_EQ(p.threads(), 128);
  EXPECT_EQ(p.shared_bytes(), 3 * 2 * 32 * (64 + 128));
  EXPECT_EQ(blocks_of_unit(p, {}), 3);                            // 65536 / (168 * 128)
  EXPECT_EQ(blocks_of_unit(p, {.unit_shared_bytes = 77000}), 2);  // 2 * (36864 + 1024)
  EXPECT_EQ(blocks_of_unit(p, {.unit_threads = 128}), 1);
  EXPECT_EQ(blocks_of_unit(p, {.unit_blocks = 2}), 2);
  EXPECT_EQ(blocks_of_unit(p, {.block_shared_bytes = 36863}), 0);
  EXPECT_EQ(blocks_of_unit(p, {.thread_registers = 161}), 0);
}

TEST(GroupedPipeline, RankingHasEveryShapeThatFitsOnce) {
  for (const int64_t height : {16, 32, 64, 128}) {
    PipelineProblem problem = kProblem;
    problem.height = height;
    for (const GpuLimits& limits : {GpuLimits{}, GpuLimits{.block_shared_bytes = 48 << 10}}) {
      const std::vector<int> ranked = ranked_pipelines(problem, limits);
      const std::set<int> once(ranked.begin(), ranked.end());
      EXPECT_EQ(once.size(), ranked.size());
      for (size_t i = 0; i < kPipelines.size(); ++i)
        EXPECT_EQ(once.contains(static_cast<int>(i)),
                  kPipelines[i].height == height && kPipelines[i].shared_bytes() <= limits.block_shared_bytes);
      for (size_t i = 1; i < ranked.size(); ++i)
        EXPECT_LE(pipeline_seconds(kPipelines[static_cast<size_t>(ranked[i - 1])], problem, limits),
                  pipeline_seconds(kPipelines[static_cast<size_t>(ranked[i])], problem, limits));
    }
  }
  PipelineProblem odd = kProblem;
  odd.height = 48;
  EXPECT_TRUE(ranked_pipelines(odd, {}).empty());
}

TEST(GroupedPipeline, RegretFallsToZero) {
  const std::vector<double> seconds = {4, 2, 8, 3};
  EXPECT_EQ(regret_of(seconds, {2, 0, 3, 1}), (std::vector<double>{3, 1, 0.5, 0}));
  const std::vector<double> random = random_regret(seconds, 4000);
  EXPECT_NEAR(random[0], (2.0 + 1 + 4 + 1.5) / 4 - 1, 0.05);
  // The expected least of two of four, by all six pairs.
  EXPECT_NEAR(random[1], ((2 + 4 + 3 + 2 + 2 + 3) / 6.0) / 2 - 1, 0.03);
  EXPECT_EQ(random[3], 0);
  EXPECT_TRUE(std::is_sorted(random.rbegin(), random.rend()));
}

}  // namespace
}  // namespace braid
