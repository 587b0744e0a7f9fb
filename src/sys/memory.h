// Available memory, so that a request that does not fit is refused with one line instead of a killed process.
#pragma once
#include <cstdint>

namespace braid::sys {

// What the kernel reports as usable without swapping, in bytes; a huge value if it reports nothing.
int64_t memory_available();

// Physical memory of this process in bytes, mapped files included; 0 if the kernel does not say.
int64_t memory_resident();

}  // namespace braid::sys
