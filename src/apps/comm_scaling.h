// How collectives scale, for `braid repro nvrar` and `braid repro pccl`: every algorithm at every size on clusters of
// growing numbers of ranks, in virtual time, and the sizes at which one overtakes another.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "comm/sim.h"

namespace braid::apps {

struct ScalingGrid {
  std::vector<comm::Cluster> clusters;
  std::vector<comm::Op> ops;
  std::vector<int64_t> ranks, bytes;  // ascending; whole nodes, or a part of one; of the whole vector, in BF16
  std::vector<const char*> algorithms;
};

struct ScalingCell {
  std::string cluster;
  comm::Op op = comm::Op::all_reduce;
  int64_t ranks = 0, bytes = 0;
  const char* algorithm = "";
  double us = 0;
  int64_t network_bytes = 0;
};

class Scaling {
 public:
  // Algorithms that refuse a cluster are left out there: those of two levels on one node.
  explicit Scaling(const ScalingGrid& grid);

  const ScalingGrid& grid() const { return grid_; }
  // The least time of some algorithms; infinite where none of them can do it.
  double best_us(const char* cluster, comm::Op op, int64_t ranks, int64_t bytes,
                 const std::vector<const char*>& algorithms) const;
  // The sizes at which the first algorithms are faster than the others: "64 KiB to 1.3 MiB", "all", "none". Between the
  // sizes that were played the ratio of times is taken for a power of the size.
  std::string faster_at(const char* cluster, comm::Op op, int64_t ranks, const std::vector<const char*>& algorithms,
                        const std::vector<const char*>& others) const;

  std::string csv() const;
  nlohmann::ordered_json json() const;

 private:
  ScalingGrid grid_;
  std::vector<ScalingCell> cells_;
};

std::vector<int64_t> doubled(int64_t from, int64_t to);

}  // namespace braid::apps
