// Ranks over TCP: a socket between every two, waited for with poll(2). For machines without MPI, and for links whose
// delay or rate something outside limits: a rank that waits sleeps.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"

namespace braid::comm {

// Runs body(world) in `size` processes of this machine (processes.h) that talk over the loopback interface.
void run_over_loopback(int size, const Options& options, const std::function<void(Group& world)>& body);

// This process as one of ranks that were started by hand, each with the same list of "address:port" (IPv4) and its
// place in it, where it listens. Waits a minute for the others. Nothing is encrypted or authenticated: for networks
// that are trusted. Error for an address that cannot be used.
struct Place {
  std::vector<std::string> hosts{};
  int rank = 0;
};
void run_over_hosts(const Place& place, const Options& options, const std::function<void(Group& world)>& body);
// Ranks of a node: where equally many consecutive hosts have the same address; else 0.
int node_ranks_of(const std::vector<std::string>& hosts);
// Hosts that have the address of this one.
int ranks_beside(const Place& place);

}  // namespace braid::comm
