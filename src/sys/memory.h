// Available memory, so that a request that does not fit is refused with one line instead of a killed process.
#pragma once
#include <cstdint>

namespace braid::sys {

// What the kernel reports as usable without swapping, in bytes; a huge value if it reports nothing.
int64_t memory_available();

}  // namespace braid::sys
