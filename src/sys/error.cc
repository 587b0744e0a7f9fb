#include "sys/error.h"

namespace braid {

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (char ch : text) {
    const auto byte = static_cast<unsigned char>(ch);
    if (out.size() >= limit) return out + "...";
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += ch;
    }
  }
  return out;
}

std::string format_message(std::string_view where, const Message& m) {
  std::string text = fmt::format("[{}] {}", where, m.what);
  if (!m.got.empty()) text += "; got " + m.got;
  if (!m.expected.empty()) text += "; expected " + m.expected;
  if (!m.hint.empty()) text += "; try " + m.hint;
  for (char& ch : text) {
    if (ch == '\n' || ch == '\r') ch = ' ';
  }
  return text;
}

}  // namespace braid
