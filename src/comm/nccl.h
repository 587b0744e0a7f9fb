// NCCL's collectives between GPUs, as the algorithm "native" over another transport, which carries everything else. A
// rank has a GPU of its own: that of its number among the ranks of its machine, modulo the GPUs there; NCCL refuses two
// ranks on one. Callers' buffers are host memory: a call copies its input to the GPU and its result back, through
// pinned memory, so its time has both ways over PCIe in it.
//
// What NCCL leaves open: the order of additions, which changes with sizes, ranks and versions; how often a sum of BF16
// or F16 is rounded on its way; whether NaN wins in a maximum or a minimum (elsewhere it does, reduction.h); that an
// all-reduce gives all ranks the same bits, which its algorithms do, but its documentation does not promise.
//
// No call blocks, but making a group does, until its members are connected. Two buffers of the longest call so far
// stay, on the GPU and in pinned memory. NCCL's own rule holds: ranks that share several groups start the calls of
// these in one order.
#pragma once
#include <memory>
#include <string>

#include "comm/transport.h"

namespace braid::comm {

// Error when libraries of `file` (nccl_library.h) are missing, before ranks are started.
void check_nccl(const std::string& file);

// All ranks of `inner` call it at once, after the last fork of their process. Error when a machine has no GPU, or fewer
// than ranks: told by rank 0, while the others wait for its end.
std::unique_ptr<Transport> over_nccl(std::unique_ptr<Transport> inner, const std::string& file,
                                     std::chrono::milliseconds timeout);

}  // namespace braid::comm
