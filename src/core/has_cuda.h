// Does this build have rows for GPUs? BRAID_CUDA is defined for the files that include this (BraidModule.cmake); all
// others compile to the same objects in both builds.
#pragma once

namespace braid {

#ifdef BRAID_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

}  // namespace braid
