// A folder that appears whole or not at all: its files go to a hidden temporary folder next to it, which commit()
// flushes to disk and renames into place, marked with a file DONE where that is asked for. A crash, a full disk or an
// exception leaves the old folder as it was; what a killed process left is removed by the next one.
#pragma once
#include <filesystem>

namespace braid::io {

class AtomicFolder {
 public:
  enum class Mark { done, none };  // none: for folders that other programs read
  // Error when the temporary folder cannot be created.
  explicit AtomicFolder(const std::filesystem::path& path, Mark mark = Mark::done);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // without commit() the files are discarded

  const std::filesystem::path& place() const { return temporary_; }  // where to write
  // Its files are flushed by their writers (AtomicFile does). A folder of that name is replaced.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  Mark mark_;
  bool committed_ = false;
};

bool is_complete(const std::filesystem::path& folder);     // exists, with its DONE
void remove_folder(const std::filesystem::path& folder);   // DONE first, so that a half-deleted one is incomplete
void sweep_remnants(const std::filesystem::path& parent);  // left by killed writers, which must be gone

}  // namespace braid::io
