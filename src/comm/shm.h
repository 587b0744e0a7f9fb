// Ranks as processes of this machine that share memory: a ring of bytes for every pair of ranks, a doorbell for every
// rank, and an arena for windows.
#pragma once
#include <functional>

#include "comm/group.h"

namespace braid::comm {

// Runs body(world) in `size` processes: this one is rank 0, the others are its children and end with it. Call it where
// no other thread runs. When one of them throws or dies, the others' calls fail, and its error is thrown here.
void run_in_processes(int size, const Options& options, const std::function<void(Group& world)>& body);

}  // namespace braid::comm
