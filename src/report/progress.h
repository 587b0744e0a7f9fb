// A progress bar for what takes longer than two seconds: on standard error, only if that is a terminal, one line that
// is wiped at the end. Otherwise it prints nothing, so that logs and pipes stay clean.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace braid::report {

// Whether to colour this stream: only a terminal, and not if NO_COLOR is set or TERM is dumb.
bool colourful(std::FILE* stream);

// "reading  [#####-----]  50%  2.10 s left"; without a total only the count. At most `width` columns.
std::string progress_line(const std::string& label, int64_t done, int64_t total, double seconds, int width);

class Progress {
 public:
  Progress(std::string label, int64_t total);  // total 0: not known
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void at(int64_t done);  // cheap; call it only from the thread that made this
  void wipe();            // before a line of text; the next at() draws it again

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t total_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now(), next_;
};

// A line on standard error before what takes seconds and has no steps to count; only if that is a terminal.
void status(const std::string& line);

}  // namespace braid::report
