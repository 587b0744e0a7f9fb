#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <utility>

#include "sys/utf8.h"

namespace braid::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t upper_of(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t lower_of(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t title_of(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

template <class Map>
std::string with_points(std::string_view bytes, Map map) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) sys::append_utf8(map(next_point(bytes, pos)), out);
  return out;
}

}  // namespace

char32_t next_point(std::string_view bytes, size_t& pos) {
  const sys::Utf8Step step = sys::utf8_step(bytes, pos);
  pos += step.length;
  return step.kind == sys::Utf8::valid ? step.value : U'\uFFFD';
}

char32_t last_point(std::string_view bytes, size_t& pos) {
  size_t at = pos = sys::utf8_previous(bytes, pos);
  return next_point(bytes, at);
}

size_t offset_of(std::string_view bytes, int64_t points, int64_t index) {
  if (points == static_cast<int64_t>(bytes.size())) return static_cast<size_t>(index);  // ASCII
  size_t pos = 0;
  for (; index > 0; --index) {
    do ++pos;
    while (pos < bytes.size() && sys::utf8_continues(bytes[pos]));
  }
  return pos;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool is_letter(char32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_numeric(char32_t c) { return category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

std::string to_upper(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const char32_t c = next_point(bytes, pos);
    if (c == U'\u00DF') {
      out += "SS";  // the one common letter whose capital is two letters
    } else {
      sys::append_utf8(upper_of(c), out);
    }
  }
  return out;
}
std::string to_lower(std::string_view bytes) { return with_points(bytes, lower_of); }
std::string swap_case(std::string_view bytes) {
  return with_points(bytes, [](char32_t c) { return is_upper(c) ? lower_of(c) : upper_of(c); });
}
std::string to_title(std::string_view bytes) {
  return with_points(bytes, [inside = false](char32_t c) mutable {
    return std::exchange(inside, is_cased(c)) ? lower_of(c) : title_of(c);
  });
}
std::string to_capital(std::string_view bytes) {
  return with_points(
      bytes, [first = true](char32_t c) mutable { return std::exchange(first, false) ? title_of(c) : lower_of(c); });
}

}  // namespace braid::text::jinja
