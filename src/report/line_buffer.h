// The message being typed: keys in, text and cursor out. It does not touch the terminal (line_reader.h has
// that), so that tests can type. Arrows and the Emacs keys of every shell, a history, UTF-8, and bracketed paste: what
// the terminal marks as pasted is text, including line ends. Our own, because libedit does not support bracketed paste
// and retries the read that a Ctrl-C interrupted, and readline is under the GPL.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid::report {

class LineBuffer {
 public:
  enum class Event { none, edited, submit, interrupt, end, suspend, clear_screen };
  // Takes the next byte from the keyboard. `end`: Ctrl-D on an empty line.
  Event feed(char byte);
  // The message, remembered in the history; the buffer is empty again.
  std::string take();

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // byte offset in text()

  // What the screen shows, wrapped into rows of at most `width` columns, with the cursor's position.
  struct Layout {
    std::vector<std::string> rows;
    size_t cursor_row = 0, cursor_column = 0;
  };
  Layout layout(std::string_view prompt, size_t width) const;

 private:
  struct Binding {
    std::string_view keys;
    Event (LineBuffer::*act)();
  };
  static std::span<const Binding> bindings();
  Event insert(std::string_view text);
  Event show(const std::string& text);
  size_t before(size_t at) const;  // where the character that ends at `at` begins
  size_t after(size_t at) const;
  size_t word_before() const;
  size_t word_after() const;
  Event erase(size_t begin, size_t end);

  Event left(), right(), word_left(), word_right(), home(), end();
  Event backspace(), erase_here(), erase_word(), erase_word_after(), erase_to_begin(), erase_to_end();
  Event older(), newer();
  Event new_line(), submit(), interrupt(), end_or_erase(), suspend(), clear_screen(), begin_paste();

  std::string text_;
  size_t cursor_ = 0;
  std::string pending_;  // the incomplete start of a key or of a character
  bool pasting_ = false;
  std::string paste_;
  std::vector<std::string> history_;
  size_t shown_ = 0;   // index into the history; its size: the draft
  std::string draft_;  // what was being typed before browsing the history
};

}  // namespace braid::report
