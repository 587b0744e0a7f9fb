// Ranks as threads of this process: messages are copied once into the mailbox of their receiver, windows are plain
// memory. And the world of one rank, `self`, which has nobody to talk to.
#pragma once
#include <functional>

#include "comm/group.h"

namespace braid::comm {

// Runs body(world) on `size` threads and returns when all are done. When one throws, the others' calls fail, and the
// first error is thrown here.
void run_in_process(int size, const Options& options, const std::function<void(Group& world)>& body);

// A world of one rank.
Group self_group();

}  // namespace braid::comm
