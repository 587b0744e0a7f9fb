#include "text/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "sys/utf8.h"

namespace braid::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t upper_of(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t lower_of(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t title_of(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

// Letters whose capital is several (Unicode's SpecialCasing.txt, without those of Greek with an iota below).
struct Capitals {
  char32_t letter;
  const char *upper, *title;
};
constexpr Capitals kCapitals[] = {{U'\u00DF', "SS", "Ss"},
                                  {U'\u0149', "\u02BCN", "\u02BCN"},
                                  {U'\u01F0', "J\u030C", "J\u030C"},
                                  {U'\u0390', "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
                                  {U'\u03B0', "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
                                  {U'\u0587', "\u0535\u0552", "\u0535\u0582"},
                                  {U'\u1E96', "H\u0331", "H\u0331"},
                                  {U'\u1E97', "T\u0308", "T\u0308"},
                                  {U'\u1E98', "W\u030A", "W\u030A"},
                                  {U'\u1E99', "Y\u030A", "Y\u030A"},
                                  {U'\u1E9A', "A\u02BE", "A\u02BE"},
                                  {U'\uFB00', "FF", "Ff"},
                                  {U'\uFB01', "FI", "Fi"},
                                  {U'\uFB02', "FL", "Fl"},
                                  {U'\uFB03', "FFI", "Ffi"},
                                  {U'\uFB04', "FFL", "Ffl"},
                                  {U'\uFB05', "ST", "St"},
                                  {U'\uFB06', "ST", "St"}};

const Capitals* capitals_of(char32_t c) {
  const auto* found =
      std::find_if(std::begin(kCapitals), std::end(kCapitals), [c](const Capitals& row) { return row.letter == c; });
  return found == std::end(kCapitals) ? nullptr : found;
}
// A code point of a text: [from, to) are its bytes.
struct Place {
  std::string_view bytes;
  size_t from = 0, to = 0;
};

// Unicode's Case_Ignorable: what neither makes a word nor ends one.
bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kMarks =
      U"\'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kMarks.find(c) != std::u32string_view::npos;
  }
}

// Whether letters precede a sigma and none follows. Runs of what is ignored are looked at only so far: texts of nothing
// else would take quadratic time.
bool ends_word(const Place& at) {
  constexpr int kRun = 64;
  char32_t c = 0;
  size_t pos = at.from;
  int steps = 0;
  do {
    if (pos == 0 || ++steps > kRun) return false;
    c = last_point(at.bytes, pos);
  } while (is_case_ignorable(c));
  if (!is_cased(c)) return false;
  pos = at.to;
  steps = 0;
  do {
    if (pos == at.bytes.size() || ++steps > kRun) return true;
    c = next_point(at.bytes, pos);
  } while (is_case_ignorable(c));
  return !is_cased(c);
}

void append_upper(char32_t c, const Place&, std::string& out) {
  if (const Capitals* several = capitals_of(c)) {
    out += several->upper;
  } else {
    sys::append_utf8(upper_of(c), out);
  }
}
void append_title(char32_t c, const Place&, std::string& out) {
  if (const Capitals* several = capitals_of(c)) {
    out += several->title;
  } else {
    sys::append_utf8(title_of(c), out);
  }
}
// The one capital whose small letter is two, and the one that has two.
void append_lower(char32_t c, const Place& at, std::string& out) {
  if (c == U'\u0130')
    out += "i\u0307";
  else if (c == U'\u03A3' && ends_word(at))
    out += "\u03C2";
  else
    sys::append_utf8(lower_of(c), out);
}
void append_folded(char32_t c, const Place&, std::string& out) {
  utf8proc_int32_t folded[8];
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, std::ssize(folded), UTF8PROC_CASEFOLD, nullptr);
  for (utf8proc_ssize_t i = 0; i < count; ++i) sys::append_utf8(static_cast<char32_t>(folded[i]), out);
}

// Of append(point, place, out) for each.
template <class Append>
std::string with_points(std::string_view bytes, Append append) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t from = pos;
    const char32_t c = next_point(bytes, pos);
    append(c, Place{bytes, from, pos}, out);
  }
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
bool is_digit_point(char32_t c) {
  struct Span {
    char32_t first, last;
  };
  constexpr Span kDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                              {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                              {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                              {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                              {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return is_decimal(c) || std::any_of(std::begin(kDigits), std::end(kDigits),
                                      [c](const Span& s) { return c >= s.first && c <= s.last; });
}
bool is_numeric(char32_t c) { return category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

std::string to_upper(std::string_view bytes) { return with_points(bytes, append_upper); }
std::string to_lower(std::string_view bytes) { return with_points(bytes, append_lower); }
std::string to_folded(std::string_view bytes) { return with_points(bytes, append_folded); }
std::string swap_case(std::string_view bytes) {
  return with_points(bytes, [](char32_t c, const Place& at, std::string& out) {
    (is_upper(c) ? append_lower : append_upper)(c, at, out);
  });
}
std::string to_title(std::string_view bytes) {
  return with_points(bytes, [inside = false](char32_t c, const Place& at, std::string& out) mutable {
    (std::exchange(inside, is_cased(c)) ? append_lower : append_title)(c, at, out);
  });
}
std::string to_capital(std::string_view bytes) {
  return with_points(bytes, [first = true](char32_t c, const Place& at, std::string& out) mutable {
    (std::exchange(first, false) ? append_title : append_lower)(c, at, out);
  });
}

}  // namespace braid::text::jinja
