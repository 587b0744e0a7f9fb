// A folder that appears whole or not at all: its files go to a hidden temporary folder next to it, which commit()
// flushes to disk and renames into place, marked with a file DONE where that is asked for. A crash, a full disk or an
// exception leaves the old folder as it was, or the new one in its place: the two exchange their names at once. Where
// the file system cannot do that the old one is renamed first, and a crash at that moment leaves it under the hidden
// name; sweep_remnants gives it its name back. What else a killed process left is removed by the next one: with a lock
// on its temporary folder a writer shows that it is alive. A folder that exists and is empty stays itself, since it may
// be a mount, a link or the current folder: its files are written inside it and move up at the end, config.json last.
#pragma once
#include <filesystem>

namespace braid::io {

class AtomicFolder {
 public:
  // none: for folders that other programs read, and users name, so that commit() replaces no files.
  enum class Mark { done, none };
  // Error when the temporary folder cannot be created.
  explicit AtomicFolder(const std::filesystem::path& path, Mark mark = Mark::done);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // without commit() the files are discarded

  const std::filesystem::path& place() const { return temporary_; }  // where to write
  // Its files are flushed by their writers (AtomicFile does). A marked folder replaces one of its name.
  void commit();

 private:
  void move_up();

  std::filesystem::path path_, temporary_;
  Mark mark_;
  bool inside_ = false;  // path_ was an empty folder
  int lock_ = -1;
  bool committed_ = false;
};

bool is_complete(const std::filesystem::path& folder);    // exists, with its DONE
void remove_folder(const std::filesystem::path& folder);  // DONE first, so that a half-deleted one is incomplete
// The folder `from` takes the place of `to`, if there is one, which is removed. one_by_one: as where names cannot be
// exchanged.
enum class Exchange { at_once, one_by_one };
void replace_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                    Exchange exchange = Exchange::at_once);
void sweep_remnants(const std::filesystem::path& parent);  // left by killed writers, which must be gone

}  // namespace braid::io
