// Collectives timed on a real transport.
#pragma once
#include "comm/group.h"
#include "comm/sim.h"

namespace braid::comm {

struct Measured {
  double us = 0;      // of the fastest repetition, until the last rank was done
  Traffic traffic{};  // of one call, all ranks together
};

// All ranks of the group call it and get the same. Inputs are zeros.
Measured measure(Group& group, const Request& request, int repeats);

}  // namespace braid::comm
