// The order of passes of a pipeline, run by clocks instead of models: nobody waits for ever, few parts are in flight,
// and stages idle as long as the papers say. And runs of layers against all other cuts.
#include "train/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "models/division.h"

namespace braid::train {
namespace {

constexpr int64_t kForward = 1, kBackward = 2;  // clocks that a pass of a chunk takes

std::vector<PipelineShape> shapes() {
  std::vector<PipelineShape> list;
  for (const int64_t stages : {1, 2, 3, 4, 8}) {
    for (const int64_t parts : {1, 2, 3, 5, 8, 16, 24}) {
      for (const int64_t chunks : {1, 2, 3}) {
        if (chunks == 1 || parts % stages == 0) list.push_back({stages, chunks, parts});
      }
    }
  }
  return list;
}

std::string text(const PipelineShape& s) {
  return std::to_string(s.stages) + " stages x " + std::to_string(s.chunks) + ", " + std::to_string(s.parts) + " parts";
}

// Runs the passes of all stages as soon as what they read is there. Returns when the last has ended; nothing if none
// can go on.
std::optional<int64_t> run(const PipelineShape& shape) {
  const int64_t runs = shape.stages * shape.chunks;
  std::vector<std::vector<PipelinePass>> passes;
  for (int64_t s = 0; s < shape.stages; ++s) passes.push_back(pipeline_passes(shape, s));
  std::vector<size_t> next(passes.size(), 0);
  std::vector<int64_t> clock(passes.size(), 0);
  std::map<std::tuple<bool, int64_t, int64_t>, int64_t> ended;  // of direction, part, run of layers
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < passes.size(); ++s) {
      if (next[s] == passes[s].size()) continue;
      const PipelinePass p = passes[s][next[s]];
      const int64_t own = p.chunk * shape.stages + static_cast<int64_t>(s);
      const bool turns = !p.forward && own == runs - 1;
      const bool free = p.forward && own == 0;
      const auto needed =
          turns ? std::tuple(true, p.part, own) : std::tuple(p.forward, p.part, p.forward ? own - 1 : own + 1);
      if (!free && !ended.contains(needed)) continue;
      if (!p.forward && !ended.contains({true, p.part, own})) return std::nullopt;
      clock[s] = std::max(clock[s], free ? 0 : ended[needed]) + (p.forward ? kForward : kBackward);
      EXPECT_TRUE(ended.emplace(std::tuple(p.forward, p.part, own), clock[s]).second) << "twice: " << text(shape);
      ++next[s], moved = true;
    }
  }
  if (std::ssize(ended) != 2 * runs * shape.parts) return std::nullopt;
  return *std::max_element(clock.begin(), clock.end());
}

TEST(Pipeline, AllPassesRunAndIdleAsLongAsTheBubble) {
  for (const PipelineShape& shape : shapes()) {
    const std::optional<int64_t> clocks = run(shape);
    ASSERT_TRUE(clocks.has_value()) << text(shape);
    // (stages - 1) / (parts x chunks) of the ideal.
    const int64_t ideal = shape.parts * shape.chunks * (kForward + kBackward);
    EXPECT_EQ(*clocks - ideal, (shape.stages - 1) * (kForward + kBackward)) << text(shape);
  }
}

TEST(Pipeline, FewPartsAreInFlight) {
  for (const PipelineShape& shape : shapes()) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      const std::vector<PipelinePass> passes = pipeline_passes(shape, stage);
      int64_t now = 0, most = 0;
      std::vector<int64_t> parts(static_cast<size_t>(2 * shape.chunks), 0);
      for (const PipelinePass& p : passes) {
        now += p.forward ? 1 : -1;
        most = std::max(most, now);
        // In order: a slot is free again when the next part needs it.
        EXPECT_EQ(parts[static_cast<size_t>(2 * p.chunk + (p.forward ? 1 : 0))]++, p.part) << text(shape);
      }
      const int64_t behind = shape.stages - 1 - stage;
      const int64_t bound = shape.chunks == 1 ? behind + 1 : 2 * behind + (shape.chunks - 1) * shape.stages + 1;
      EXPECT_EQ(most, std::min(bound, shape.parts * shape.chunks)) << text(shape) << " stage " << stage;
      int64_t slots = 0;
      for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) slots += parts_in_flight(passes, chunk);
      EXPECT_GE(slots, most) << text(shape);
      EXPECT_LE(slots, most + shape.stages * (shape.chunks - 1)) << text(shape);
    }
  }
}

TEST(Pipeline, OneForwardOneBackward) {
  const std::vector<PipelinePass> want = {{true, 0, 0}, {true, 1, 0},  {false, 0, 0},
                                          {true, 2, 0}, {false, 1, 0}, {false, 2, 0}};
  EXPECT_EQ(pipeline_passes({.stages = 2, .chunks = 1, .parts = 3}, 0), want);
}

// The costliest run of the best cut, tried one by one.
double least(std::span<const double> costs, double last, int64_t runs) {
  if (runs == 1) return std::accumulate(costs.begin(), costs.end(), last);
  double best = std::numeric_limits<double>::infinity(), first = 0;
  for (size_t n = 1; n + static_cast<size_t>(runs) <= costs.size() + 1; ++n) {
    first += costs[n - 1];
    best = std::min(best, std::max(first, least(costs.subspan(n), last, runs - 1)));
  }
  return best;
}

TEST(Pipeline, RunsOfLayersCostNearlyTheSame) {
  const std::vector<std::vector<double>> models = {
      {1, 1, 1, 1, 1, 1, 1, 1}, {5, 1, 1, 1, 1, 3, 2}, {1, 2, 9, 2, 1}, {0, 4, 0, 4, 0, 1}};
  for (const std::vector<double>& costs : models) {
    for (const double last : {0.0, 3.0, 20.0}) {
      for (int64_t runs = 1; runs <= std::ssize(costs); ++runs) {
        const std::vector<Range> cut = models::split_layers(costs, last, runs);
        ASSERT_EQ(std::ssize(cut), runs);
        int64_t at = 0;
        double most = 0;
        for (const Range& r : cut) {
          EXPECT_EQ(r.begin, at);
          ASSERT_GE(r.count, 1);
          at += r.count;
          const double own = std::accumulate(&costs[static_cast<size_t>(r.begin)], costs.data() + at, 0.0);
          most = std::max(most, own + (at == std::ssize(costs) ? last : 0));
        }
        EXPECT_EQ(at, std::ssize(costs));
        EXPECT_EQ(most, least(costs, last, runs));
      }
    }
  }
}

}  // namespace
}  // namespace braid::train
