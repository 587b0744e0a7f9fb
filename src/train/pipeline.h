// Pipeline parallelism: which layers a stage has, and in which order it runs the parts of a batch through them. Pure
// functions of a few numbers.
//
// Layers are cut into stages x chunks runs; run number c * stages + s is chunk c of stage s. With one chunk a stage
// runs as few parts ahead as keep those behind it busy, then one forward and one backward in turn (1F1B:
// PipeDream-Flush, arXiv 2006.09503, section 2.2). With several it goes through groups of `stages` parts chunk by chunk
// (interleaved: arXiv 2104.04473, section 2.2): the first part arrives earlier, and stages wait for (stages - 1) /
// (chunks * parts) of the time that they compute.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param.h"

namespace braid::train {

struct PipelineShape {
  int64_t stages = 1;
  int64_t chunks = 1;  // of a stage; several: `parts` is a multiple of `stages`
  int64_t parts = 1;   // of the batch
};

struct PipelinePass {
  bool forward = true;
  int64_t part = 0, chunk = 0;
  bool operator==(const PipelinePass&) const = default;
};

// All passes of a stage. Every chunk sees the parts in order, forward and backward.
std::vector<PipelinePass> pipeline_passes(const PipelineShape& shape, int64_t stage);
// Most parts of which a chunk has run forward and not yet backward.
int64_t parts_in_flight(std::span<const PipelinePass> passes, int64_t chunk);

}  // namespace braid::train
