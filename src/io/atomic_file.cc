#include "io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;

AtomicFile::AtomicFile(const fs::path& path)
    : path_(path), temporary_(path.parent_path() / fmt::format(".{}.{}.part", path.filename().string(), getpid())) {
  // Renaming would put a file in the place of a device or a pipe.
  std::error_code none;
  if (const fs::file_status now = fs::status(path, none); fs::exists(now) && !fs::is_regular_file(now))
    fail(printable(path.string()), {.what = "is not a regular file", .expected = "a file or a new name"});
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_here("cannot be written");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr size_t piece = size_t{1} << 30;  // Linux writes at most 2 GiB at once
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), piece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_here("cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  if (fsync(fd_) != 0) fail_here("cannot be flushed to the disk");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_here("cannot be renamed into place");
  close(fd_);
  fd_ = -1;
  // The new name is on the disk only when its folder is; some file systems refuse this, and have nothing to flush then.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  if (const int dir = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
    fsync(dir);
    close(dir);
  }
}

void AtomicFile::fail_here(const char* what) const {
  fail_environment(printable(path_.string()), {.what = what, .got = std::strerror(errno)});
}

void check_new_folder(const fs::path& folder) {
  std::error_code none;
  if (fs::exists(folder, none) && (!fs::is_directory(folder, none) || !fs::is_empty(folder, none)))
    fail(printable(folder.string()),
         {.what = "already exists and is not an empty folder", .hint = "another name, or removing it"});
}

void write_text_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace braid::io
