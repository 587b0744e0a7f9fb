// The table of `braid repro spmm` for a GPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace braid::apps {

struct SpmmOnGpu {
  std::vector<int64_t> widths;
  std::string csv, svg;  // files; empty: none
  int64_t rounds;
  DType dtype;  // of the features
  bool quick, json;
};
// The exit code.
int repro_spmm_on_gpu(const SpmmOnGpu& o);

}  // namespace braid::apps
