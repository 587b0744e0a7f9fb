// A folder that appears whole or not at all: its files go to a hidden neighbour, and commit() adds the file DONE,
// flushes it to the disk and renames it into place. A crash, a full disk or an exception on the way leaves what was
// there before; remnants of a process that was killed are swept by the next one.
#pragma once
#include <filesystem>

namespace braid::io {

class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& path);  // Error when the neighbour cannot be made
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // without commit() the files are thrown away

  const std::filesystem::path& place() const { return temporary_; }  // where to write
  // Its files are flushed by their writers (AtomicFile does). A folder of that name is replaced.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool done_ = false;
};

bool is_complete(const std::filesystem::path& folder);     // there, with its DONE
void remove_folder(const std::filesystem::path& folder);   // DONE first, so that a half-deleted one does not count
void sweep_remnants(const std::filesystem::path& parent);  // of atomic folders in it; their writers must be gone

}  // namespace braid::io
