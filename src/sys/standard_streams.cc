#include "sys/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace braid::sys {

void occupy_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;  // a machine without it goes on as before
  }
}

}  // namespace braid::sys
