// Ways to run spmm on a graph. They differ in speed alone: all give the bits of kernels/spmm's class f32, so a choice
// by measured times never shows in a result.
#pragma once
#include <span>

#include "graph/csr.h"
#include "kernels/spmm/spmm.h"

namespace braid::sparse {

struct Way {
  const char* name;
  SpmmTuning tuning{};
  bool packed = false;  // reads a SpmmPack
};
std::span<const Way> ways();
inline constexpr int kWays = 6;

// What a choice depends on: the graph, and the call.
struct Features {
  double mean = 0, spread = 0;  // of the degrees of rows: mean, and deviation over mean
  double width = 0;             // channels
  double x_mib = 0, y_mib = 0;  // of the sources and of the result
};
Features features_of(const graph::RowStats& stats, int64_t cols, int64_t width, int64_t element_bytes);

// A call that the way cannot run: packs are for narrow sums.
bool possible(const Way& way, int64_t width);

}  // namespace braid::sparse
