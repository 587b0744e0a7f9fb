// Ranks over TCP: a socket between every two, waited for with poll(2). For machines without MPI, and for links whose
// delay or rate something outside limits: a rank that waits sleeps.
#pragma once
#include <functional>

#include "comm/group.h"

namespace braid::comm {

// Runs body(world) in `size` processes of this machine (processes.h) that talk over the loopback interface.
void run_over_loopback(int size, const Options& options, const std::function<void(Group& world)>& body);

}  // namespace braid::comm
