#include "train/pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "sys/check.h"

namespace braid::train {
namespace {

// Number k among the passes of a stage in one direction.
PipelinePass pass_of(const PipelineShape& shape, bool forward, int64_t k) {
  if (shape.chunks == 1) return {forward, k, 0};
  const int64_t group = shape.stages * shape.chunks, chunk = k % group / shape.stages;
  return {forward, k / group * shape.stages + k % shape.stages, forward ? chunk : shape.chunks - 1 - chunk};
}

}  // namespace

std::vector<PipelinePass> pipeline_passes(const PipelineShape& shape, int64_t stage) {
  CHECK(shape.chunks == 1 || shape.parts % shape.stages == 0, "{} parts on {} stages", shape.parts, shape.stages);
  const int64_t count = shape.parts * shape.chunks, behind = shape.stages - 1 - stage;
  const int64_t ahead = shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * shape.stages;
  std::vector<PipelinePass> passes;
  for (int64_t k = 0; k < count + ahead; ++k) {
    if (k < count) passes.push_back(pass_of(shape, true, k));
    if (k >= ahead && k - ahead < count) passes.push_back(pass_of(shape, false, k - ahead));
  }
  return passes;
}

int64_t parts_in_flight(std::span<const PipelinePass> passes, int64_t chunk) {
  int64_t now = 0, most = 0;
  for (const PipelinePass& pass : passes) {
    if (pass.chunk != chunk) continue;
    now += pass.forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

// best[r][n]: the least cost of the costliest of r runs over the first n layers.
std::vector<Range> split_layers(std::span<const double> costs, double last, int64_t runs) {
  const auto layers = costs.size(), parts = static_cast<size_t>(runs);
  CHECK(parts >= 1 && parts <= layers, "{} runs of {} layers", runs, layers);
  std::vector<double> before(layers + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  const std::vector<double> never(layers + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> best(parts + 1, never);
  std::vector<std::vector<size_t>> begin(parts + 1, std::vector<size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (size_t r = 1; r <= parts; ++r) {
    for (size_t n = r; n <= layers; ++n) {
      for (size_t from = r - 1; from < n; ++from) {
        const double own = before[n] - before[from] + (n == layers ? last : 0);
        const double most = std::max(best[r - 1][from], own);
        if (most < best[r][n]) best[r][n] = most, begin[r][n] = from;
      }
    }
  }
  std::vector<Range> list(parts);
  for (size_t r = parts, end = layers; r > 0; end = begin[r--][end]) {
    const auto from = static_cast<int64_t>(begin[r][end]);
    list[r - 1] = {from, static_cast<int64_t>(end) - from};
  }
  return list;
}

}  // namespace braid::train
