#include "text/json_cursor.h"

#include <fmt/format.h>

#include <charconv>

#include "sys/error.h"
#include "sys/utf8.h"

namespace braid::text {
namespace {

constexpr int kDepthMax = 64;

bool blank(char ch) { return ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r'; }

}  // namespace

void JsonCursor::refuse(const std::string& what) const {
  fail(where_, {.what = fmt::format("bad JSON at byte {}: {}", at_, what),
                .got = printable(text_.substr(std::min(at_, text_.size()), 20))});
}

char JsonCursor::peek() {
  while (at_ < text_.size() && blank(text_[at_])) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonCursor::consume(char ch) {
  if (peek() != ch || at_ == text_.size()) return false;
  ++at_;
  return true;
}

void JsonCursor::expect(char ch) {
  if (!consume(ch)) refuse(fmt::format("'{}' expected", ch));
}

bool JsonCursor::more(bool& first, char close) {
  if (consume(close)) return false;
  if (!first) expect(',');
  first = false;
  return true;
}

std::string_view JsonCursor::string(std::string& scratch) {
  expect('"');
  const size_t begin = at_;
  bool escaped = false;
  size_t copied = begin;
  for (; at_ < text_.size(); ++at_) {
    const char ch = text_[at_];
    if (ch == '"') {
      ++at_;
      if (!escaped) return text_.substr(begin, at_ - 1 - begin);
      scratch += text_.substr(copied, at_ - 1 - copied);
      return scratch;
    }
    if (ch == '\\') {
      if (!escaped) scratch.clear();
      escaped = true;
      scratch += text_.substr(copied, at_ - copied);
      append_escape(scratch);
      copied = at_ + 1;
    } else if (static_cast<unsigned char>(ch) < 0x20) {
      refuse("control character in a string");
    }
  }
  refuse("unfinished string");
}

unsigned JsonCursor::hex4() {
  unsigned value = 0;
  const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != 4 || status != std::errc{} || end != digits.data() + 4) refuse("bad \\u escape");
  at_ += 4;
  return value;
}

// On the backslash; ends on the last character of the escape.
void JsonCursor::append_escape(std::string& scratch) {
  if (++at_ == text_.size()) refuse("unfinished string");
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const size_t simple = kNames.find(text_[at_]);
  if (simple != std::string_view::npos) {
    scratch += kValues[simple];
    return;
  }
  if (text_[at_] != 'u') refuse("unknown escape");
  char32_t value = hex4();
  if (value >= 0xd800 && value < 0xdc00 && text_.substr(at_ + 1, 2) == "\\u") {
    at_ += 2;
    const char32_t low = hex4();
    value = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00) : 0xd800;
  }
  if (value >= 0xd800 && value < 0xe000) refuse("half of a surrogate pair");
  sys::append_utf8(value, scratch);
}

int64_t JsonCursor::integer() {
  peek();
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (status != std::errc{}) refuse("integer expected");
  at_ = static_cast<size_t>(end - text_.data());
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) refuse("integer expected");
  return value;
}

void JsonCursor::skip_value() {
  int depth = 0;
  std::string scratch;
  do {
    const char ch = peek();
    if (ch == '"') {
      string(scratch);
    } else if (ch == '{' || ch == '[') {
      if (++depth > kDepthMax) refuse("nested too deeply");
      ++at_;
    } else if (ch == '}' || ch == ']') {
      if (--depth < 0) refuse("value expected");
      ++at_;
    } else if (at_ == text_.size()) {
      refuse("the text ends inside a value");
    } else if (ch == ',' || ch == ':') {
      if (depth == 0) refuse("value expected");
      ++at_;
    } else {  // number or word
      while (at_ < text_.size() && !blank(text_[at_]) &&
             std::string_view(",:]}[{\"").find(text_[at_]) == std::string_view::npos)
        ++at_;
    }
  } while (depth > 0);
}

}  // namespace braid::text
