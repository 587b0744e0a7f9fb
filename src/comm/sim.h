// Collectives in virtual time: the schedules of all ranks of a cluster, played in one process, event by event. LogGP
// with resources: a rank posts a round's messages one after the other; each waits for the sender's port, then for the
// receiver's; ports of a node's cards are shared, and so are the uplinks of a rack. Everything is served in the order
// of virtual time, so a run is deterministic. Jitter does not let a message overtake another of its lane.
//
// Bytes are exact, from the messages themselves; times are a model's. With payload the run also gives the results.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "comm/algorithm.h"
#include "comm/cluster.h"
#include "comm/player.h"

namespace braid::comm {

// One collective, sized by its whole vector: what all-gather gives, reduce-scatter takes, and each rank of an
// all-to-all sends.
struct Request {
  Op op = Op::all_reduce;
  std::string algorithm{};  // empty: chosen by size
  DType type = DType::f32;
  Reduction reduction = Reduction::sum;
  int64_t count = 0;  // elements
  int root = 0;
  bool uniform = true;  // all-to-all: false where counts are listed, which here are equal nevertheless
};
Problem problem_of(const Request& request, int rank, int ranks, int per_node);

// Equal groups that make the same call at once, the members of each `stride` ranks apart: the ranks of an axis of a
// mesh. size x stride divides the ranks.
struct Groups {
  int size = 1, stride = 1;

  int place(int rank) const { return rank / stride % size; }
  int member(int rank, int place_of_member) const { return rank + (place_of_member - place(rank)) * stride; }
};
// Members of a group on each of its nodes; 0: not equally many.
int members_per_node(const Cluster& cluster, const Groups& groups);

struct SimResult {
  double us = 0;                  // until the last rank is done
  std::vector<double> finish_us;  // of each rank
  std::array<int64_t, kLevels> bytes{}, messages{};
};

// Plays one schedule a rank. `start_us`: when each rank begins; empty: all at 0.
SimResult simulate(const Cluster& cluster, std::vector<Player>& players, std::span<const double> start_us = {});
// Without payload: bytes and time alone.
SimResult simulate(const Cluster& cluster, const Request& request);
SimResult simulate(const Cluster& cluster, const Request& request, const Groups& groups);
// Every rank sends one message to the rank `distance` further on, around the end.
SimResult simulate_shift(const Cluster& cluster, int64_t bytes, int distance);

}  // namespace braid::comm
