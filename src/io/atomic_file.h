// A file that appears whole or not at all: bytes go to a hidden temporary file next to it, which commit() flushes to
// disk and renames into place. A crash, a full disk or an exception leaves the old file as it was; a temporary file
// left by a killed process is removed by the next one that writes a file of the same name.
#pragma once
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace braid::io {

class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);  // Error if not a regular file, or not writable
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit() the bytes are discarded

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail_here(const char* what) const;

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

// Error, before anything is computed, if a result cannot be written to `path`: its folder is missing, or the path
// exists. An empty file may be replaced; so may an earlier result, if `own_kind` is its extension (".npy") and the
// folder holds no model.
// `other_way`, how the command would replace such a result, is named where that would help.
void check_new_file(const std::filesystem::path& path, std::string_view own_kind = "", bool replaces = true,
                    const char* other_way = "");

// The same for PREFIX with each of some endings, ".csv" or "-sum.svg"; Error too where PREFIX is a folder. `replaces`:
// earlier files of these kinds.
void check_new_files(const std::filesystem::path& prefix, std::initializer_list<const char*> endings, bool replaces);

// The parent of `folder`; Error if it does not exist: a mistyped path creates no folders.
std::filesystem::path check_parent(const std::filesystem::path& folder);

// Error if the folder exists and is not empty. Temporary files and folders of killed processes do not count and are
// removed.
void check_new_folder(const std::filesystem::path& folder);

// Removes the temporary folders `.NAME.PID.part` in `parent` whose writers are gone; of any name if that is empty.
void sweep_folder_parts(const std::filesystem::path& parent, const std::string& name);

void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace braid::io
