// An exclusive lock on a file that is replaced by renaming: it is taken on FILE.lock, since a lock on FILE would stay
// with the inode that is replaced. The kernel releases it however the process ends. The empty FILE.lock is kept: if it
// were deleted, two processes could lock different files of that name.
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
