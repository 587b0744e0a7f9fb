#include "report/line_buffer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "sys/utf8.h"

namespace braid::report {
namespace {

constexpr size_t kBytesMax = size_t{16} << 20;  // of one message; what is pasted beyond it is dropped
constexpr size_t kKeyBytesMax = 16;             // no terminal sends a longer sequence
constexpr std::string_view kPasteEnd = "\x1b[201~";

// As typed: line ends are \n, no control characters but tab, no invalid UTF-8.
std::string cleaned(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const sys::Utf8Step c = sys::utf8_step(text, at);
    if (c.value == '\r') {
      out += '\n';
      if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
    } else if (c.value == '\n' || c.value == '\t' || (c.value >= 0x20 && (c.value < 0x7f || c.value >= 0xa0))) {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  return out;
}

}  // namespace

std::span<const LineBuffer::Binding> LineBuffer::bindings() {
  using B = LineBuffer;
  static constexpr Binding kBindings[] = {{"\r", &B::submit},
                                          {"\n", &B::submit},
                                          {"\x1b\r", &B::new_line},
                                          {"\x03", &B::interrupt},
                                          {"\x04", &B::end_or_erase},
                                          {"\x1a", &B::suspend},
                                          {"\x0c", &B::clear_screen},
                                          {"\x1b[200~", &B::begin_paste},
                                          {"\x7f", &B::backspace},
                                          {"\b", &B::backspace},
                                          {"\x1b[3~", &B::erase_here},
                                          {"\x17", &B::erase_word},
                                          {"\x1b\x7f", &B::erase_word},
                                          {"\x1b"
                                           "d",
                                           &B::erase_word_after},
                                          {"\x15", &B::erase_to_begin},
                                          {"\x0b", &B::erase_to_end},
                                          {"\x1b[D", &B::left},
                                          {"\x1bOD", &B::left},
                                          {"\x02", &B::left},
                                          {"\x1b[C", &B::right},
                                          {"\x1bOC", &B::right},
                                          {"\x06", &B::right},
                                          {"\x1b[1;5D", &B::word_left},
                                          {"\x1b[1;3D", &B::word_left},
                                          {"\x1b"
                                           "b",
                                           &B::word_left},
                                          {"\x1b[1;5C", &B::word_right},
                                          {"\x1b[1;3C", &B::word_right},
                                          {"\x1b"
                                           "f",
                                           &B::word_right},
                                          {"\x1b[H", &B::home},
                                          {"\x1bOH", &B::home},
                                          {"\x1b[1~", &B::home},
                                          {"\x1b[7~", &B::home},
                                          {"\x01", &B::home},
                                          {"\x1b[F", &B::end},
                                          {"\x1bOF", &B::end},
                                          {"\x1b[4~", &B::end},
                                          {"\x1b[8~", &B::end},
                                          {"\x05", &B::end},
                                          {"\x1b[A", &B::older},
                                          {"\x1bOA", &B::older},
                                          {"\x10", &B::older},
                                          {"\x1b[B", &B::newer},
                                          {"\x1bOB", &B::newer},
                                          {"\x0e", &B::newer}};
  return kBindings;
}

LineBuffer::Event LineBuffer::feed(char byte) {
  if (pasting_) {
    paste_ += byte;
    if (paste_.size() > kBytesMax + kPasteEnd.size()) paste_.erase(kBytesMax, 1);
    if (!paste_.ends_with(kPasteEnd)) return Event::none;
    paste_.resize(paste_.size() - kPasteEnd.size());
    pasting_ = false;
    return insert(std::exchange(paste_, {}));
  }
  if (!pending_.empty() && pending_[0] != '\x1b' && !sys::utf8_continues(byte)) pending_.clear();  // cut short
  pending_ += byte;
  for (const Binding& binding : bindings()) {
    if (binding.keys != pending_) continue;
    pending_.clear();
    return (this->*binding.act)();
  }
  if (pending_[0] == '\x1b') {
    // Alt and a key, or CSI or SS3 up to its final byte. An unknown sequence is swallowed whole.
    const bool introduced = pending_.size() >= 2 && (pending_[1] == '[' || pending_[1] == 'O');
    const bool ended = introduced ? pending_.size() > 2 && byte >= 0x40 && byte <= 0x7e : pending_.size() >= 2;
    if (ended || pending_.size() >= kKeyBytesMax) pending_.clear();
    return Event::none;
  }
  if (sys::utf8_step(pending_, 0).kind == sys::Utf8::truncated) return Event::none;
  const std::string typed = std::exchange(pending_, {});
  return typed == "\t" ? Event::none : insert(typed);
}

std::string LineBuffer::take() {
  if (!text_.empty() && (history_.empty() || history_.back() != text_)) history_.push_back(text_);
  shown_ = history_.size();
  cursor_ = 0;
  draft_.clear();
  return std::exchange(text_, {});
}

LineBuffer::Event LineBuffer::insert(std::string_view text) {
  const std::string clean = cleaned(text).substr(0, kBytesMax - std::min(kBytesMax, text_.size()));
  if (clean.empty()) return Event::none;
  text_.insert(cursor_, clean);
  cursor_ += clean.size();
  return Event::edited;
}

size_t LineBuffer::before(size_t at) const { return at > 0 ? sys::utf8_previous(text_, at) : 0; }

size_t LineBuffer::after(size_t at) const { return at < text_.size() ? at + sys::utf8_step(text_, at).length : at; }

size_t LineBuffer::word_before() const {
  const auto space = [&](size_t i) { return std::isspace(static_cast<unsigned char>(text_[i])); };
  size_t at = cursor_;
  while (at > 0 && space(at - 1)) --at;
  while (at > 0 && !space(at - 1)) --at;
  return at;
}

size_t LineBuffer::word_after() const {
  const auto space = [&](size_t i) { return std::isspace(static_cast<unsigned char>(text_[i])); };
  size_t at = cursor_;
  while (at < text_.size() && space(at)) ++at;
  while (at < text_.size() && !space(at)) ++at;
  return at;
}

LineBuffer::Event LineBuffer::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
  return Event::edited;
}

LineBuffer::Event LineBuffer::left() { return cursor_ = before(cursor_), Event::edited; }
LineBuffer::Event LineBuffer::right() { return cursor_ = after(cursor_), Event::edited; }
LineBuffer::Event LineBuffer::word_left() { return cursor_ = word_before(), Event::edited; }
LineBuffer::Event LineBuffer::word_right() { return cursor_ = word_after(), Event::edited; }
LineBuffer::Event LineBuffer::home() { return cursor_ = 0, Event::edited; }
LineBuffer::Event LineBuffer::end() { return cursor_ = text_.size(), Event::edited; }

LineBuffer::Event LineBuffer::backspace() { return erase(before(cursor_), cursor_); }
LineBuffer::Event LineBuffer::erase_here() { return erase(cursor_, after(cursor_)); }
LineBuffer::Event LineBuffer::erase_word() { return erase(word_before(), cursor_); }
LineBuffer::Event LineBuffer::erase_word_after() { return erase(cursor_, word_after()); }
LineBuffer::Event LineBuffer::erase_to_begin() { return erase(0, cursor_); }
LineBuffer::Event LineBuffer::erase_to_end() { return erase(cursor_, text_.size()); }

LineBuffer::Event LineBuffer::show(const std::string& text) {
  text_ = text;
  cursor_ = text_.size();
  return Event::edited;
}

LineBuffer::Event LineBuffer::older() {
  if (shown_ == 0) return Event::none;
  if (shown_ == history_.size()) draft_ = text_;
  return show(history_[--shown_]);
}

LineBuffer::Event LineBuffer::newer() {
  if (shown_ == history_.size()) return Event::none;
  ++shown_;
  return show(shown_ == history_.size() ? draft_ : history_[shown_]);
}

LineBuffer::Event LineBuffer::new_line() { return insert("\n"); }
LineBuffer::Event LineBuffer::submit() { return Event::submit; }
LineBuffer::Event LineBuffer::interrupt() { return Event::interrupt; }
LineBuffer::Event LineBuffer::end_or_erase() { return text_.empty() ? Event::end : erase_here(); }
LineBuffer::Event LineBuffer::suspend() { return Event::suspend; }
LineBuffer::Event LineBuffer::clear_screen() { return Event::clear_screen; }
LineBuffer::Event LineBuffer::begin_paste() { return pasting_ = true, Event::none; }

LineBuffer::Layout LineBuffer::layout(std::string_view prompt, size_t width) const {
  Layout out{.rows = {std::string(prompt)}};
  size_t column = prompt.size();
  const auto new_row = [&](std::string begin) {
    column = begin.size();
    out.rows.push_back(std::move(begin));
  };
  for (size_t at = 0;; at += sys::utf8_step(text_, at).length) {
    const sys::Utf8Step c = at < text_.size() ? sys::utf8_step(text_, at) : sys::Utf8Step{.length = 1, .value = U' '};
    const size_t columns = c.value == '\t'   ? 2
                           : c.value == '\n' ? 0
                                             : static_cast<size_t>(utf8proc_charwidth(static_cast<int32_t>(c.value)));
    if (column + columns > width || (column == width && at == cursor_)) new_row("");
    if (at == cursor_) {
      out.cursor_row = out.rows.size() - 1;
      out.cursor_column = column;
    }
    if (at == text_.size()) break;
    if (c.value == '\n') {
      new_row(std::string(std::min(prompt.size(), width / 2), ' '));
    } else {
      out.rows.back() += c.value == '\t' ? "  " : std::string_view(text_).substr(at, c.length);
      column += columns;
    }
  }
  return out;
}

}  // namespace braid::report
