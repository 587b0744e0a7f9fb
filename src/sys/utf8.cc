#include "sys/utf8.h"

#include <algorithm>
#include <cstring>

namespace braid::sys {

Utf8Step utf8_step(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  if (first < 0x80) return {.length = 1, .value = first};
  if (first < 0xc2 || first > 0xf4) return {.kind = Utf8::invalid, .length = 1};
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values past U+10FFFF.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  char32_t value = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {.kind = Utf8::truncated, .length = i};
    const unsigned next = byte(at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xbf)) return {.kind = Utf8::invalid, .length = i};
    value = value << 6 | (next & 0x3f);
  }
  return {.length = length, .value = value};
}

namespace {

// Length of the ASCII run from `at`, eight bytes at a time.
size_t ascii_end(std::string_view text, size_t at) {
  for (uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

size_t utf8_previous(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && utf8_continues(text[at]));
  return at;
}

int64_t utf8_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !utf8_continues(byte); });
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = ascii_end(text, 0);
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8::valid) return at;
    at += step.length;
    if (step.length == 1) at = ascii_end(text, at);
  }
  return at;
}

void append_utf8(char32_t value, std::string& out) {
  if (value < 0x80) {
    out += static_cast<char>(value);
    return;
  }
  const int length = value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
  out += static_cast<char>(((0xf00 >> length) & 0xff) | (value >> (6 * (length - 1))));
  for (int i = length - 2; i >= 0; --i) out += static_cast<char>(0x80 | ((value >> (6 * i)) & 0x3f));
}

size_t append_lossy(std::string_view bytes, bool more, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t good = utf8_valid_prefix(bytes.substr(at));
    out.append(bytes.substr(at, good));
    at += good;
    if (at == bytes.size()) break;
    const Utf8Step step = utf8_step(bytes, at);
    if (step.kind == Utf8::truncated && more) break;
    out.append(kReplacement);
    at += step.length;
  }
  return at;
}

}  // namespace braid::sys
