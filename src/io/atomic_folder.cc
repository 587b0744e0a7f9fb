#include "io/atomic_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "io/atomic_file.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kDone = "DONE";
constexpr const char* kSuffix = ".part";
constexpr const char* kAside = ".old";

// File systems that refuse this have nothing to flush.
void flush_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

// The name beside `path` for what this process puts there.
fs::path beside(const fs::path& path, const char* suffix) {
  return path.parent_path() / fmt::format(".{}.{}{}", path.filename().string(), getpid(), suffix);
}

void rename_or_fail(const fs::path& from, const fs::path& to, const fs::path& named) {
  if (rename(from.c_str(), to.c_str()) != 0)
    fail_environment(printable(named.string()), {.what = "cannot be renamed into place", .got = std::strerror(errno)});
}

// Both names at once, where the file system can.
bool exchange_names(const fs::path& a, const fs::path& b) {
  constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE
  return syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchange) == 0;
}

// ".NAME.PID.old" -> "NAME"; empty: not a folder that was put aside.
std::string owner_of(std::string name) {
  if (!name.starts_with(".") || !name.ends_with(kAside)) return {};
  name.resize(name.size() - std::strlen(kAside));
  const size_t dot = name.rfind('.');
  const bool numbered = dot > 1 && dot + 1 < name.size() && name.find_first_not_of("0123456789", dot + 1) == name.npos;
  return numbered ? name.substr(1, dot - 1) : std::string();
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// "a/" names the folder "a"; "." and ".." have no names beside which something could lie.
fs::path without_slash(const fs::path& path) {
  if (path.filename() == "." || path.filename() == "..") return fs::absolute(path).lexically_normal();
  return path.has_filename() || !path.has_parent_path() ? path : path.parent_path();
}

}  // namespace

void replace_folder(const fs::path& from, const fs::path& to, Exchange exchange) {
  std::error_code none;
  if (!fs::exists(to, none)) return rename_or_fail(from, to, to);
  if (exchange == Exchange::at_once && exchange_names(from, to)) return remove_folder(from);
  const fs::path aside = beside(to, kAside);
  fs::remove_all(aside, none);
  rename_or_fail(to, aside, to);
  if (rename(from.c_str(), to.c_str()) != 0) {
    const int problem = errno;
    rename_or_fail(aside, to, to);
    fail_environment(printable(to.string()), {.what = "cannot be renamed into place", .got = std::strerror(problem)});
  }
  flush_folder(parent_of(to));
  remove_folder(aside);
}

AtomicFolder::AtomicFolder(const fs::path& path, Mark mark) : path_(without_slash(path)), mark_(mark) {
  std::error_code failed;
  inside_ = fs::is_directory(path_, failed);
  if (inside_) sweep_folder_parts(path_, "");
  inside_ = inside_ && fs::is_empty(path_, failed);
  if (!inside_) sweep_folder_parts(parent_of(path_), path_.filename().string());
  temporary_ = inside_ ? path_ / fmt::format(".files.{}{}", getpid(), kSuffix) : beside(path_, kSuffix);
  fs::remove_all(temporary_, failed);  // of a killed process with the same number
  fs::create_directories(temporary_, failed);
  if (failed) fail_environment(printable(path_.string()), {.what = "cannot be created", .got = failed.message()});
  lock_ = open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
  if (lock_ >= 0) close(lock_);
}

void AtomicFolder::move_up() {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(temporary_)) names.push_back(entry.path().filename());
  const auto last = [](const fs::path& name) { return name == "config.json" || name == kDone; };
  std::stable_partition(names.begin(), names.end(), [&](const fs::path& name) { return !last(name); });
  for (const fs::path& name : names) rename_or_fail(temporary_ / name, path_ / name, path_);
  std::error_code ignored;
  fs::remove(temporary_, ignored);
}

void AtomicFolder::commit() {
  if (mark_ == Mark::done) write_text_file(temporary_ / kDone, "");
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) {
    if (entry.is_directory()) flush_folder(entry.path());
  }
  flush_folder(temporary_);
  if (inside_) {
    move_up();
  } else if (mark_ == Mark::none) {
    rename_or_fail(temporary_, path_, path_);  // refuses files that appeared there meanwhile
  } else {
    replace_folder(temporary_, path_);
  }
  committed_ = true;
  flush_folder(inside_ ? path_ : parent_of(path_));
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
  sweep_folder_parts(parent, "");
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory(ignored)) continue;
    const std::string owner = owner_of(name);
    if (owner.empty()) continue;
    if (fs::exists(parent / owner, ignored)) {
      remove_folder(entry);
    } else {
      fs::rename(entry, parent / owner, ignored);
    }
  }
}

}  // namespace braid::io
