#include "text/utf8.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>

namespace braid::text {

Utf8Step utf8_step(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  if (first < 0x80) return {.length = 1, .value = first};
  if (first < 0xc2 || first > 0xf4) return {.kind = Utf8::invalid, .length = 1};
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte's range keeps out overlong forms, surrogates and values past U+10FFFF.
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

bool is_ascii(std::string_view text) { return ascii_end(text, 0) == text.size(); }

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
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
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

bool is_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
  if (value == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_mark(char32_t value) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // join controls, and the circled and squared letters (Other_Alphabetic among the symbols)
      return value == 0x200c || value == 0x200d || (value >= 0x24b6 && value <= 0x24e9) ||
             (value >= 0x1f130 && value <= 0x1f149) || (value >= 0x1f150 && value <= 0x1f169) ||
             (value >= 0x1f170 && value <= 0x1f189);
  }
}

}  // namespace braid::text
