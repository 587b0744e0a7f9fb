// Collectives timed for `braid comm bench` and `comm tune`: in virtual time, or over ranks of this machine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "comm/selector.h"
#include "comm/sim.h"

namespace braid::apps {

struct CommArgs {
  std::string transport = "sim", cluster, dtype = "BF16", nccl = "libnccl.so.2";
  int64_t gpus = 0, nics = 0, repeats = 5;
  const Cli* cli = nullptr;

  void declare(Cli& options);
  void check() const;
  bool simulates() const { return transport == "sim"; }
  bool under_mpirun() const;  // the ranks are those of mpirun
  // The cluster that the arguments describe, with so many nodes (0: as many as it has, or 2 where ranks are measured).
  comm::Cluster cluster_of(int64_t nodes) const;
  // What every rank of it asks for; it may be asked for with the algorithms of the transport's own library.
  comm::Problem problem_of(const comm::Request& request, const comm::Cluster& on) const;
};

struct CommTime {
  std::string algorithm;
  int64_t bytes = 0;
  double us = 0;
  int64_t on_node = 0, on_network = 0, on_racks = 0, messages = 0;
  bool counted = true;  // false: a library sent them
};

// Op names as MPI and NCCL users write them, too: "allreduce" is "all_reduce". Error, naming the flag, for others.
comm::Op op_named(const char* flag, const std::string& name);

// The calls of a file (comm/selector.h). Errors as read_times.
std::vector<comm::TimedCall> read_times_file(const std::string& path);

// A time a request. Over MPI the cluster's nodes become those that mpirun started, and ranks other than 0 get nothing.
// Error where these are not `nodes`, if that many were asked for.
std::vector<CommTime> time_calls(const CommArgs& args, comm::Cluster& cluster,
                                 const std::vector<comm::Request>& requests, int64_t nodes = 0);

}  // namespace braid::apps
