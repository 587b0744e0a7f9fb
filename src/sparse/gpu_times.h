// Sparse products measured on a GPU: the problem of problem.h, by every row of spmm's table for GPUs, and by cuSPARSE
// with descriptors and its analysis of the matrix made beforehand, as a program has them that multiplies with one
// matrix many times.
#pragma once
#include <string>
#include <vector>

#include "sparse/problem.h"

namespace braid::sparse {

struct GpuTime {
  std::string name;
  double seconds = 0;   // median of the rounds; 0: it cannot run this
  bool chosen = false;  // by the graph and the width, as kernels/spmm/README.md has it
  bool library = false;
};

// Ways interleaved, recorded passes timed by events. Results are compared with the CPU's. BF16 features are those of
// the problem, rounded in place, and cuSPARSE then takes the values of edges in BF16, too, which it wants of one type
// with them. Error without a GPU.
std::vector<GpuTime> times_on_gpu(Problem& problem, DType features, int rounds);

}  // namespace braid::sparse
