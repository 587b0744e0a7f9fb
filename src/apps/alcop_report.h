// What braid repro alcop makes of its measurements: how much a choice by the model loses after some trials, what stages
// gain, and where products with groups of rows are as fast as dense ones (repro_alcop.cc).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/device/gpu.h"
#include "kernels/linear/grouped_study.h"

namespace braid::apps {

struct AlcopStudy {
  Gpu gpu{};
  GpuRoofs roofs{};
  int64_t rounds = 0;
  bool stored = false;                // times of an earlier run
  std::vector<GroupedTimes> cases{};  // of one shape and height after each other, by ascending density
};

std::string alcop_csv(const AlcopStudy& study);
// The times of such a file, with the model's of this program. Error naming the line that is none.
AlcopStudy read_alcop_csv(const std::string& path);
std::string alcop_svg(const AlcopStudy& study);  // regret by trials
std::string alcop_json(const AlcopStudy& study);
std::string alcop_text(const AlcopStudy& study);  // tables

}  // namespace braid::apps
