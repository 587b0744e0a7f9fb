// A file that appears whole or not at all: bytes go to a hidden neighbour, and commit() flushes it to the disk and
// renames it into place. A crash, a full disk or an exception on the way leaves what was there before; the neighbour
// that a killed process left is removed by the next one that writes a file of the same name.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace braid::io {

class AtomicFile {
 public:
  explicit AtomicFile(
      const std::filesystem::path& path);  // Error when it is no file, or its folder cannot be written to
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit() the bytes are thrown away

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail_here(const char* what) const;

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

// Error, before anything is computed, when `path` cannot take a result: its folder is missing, or something is there
// that the result would replace. An empty file is nothing; an earlier result may go, where `own_kind` is the ending of
// its name (".npy") and no model lies in the folder.
void check_new_file(const std::filesystem::path& path, std::string_view own_kind = "");

// The folder in which `folder` is to be made; Error where it is missing: a mistyped path makes no new ones.
std::filesystem::path check_parent(const std::filesystem::path& folder);

// Error where a folder that is to be written exists and is not empty. Neighbours that a killed process left are
// removed.
void check_new_folder(const std::filesystem::path& folder);

void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace braid::io
