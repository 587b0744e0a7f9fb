#include "sys/memory.h"

#include <fstream>
#include <string>

namespace braid::sys {

int64_t memory_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return int64_t{1} << 62;
}

}  // namespace braid::sys
