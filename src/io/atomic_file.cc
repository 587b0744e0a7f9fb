#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;

namespace {

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Is it `.NAME.PID.part`, with this name or, if that is empty, with any?
bool is_part(const std::string& file, const std::string& name) {
  constexpr std::string_view kEnd = ".part";
  if (file.size() <= kEnd.size() || file[0] != '.' || !file.ends_with(kEnd)) return false;
  const std::string_view stem = std::string_view(file).substr(1, file.size() - 1 - kEnd.size());
  const size_t dot = stem.rfind('.');
  return dot != stem.npos && dot > 0 && dot + 1 < stem.size() && (name.empty() || stem.substr(0, dot) == name) &&
         std::ranges::all_of(stem.substr(dot + 1), [](char c) { return c >= '0' && c <= '9'; });
}

// A writer holds its file's lock, which the kernel releases when the process is killed.
void remove_unless_written(const fs::path& part) {
  const int fd = open(part.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(part.c_str());
  close(fd);
}

bool is_real_folder(const fs::directory_entry& entry) {
  std::error_code none;
  return entry.is_directory(none) && !entry.is_symlink(none);
}

void sweep_parts(const fs::path& folder, const std::string& name) {
  std::error_code none;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (is_part(entry.path().filename().string(), name) && entry.is_regular_file(none)) parts.push_back(entry.path());
  }
  for (const fs::path& part : parts) remove_unless_written(part);
}

// Nothing in it but temporary files and folders of killed processes.
bool holds_only_parts(const fs::path& folder) {
  std::error_code none;
  return std::ranges::all_of(fs::directory_iterator(folder, none), [&](const fs::directory_entry& entry) {
    return is_part(entry.path().filename().string(), "") && (entry.is_regular_file(none) || is_real_folder(entry));
  });
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path)
    : path_(path), temporary_(path.parent_path() / fmt::format(".{}.{}.part", path.filename().string(), getpid())) {
  // Renaming would replace a device or a pipe by a file.
  std::error_code none;
  if (const fs::file_status now = fs::status(path, none); fs::exists(now) && !fs::is_regular_file(now))
    fail(printable(path.string()), {.what = "is not a regular file", .expected = "a file or a new name"});
  sweep_parts(folder_of(path), path.filename().string());
  // Between open() and flock() another process may have deleted the new file as a leftover.
  for (bool kept = false; !kept;) {
    if (fd_ >= 0) close(fd_);
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_here("cannot be written");
    struct stat info {};
    kept = flock(fd_, LOCK_EX | LOCK_NB) != 0 || fstat(fd_, &info) != 0 || info.st_nlink > 0;
  }
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
  // The new name is on disk only once its folder is; file systems that refuse this have nothing to flush.
  if (const int dir = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
    fsync(dir);
    close(dir);
  }
}

void AtomicFile::fail_here(const char* what) const {
  fail_environment(printable(path_.string()), {.what = what, .got = std::strerror(errno)});
}

void check_new_file(const fs::path& path, std::string_view own_kind, bool replaces, const char* other_way) {
  const std::string where = printable(path.string());
  const fs::path folder = folder_of(path);
  std::error_code none;
  if (fs::is_directory(path, none)) fail(where, {.what = "is a folder", .expected = "the name of a new file"});
  if (!fs::is_directory(folder, none))
    fail_environment(where, {.what = "cannot be written: there is no such folder",
                             .got = printable(folder.string()),
                             .hint = "mkdir -p " + printable(folder.string())});
  const bool of_a_model = fs::exists(folder / "config.json", none);
  const bool own = !own_kind.empty() && path.extension() == own_kind && fs::is_regular_file(path, none) && !of_a_model;
  if (own && replaces) return;
  if (fs::exists(path, none) && (!fs::is_regular_file(path, none) || fs::file_size(path, none) > 0))
    fail(where, {.what = "already exists",
                 .hint = std::string("another name, or ") + (own && *other_way ? other_way : "removing it")});
}

void check_new_files(const fs::path& prefix, std::initializer_list<const char*> endings, bool replaces) {
  const fs::path name = prefix.filename();
  if (name.empty() || name == "." || name == "..")
    fail(printable(prefix.string()),
         {.what = "is a folder, not the beginning of file names", .hint = printable((prefix / "name").string())});
  for (const char* ending : endings) {
    const fs::path file = fs::path(prefix) += ending;
    check_new_file(file, replaces ? file.extension().string() : "");
  }
}

fs::path check_parent(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  fs::path parent = (whole.has_filename() ? whole : whole.parent_path()).parent_path();
  std::error_code none;
  if (fs::is_directory(parent, none)) return parent;
  fail_environment(printable(folder.string()), {.what = "cannot be created: there is no such folder",
                                                .got = printable(parent.string()),
                                                .hint = "mkdir -p " + printable(parent.string())});
}

void check_new_folder(const fs::path& folder) {
  if (folder.empty()) fail("OUT", {.what = "the name of the folder is empty", .expected = "a folder to create"});
  std::error_code none;
  if (fs::is_directory(folder, none) && holds_only_parts(folder)) {
    sweep_parts(folder, "");
    sweep_folder_parts(folder, "");
  }
  if (fs::exists(folder, none) && (!fs::is_directory(folder, none) || !fs::is_empty(folder, none)))
    fail(printable(folder.string()),
         {.what = "already exists and is not an empty folder", .hint = "another name, or removing it"});
}

void sweep_folder_parts(const fs::path& parent, const std::string& name) {
  std::error_code none;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(parent, none)) {
    if (is_part(entry.path().filename().string(), name) && is_real_folder(entry)) parts.push_back(entry.path());
  }
  for (const fs::path& part : parts) {
    const int fd = open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) fs::remove_all(part, none);
    close(fd);
  }
}

void write_text_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace braid::io
