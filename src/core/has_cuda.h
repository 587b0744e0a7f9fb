// Does this build have rows for GPUs? BRAID_CUDA is 0 or 1 in the files that braid_has_cuda names (BraidModule.cmake);
// all others compile to the same objects in both builds.
#pragma once

#ifndef BRAID_CUDA
#error "braid_has_cuda(FILE) in the CMakeLists.txt of this file's folder"
#endif

namespace braid {

constexpr bool kHasCuda = BRAID_CUDA;

}  // namespace braid
