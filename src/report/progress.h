// A progress bar for what takes longer than two seconds: on standard error, only where that is a terminal, one line
// that is wiped at the end. Elsewhere it prints nothing, so that logs and pipes stay clean.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace braid::report {

// May this stream be coloured? Only a terminal, and not where NO_COLOR is set or TERM is dumb.
bool colourful(std::FILE* stream);

// "reading  [#####-----]  50%  2.10 s left"; without a total the count alone. `width` columns at most.
std::string progress_line(const std::string& label, int64_t done, int64_t total, double seconds, int width);

class Progress {
 public:
  Progress(std::string label, int64_t total);  // total 0: not known
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void at(int64_t done);  // cheap; to be called by the thread that made it
  void wipe();            // before a line of text; the next at() draws it again

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t total_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now(), next_;
};

}  // namespace braid::report
