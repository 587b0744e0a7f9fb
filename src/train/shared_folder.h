// A folder that all ranks write together. The first one makes it under a hidden name and lays its files out; then each
// writes the bytes that are its own (io/tensor_files.h), and when all have, the first one gives it its name. Until then
// what was there stays as it was, whichever rank fails or dies.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "comm/group.h"
#include "io/atomic_folder.h"
#include "sys/error.h"
#include "sys/function_ref.h"

namespace braid::train {

class SharedFolder {
 public:
  // All ranks call the constructor and lay_out(). `path` lies in `out`, which may have another name on each machine.
  SharedFolder(comm::Group& world, const std::filesystem::path& out, const std::filesystem::path& path);

  // The first rank that does not see what the first one makes there, as on a machine with a disk of its own; -1: all
  // see it.
  int blind() const { return blind_; }
  // The first rank calls `make`; its Error is that of all.
  void lay_out(sys::FunctionRef<void(const std::filesystem::path& place)> make);
  const std::filesystem::path& place() const { return place_; }  // as this rank sees it
  const std::filesystem::path& path() const { return path_; }    // what it becomes
  // On the first rank, when all have written and flushed what is theirs.
  void commit();

 private:
  comm::Group& world_;
  std::optional<io::AtomicFolder> folder_;  // on the first rank
  std::filesystem::path path_, place_;
  int blind_ = -1;
};

}  // namespace braid::train
