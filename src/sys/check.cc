#include "sys/check.h"

#include <unistd.h>

#include <cstdio>

namespace braid::sys {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  fmt::print(stderr, "braid: bug at {}:{}: {} does not hold{}{}\n", file, line, condition, values.empty() ? "" : ": ",
             values);
  std::fflush(stderr);
  _Exit(70);
}

}  // namespace braid::sys
