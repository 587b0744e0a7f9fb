// A cluster as the simulation sees it (sim.h): nodes of GPUs, links with LogGP parameters (Alexandrov et al. 1995), and
// what shares what. Rank r is GPU r mod G of node r / G.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace braid::comm {

// A message of b bytes: the sender is busy for `overhead`, its first byte arrives `latency` after it left, its last one
// b / rate later, and the receiver is busy for `overhead`.
struct Link {
  double latency_us = 1, overhead_us = 0.5, gb_per_s = 10;
};

struct Cluster {
  const char* name = "custom";
  const char* source = "given";
  int nodes = 1, gpus = 1;  // N and G
  int nics = 1;             // network cards of a node; GPU g uses card g * nics / G, in and out at once
  Link node{}, network{};   // within a node each GPU has a port of its own
  // Nodes of a rack; 0: no racks. What leaves a rack takes `rack_latency_us` longer and shares uplinks that carry
  // 1 / taper of what the rack's cards do together.
  int rack_nodes = 0;
  double rack_latency_us = 0, taper = 1;
  double launch_us = 0;                                // once a call, before its first message
  double copy_gb_per_s = 1000, reduce_gb_per_s = 500;  // of local steps
  double jitter = 0;                                   // mean of an exponential share of the latency, on top of it
  uint64_t seed = 0;

  int ranks() const { return nodes * gpus; }
};

// Levels of traffic: 0 within a node, 1 between nodes of a rack, 2 between racks.
constexpr int kLevels = 3;
constexpr const char* kLevelNames[kLevels] = {"node", "network", "racks"};
int level_of(const Cluster& cluster, int from, int to);

// Clusters by name, each with the source of its numbers; the first is the default.
std::span<const Cluster> cluster_presets();
const Cluster* cluster_preset(std::string_view name);  // null: there is none

}  // namespace braid::comm
