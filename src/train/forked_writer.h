// Work in a copy of this process. fork() is the snapshot: the copy sees all memory as it is now, whatever this process
// changes meanwhile, and only pages that either changes are copied.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "sys/function_ref.h"

namespace braid::train {

class ForkedWriter {
 public:
  ForkedWriter() = default;
  ForkedWriter(const ForkedWriter&) = delete;
  ForkedWriter& operator=(const ForkedWriter&) = delete;
  ~ForkedWriter();  // waits; an Error is lost

  struct Ended {
    double seconds = 0;  // from `start` to the end of `write`
    std::string lost{};  // why it did not get there: the signal that ended the copy
  };

  // Calls `write` in a copy of this process, whose other threads are not there. `write` must not print. The copy ends
  // with this process, and ignores signals that ask to stop. The one before must have finished. Returns why the process
  // cannot be copied (no memory, a limit of processes); empty: it was.
  std::string start(sys::FunctionRef<void()> write);
  // How the work ended, told once, with `wait` after waiting for it; none while it goes on or when there is none.
  // Throws the Error that `write` threw.
  std::optional<Ended> finished(bool wait);

 private:
  pid_t child_ = 0;   // 0: none
  int message_ = -1;  // the end of a pipe that says how the work ended
};

}  // namespace braid::train
