#include "sys/error.h"

#include "sys/utf8.h"

namespace braid {
namespace {

// What moves the cursor, or shows the text around it in another order: control characters, marks of direction, and the
// separators of lines and paragraphs.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (out.size() >= limit) return out + "...";
    const sys::Utf8Step step = sys::utf8_step(text, at);
    const std::string_view bytes = text.substr(at, step.length);
    if (step.kind == sys::Utf8::valid && !is_control(step.value)) {
      out += bytes;
    } else {
      for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    at += step.length;
  }
  return out;
}

std::string format_message(std::string_view where, const Message& m) {
  std::string text = fmt::format("[{}] {}", where.empty() ? "\"\"" : where, m.what);
  if (!m.got.empty()) text += "; got " + m.got;
  if (!m.expected.empty()) text += "; expected " + m.expected;
  if (!m.hint.empty()) text += "; try " + m.hint;
  for (char& ch : text) {
    if (ch == '\n' || ch == '\r') ch = ' ';
  }
  return text;
}

}  // namespace braid
