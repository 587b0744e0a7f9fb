// The products of other libraries that sparse_bench compares with, where CMake found them. For *_bench.cc only.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace braid::sparse {

// y [rows, width] = A [rows, cols] x [cols, width], all F32 and row-major, A as CSR.
struct PeerProblem {
  int64_t rows = 0, cols = 0, edges = 0, width = 0;
  const int64_t* rowptr = nullptr;
  const int32_t* col = nullptr;
  const float *value = nullptr, *x = nullptr;
  float* y = nullptr;
};
struct Peer {
  std::string name;
  std::function<void()> run;        // owns the library's form of the matrix
  std::function<void()> write_y{};  // where `run` leaves its result elsewhere; not timed
};

void add_eigen(std::vector<Peer>& peers, const PeerProblem& problem);
void add_librsb(std::vector<Peer>& peers, const PeerProblem& problem);
void add_graphblas(std::vector<Peer>& peers, const PeerProblem& problem);

}  // namespace braid::sparse
