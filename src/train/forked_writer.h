// Work in a copy of this process. fork() is the snapshot: the copy sees all memory as it is now, whatever this process
// changes meanwhile, and only pages that either changes are copied.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>

#include "sys/function_ref.h"

namespace braid::train {

class ForkedWriter {
 public:
  ForkedWriter() = default;
  ForkedWriter(const ForkedWriter&) = delete;
  ForkedWriter& operator=(const ForkedWriter&) = delete;
  ~ForkedWriter();  // waits; an Error is lost

  // Calls `write` in a copy of this process, whose other threads are not there. `write` must not print. The copy ends
  // with this process, and ignores signals that ask to stop. The one before must have finished.
  void start(sys::FunctionRef<void()> write);
  // Seconds that the work took, once when it is done, and with `wait` after it; none while it goes on or when there is
  // none. Throws the Error that `write` threw.
  std::optional<double> finished(bool wait);

 private:
  pid_t child_ = 0;   // 0: none
  int message_ = -1;  // the end of a pipe that has the text of an Error
  std::chrono::steady_clock::time_point begin_{};
};

}  // namespace braid::train
