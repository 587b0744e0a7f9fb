// How much memory this machine has left, so that what does not fit is refused in one line instead of being killed.
#pragma once
#include <cstdint>

namespace braid::sys {

// What the kernel says could be used without swapping, in bytes; very much where it does not say.
int64_t memory_available();

}  // namespace braid::sys
