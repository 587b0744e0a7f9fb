// Ranks started by mpirun: two-sided messages over Open MPI 4 (Debian's). The library is loaded when it is asked for,
// so that the program runs where it is not installed; the few declarations that are needed are ours, and fit Open MPI's
// binary interface alone. Calls of a group are not compared over MPI, only the sizes of messages: there is no room
// beside a message. Its own collectives are the algorithms "native" and "native_blocking" (mpi_native.h).
#pragma once
#include <functional>

#include "comm/group.h"

namespace braid::comm {

// Error when the library is missing, is another MPI, or when this process was not started by mpirun: one line that says
// what to do. When body throws, the process must end: mpirun then ends the others. Ranks may give other
// Options::per_node, because each knows its own machine alone: all then take 1.
void run_under_mpi(const Options& options, const std::function<void(Group& world)>& body);

// For a rank that refuses its arguments: the others as a rule refuse alike, and one line is enough. Another than the
// first, while MPI does not connect them yet, waits some seconds, in which mpirun ends it when the first has failed:
// true when it said so.
bool first_rank_spoke();

// The number of ranks that mpirun started; 0: it did not start this process.
int ranks_of_mpirun();
// Of these, the ones on this machine.
int local_ranks_of_mpirun();

}  // namespace braid::comm
