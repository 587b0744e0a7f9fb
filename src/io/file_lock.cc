#include "io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "sys/error.h"

namespace braid::io {

FileLock::FileLock(const std::filesystem::path& file, const char* where) {
  const std::string lock = file.string() + ".lock";
  fd_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (fd_ >= 0) close(fd_);
  if (error == EWOULDBLOCK)
    fail_environment(where, {.what = "another process uses this file",
                             .got = printable(file.string()),
                             .hint = "another name, or ending that process"});
  fail_environment(where, {.what = "cannot be locked: " + std::string(std::strerror(error)), .got = printable(lock)});
}

FileLock::~FileLock() { close(fd_); }

}  // namespace braid::io
