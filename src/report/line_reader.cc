#include "report/line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "sys/interrupt.h"

namespace braid::report {
namespace {

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

// Raw mode: keys one by one and unprocessed, pastes marked. The destructor restores the terminal.
class RawTerminal {
 public:
  RawTerminal() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL | INLCR | ISTRIP);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    put("\x1b[?2004h");
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() {
    put("\x1b[?2004l");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

 private:
  termios before_{};
};

struct Size {
  size_t columns = 80, rows = 24;
};
Size terminal_size() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 8 || size.ws_row < 2) return {};
  return {size.ws_col, size.ws_row};
}

bool can_edit() {
  const char* term = std::getenv("TERM");
  return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && term && std::string_view(term) != "dumb";
}

}  // namespace

LineReader::LineReader() : editing_(can_edit()) {}

// False at the end of the input, and (EINTR) after a signal or a second: a signal that comes between the check for it
// and the poll does not end the poll, so the caller checks again every second.
bool LineReader::next_byte(char& byte) {
  if (input_at_ == input_.size()) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    errno = 0;
    if (poll(&input, 1, 1000) <= 0) {
      errno = EINTR;
      return false;
    }
    input_.resize(4096);
    input_at_ = 0;
    const ssize_t n = ::read(STDIN_FILENO, input_.data(), input_.size());
    input_.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n <= 0) return false;
  }
  byte = input_[input_at_++];
  return true;
}

// A message higher than the screen shows the rows around the cursor.
void LineReader::draw(std::string_view prompt) {
  const Size size = terminal_size();
  const LineBuffer::Layout layout = buffer_.layout(prompt, size.columns);
  const size_t total = layout.rows.size(), shown = std::min(total, size.rows);
  const size_t first = std::min(layout.cursor_row - std::min(layout.cursor_row, shown / 2), total - shown);
  std::string out = cursor_row_ > 0 ? fmt::format("\x1b[{}A", cursor_row_) : "";
  out += "\r\x1b[J";
  for (size_t i = first; i < first + shown; ++i) out += (i > first ? "\r\n" : "") + layout.rows[i];
  cursor_row_ = layout.cursor_row - first;
  rows_below_ = shown - 1 - cursor_row_;
  if (rows_below_ > 0) out += fmt::format("\x1b[{}A", rows_below_);
  out += '\r';
  if (layout.cursor_column > 0) out += fmt::format("\x1b[{}C", layout.cursor_column);
  put(out);
}

void LineReader::leave_drawing() {
  put(rows_below_ > 0 ? fmt::format("\x1b[{}B\r\n", rows_below_) : "\r\n");
  rows_below_ = cursor_row_ = 0;
}

LineReader::Line LineReader::finish(Ending ending) {
  if (ending == Ending::interrupt) put("^C");
  leave_drawing();
  return {ending, buffer_.take()};
}

// A Ctrl-C that came as a signal, before the terminal was raw, counts: users cannot time it between two prompts.
LineReader::Line LineReader::read(std::string_view prompt) {
  if (!editing_) return read_plain(prompt);
  using Event = LineBuffer::Event;
  std::optional<RawTerminal> raw(std::in_place);
  draw(prompt);
  bool stale = false;
  while (true) {
    if (sys::asked_to_stop()) return finish(Ending::stop);
    if (sys::take_interrupt()) return finish(Ending::interrupt);
    if (stale && input_at_ == input_.size()) {
      draw(prompt);
      stale = false;
    }
    char byte = 0;
    if (!next_byte(byte)) {
      if (errno == EINTR) continue;
      return finish(Ending::end);
    }
    const Event event = buffer_.feed(byte);
    stale |= event == Event::edited;
    if (stale && event != Event::edited && event != Event::none) {
      draw(prompt);
      stale = false;
    }
    if (event == Event::submit) return finish(Ending::submit);
    if (event == Event::interrupt) return finish(Ending::interrupt);
    if (event == Event::end) return finish(Ending::end);
    if (event == Event::suspend) {
      leave_drawing();
      raw.reset();
      std::raise(SIGTSTP);
      raw.emplace();
      draw(prompt);
    } else if (event == Event::clear_screen) {
      put("\x1b[H\x1b[2J");
      cursor_row_ = 0;
      draw(prompt);
    }
  }
}

LineReader::Line LineReader::read_plain(std::string_view prompt) {
  put(prompt);
  std::string text;
  for (char byte = 0;;) {
    if (sys::asked_to_stop()) return {Ending::stop, {}};
    if (sys::take_interrupt()) return {Ending::interrupt, text};
    errno = 0;
    if (!next_byte(byte)) {
      if (errno == EINTR) continue;
      if (text.empty()) return {Ending::end, {}};
      return {Ending::submit, text};
    }
    if (byte == '\n') return {Ending::submit, text};
    text += byte;
  }
}

}  // namespace braid::report
