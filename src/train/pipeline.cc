#include "train/pipeline.h"

#include <algorithm>

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

}  // namespace braid::train
