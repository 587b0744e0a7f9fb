#include "io/atomic_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/atomic_file.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kDone = "DONE";
constexpr const char* kSuffix = ".part";

// File systems that refuse this have nothing to flush.
void flush_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& path, Mark mark)
    : path_(path),
      temporary_(path.parent_path() / fmt::format(".{}.{}{}", path.filename().string(), getpid(), kSuffix)),
      mark_(mark) {
  std::error_code failed;
  fs::remove_all(temporary_, failed);  // of a killed process with the same number
  fs::create_directories(temporary_, failed);
  if (failed) fail_environment(printable(temporary_.string()), {.what = "cannot be created", .got = failed.message()});
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  if (mark_ == Mark::done) write_text_file(temporary_ / kDone, "");
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) {
    if (entry.is_directory()) flush_folder(entry.path());
  }
  flush_folder(temporary_);
  if (fs::exists(path_)) remove_folder(path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_environment(printable(path_.string()), {.what = "cannot be renamed into place", .got = std::strerror(errno)});
  committed_ = true;
  flush_folder(path_.parent_path());
}

bool is_complete(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kDone, ignored);
}

void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder / kDone, ignored);
  flush_folder(folder);
  fs::remove_all(folder, ignored);
}

void sweep_remnants(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && name.ends_with(kSuffix) && entry.is_directory(ignored)) fs::remove_all(entry, ignored);
  }
}

}  // namespace braid::io
