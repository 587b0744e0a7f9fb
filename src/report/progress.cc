#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "report/units.h"

namespace braid::report {
namespace {

constexpr std::chrono::milliseconds kPatience{2000}, kInterval{100};

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool colourful(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fileno(stream)) && !(no_color && *no_color) && term && std::string_view(term) != "dumb";
}

std::string progress_line(const std::string& label, int64_t done, int64_t total, double seconds, int width) {
  std::string line;
  if (total > 0) {
    const double part = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
    constexpr int kBar = 30;
    const auto full = static_cast<size_t>(part * kBar);
    const std::string left = part > 0 ? duration(seconds * (1 - part) / part) + " left" : "";
    line = fmt::format("{}  [{}{}] {:3.0f}%  {}", label, std::string(full, '#'), std::string(kBar - full, '-'),
                       part * 100, left);
  } else {
    line = fmt::format("{}  {}  {}", label, count(static_cast<double>(done)), duration(seconds));
  }
  return line.substr(0, static_cast<size_t>(std::max(1, width - 1)));
}

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO)), next_(start_ + kPatience) {}

Progress::~Progress() { wipe(); }

void Progress::wipe() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);  // does not throw if the terminal was closed
  std::fflush(stderr);
  shown_ = false;
  next_ = std::min(next_, Clock::now());
}

void Progress::at(int64_t done) {
  if (!terminal_ || Clock::now() < next_) return;
  next_ = Clock::now() + kInterval;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::fputs(("\r\x1b[K" + progress_line(label_, done, total_, seconds, terminal_width())).c_str(), stderr);
  std::fflush(stderr);
}

void status(const std::string& line) {
  if (isatty(STDERR_FILENO)) std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace braid::report
