#include "sys/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace braid::sys {

void occupy_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) std::abort();
  }
}

}  // namespace braid::sys
