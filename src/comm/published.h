// Published times of NVRAR, and a cluster's parameters from measured points.
#pragma once
#include <span>
#include <vector>

#include "comm/sim.h"

namespace braid::comm {

struct TimedSize {
  int64_t bytes = 0;
  double us = 0;
};

// NVRAR on 16 A100 in 4 nodes, BF16, the best configuration of each size: axonn-ai/yalis, tune_results.json
// (commit cf5b144), the code of arXiv 2511.09557.
std::span<const TimedSize> published_nvrar();

// The cluster with the launch time and the rate of the network that fit the points best, by the least sum of squared
// relative errors. A time without contention is linear in both the launch and the inverse of the rate, so two
// simulations a point and a system of two equations solve it. At least two points of different sizes.
Cluster fitted(Cluster cluster, const Request& request, std::span<const TimedSize> points);

// Each point as the others predict it.
std::vector<double> leave_one_out(const Cluster& cluster, const Request& request, std::span<const TimedSize> points);

}  // namespace braid::comm
