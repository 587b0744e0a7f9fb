// A file that one process at a time may use, though it is replaced as a whole: the lock is on FILE.lock beside it. One
// on FILE itself would stay with the file that is replaced. The kernel releases it however the process ends; the empty
// FILE.lock stays, since another process may wait for it under this name.
#pragma once
#include <filesystem>

namespace braid::io {

class FileLock {
 public:
  // Error, beginning with `where`, when another lock on `file` is held or FILE.lock cannot be created.
  FileLock(const std::filesystem::path& file, const char* where);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int fd_ = -1;
};

}  // namespace braid::io
