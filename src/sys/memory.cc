#include "sys/memory.h"

#include <fstream>
#include <string>

namespace braid::sys {
namespace {

// A field of a file of the kernel that is given in KiB, in bytes; `otherwise` without it.
int64_t field(const char* path, const char* name, int64_t otherwise) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == name && file >> kib) return kib * 1024;
  }
  return otherwise;
}

}  // namespace

int64_t memory_available() { return field("/proc/meminfo", "MemAvailable:", int64_t{1} << 62); }

int64_t memory_resident() { return field("/proc/self/status", "VmRSS:", 0); }

}  // namespace braid::sys
