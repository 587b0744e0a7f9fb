// Messages typed at the terminal, edited and drawn on standard error, so that standard output can be redirected. If
// standard input or error is not a terminal, or is a dumb one, lines are read as they are.
#pragma once
#include <string>
#include <string_view>

#include "report/line_buffer.h"

namespace braid::report {

class LineReader {
 public:
  LineReader();
  enum class Ending { submit, interrupt, end, stop };
  struct Line {
    Ending ending;
    std::string text;  // interrupt: the discarded text
  };
  // Waits for a message. The terminal is raw only inside this call. A Ctrl-C noted by sys::catch_interrupts since it
  // was last taken ends the call as one typed at the prompt does, and sys::asked_to_stop() ends it with `stop`.
  Line read(std::string_view prompt);

 private:
  Line read_plain(std::string_view prompt);
  bool next_byte(char& byte);
  void draw(std::string_view prompt);
  void leave_drawing();
  Line finish(Ending ending);

  bool editing_;
  LineBuffer buffer_;
  std::string input_;  // read from the terminal, not yet fed
  size_t input_at_ = 0;
  size_t rows_below_ = 0, cursor_row_ = 0;  // of what is drawn: rows below the cursor, the cursor's row from the top
};

}  // namespace braid::report
