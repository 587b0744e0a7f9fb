// Open MPI's library, loaded when it is asked for: what mpi.cc and mpi_native.cc share.
#pragma once
#include <dlfcn.h>
#include <fmt/format.h>

#include "sys/error.h"

namespace braid::comm {

// Open MPI's handles are pointers to its own objects; its counts are int.
using MpiHandle = void*;
constexpr int kMpiSuccess = 0;

template <class Pointer>
void load_symbol(void* library, const char* name, Pointer& to) {
  to = reinterpret_cast<Pointer>(dlsym(library, name));
  if (!to)
    fail_environment("mpi", {.what = "the library is not Open MPI",
                             .got = fmt::format("no {}", name),
                             .hint = "apt-get install openmpi-bin"});
}

inline void check_mpi(int code, const char* what) {
  if (code != kMpiSuccess)
    fail_environment("mpi", {.what = fmt::format("{} failed", what), .got = fmt::format("{}", code)});
}

}  // namespace braid::comm
