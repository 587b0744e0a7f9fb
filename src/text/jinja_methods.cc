// Methods of str, list, tuple, dict and `loop`. Those that change a list or a dict are left out: the sandbox hides
// them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "sys/utf8.h"
#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

using Texts = std::vector<std::string>;

// --- str: a text marked safe stays safe ---

Value like(const Args& a, std::string s) { return Value(std::move(s), a[0].text().safe); }

Value strip_with(Args& a, bool left, bool right) {
  return like(a, strip(a.text(0), a.given(1) ? &a.text(1) : nullptr, left, right));
}
Value str_strip(Args& a) { return strip_with(a, true, true); }
Value str_lstrip(Args& a) { return strip_with(a, true, false); }
Value str_rstrip(Args& a) { return strip_with(a, false, true); }

Value str_upper(Args& a) { return like(a, to_upper(a.text(0))); }
Value str_lower(Args& a) { return like(a, to_lower(a.text(0))); }
Value str_casefold(Args& a) { return like(a, to_folded(a.text(0))); }
Value str_title(Args& a) { return like(a, to_title(a.text(0))); }
Value str_capitalize(Args& a) { return like(a, to_capital(a.text(0))); }
Value str_swapcase(Args& a) { return like(a, swap_case(a.text(0))); }

const std::string& separator(const Args& a) {
  static const std::string kWhitespace;
  if (!a.given(1)) return kWhitespace;
  if (a.text(1).empty()) raise_type("ValueError: empty separator");
  return a.text(1);
}
Value parts_of(const Args& a, Texts parts) { return texts(std::move(parts), a[0].text().safe); }
Value str_split(Args& a) { return parts_of(a, split(a.text(0), separator(a), a.whole(2, -1))); }
Value str_rsplit(Args& a) { return parts_of(a, rsplit(a.text(0), separator(a), a.whole(2, -1))); }
Value str_splitlines(Args& a) { return parts_of(a, split_lines(a.text(0), a.flag(1, false))); }

Value str_partition(Args& a) {
  const std::string &s = a.text(0), &sep = separator(a);
  const size_t at = find_text(s, sep);
  if (at == std::string::npos) return Value::tuple({a[0], like(a, ""), like(a, "")});
  return Value::tuple({like(a, s.substr(0, at)), like(a, sep), like(a, s.substr(at + sep.size()))});
}
Value str_rpartition(Args& a) {
  const std::string &s = a.text(0), &sep = separator(a);
  const size_t at = rfind_text(s, sep);
  if (at == std::string::npos) return Value::tuple({like(a, ""), like(a, ""), a[0]});
  return Value::tuple({like(a, s.substr(0, at)), like(a, sep), like(a, s.substr(at + sep.size()))});
}

Value str_replace(Args& a) { return like(a, replace(a.text(0), a.text(1), a.text(2), a.whole(3, -1))); }

Value str_join(Args& a) {
  Texts parts;
  for (const Value& v : items_of(a[1])) {
    if (!v.is(Kind::text))
      raise_type(fmt::format("sequence item {}: expected str instance, {} found", parts.size(), type_name(v)));
    parts.push_back(v.str());
  }
  return like(a, join(a.text(0), parts));
}

// The part of a[0] between the code points a[from] and a[from + 1], and where it begins; nullopt when there is no such
// part.
struct Window {
  std::string_view text;
  int64_t start = 0;
};
std::optional<Window> window(const Args& a, size_t from) {
  const int64_t length = a[0].text().length;
  const auto place = [&](size_t i, int64_t fallback) {
    const int64_t at = a.given(i) ? a.whole(i, 0) : fallback;
    return std::clamp<int64_t>(at < 0 ? at + length : at, 0, length + 1);
  };
  const int64_t start = place(from, 0), stop = std::min(place(from + 1, length), length);
  if (start > stop) return std::nullopt;
  const std::string& s = a.text(0);
  const size_t first = offset_of(s, length, start), last = offset_of(s, length, stop);
  return Window{std::string_view(s).substr(first, last - first), start};
}

// The prefix may be a tuple of several.
Value affix(Args& a, bool (*holds)(std::string_view, std::string_view)) {
  const auto part = window(a, 2);
  const Values several = a[1].is(Shape::tuple) ? a[1].sequence().items : Values{a[1]};
  return std::any_of(several.begin(), several.end(), [&](const Value& v) {
    if (!v.is(Kind::text))
      raise_type(fmt::format("startswith first arg must be str or a tuple of str, not {}", type_name(v)));
    return part && holds(part->text, v.str());
  });
}
Value str_startswith(Args& a) {
  return affix(a, [](std::string_view s, std::string_view prefix) { return s.starts_with(prefix); });
}
Value str_endswith(Args& a) {
  return affix(a, [](std::string_view s, std::string_view suffix) { return s.ends_with(suffix); });
}
Value str_removeprefix(Args& a) {
  return like(a, a.text(0).starts_with(a.text(1)) ? a.text(0).substr(a.text(1).size()) : a.text(0));
}
Value str_removesuffix(Args& a) {
  return like(a, a.text(0).ends_with(a.text(1)) ? a.text(0).substr(0, a.text(0).size() - a.text(1).size()) : a.text(0));
}

int64_t search(Args& a, bool last) {
  const auto part = window(a, 2);
  const std::string& wanted = a.text(1);
  if (!part) return -1;
  const size_t at = last ? rfind_text(part->text, wanted) : find_text(part->text, wanted);
  return at == std::string_view::npos ? -1 : part->start + sys::utf8_count(part->text.substr(0, at));
}
Value found(int64_t at) {
  if (at < 0) raise_type("ValueError: substring not found");
  return at;
}
Value str_find(Args& a) { return search(a, false); }
Value str_rfind(Args& a) { return search(a, true); }
Value str_index(Args& a) { return found(search(a, false)); }
Value str_rindex(Args& a) { return found(search(a, true)); }

Value str_count(Args& a) {
  const auto part = window(a, 2);
  const std::string& wanted = a.text(1);
  if (!part) return int64_t{0};
  if (wanted.empty()) return sys::utf8_count(part->text) + 1;
  int64_t n = 0;
  for (size_t at = find_text(part->text, wanted); at != std::string_view::npos; ++n) {
    at = find_text(part->text, wanted, at + wanted.size());
  }
  return n;
}

Value pad_with(Args& a, bool left, bool right) {
  const std::string fill = a.given(2) ? a.text(2) : " ";
  if (sys::utf8_count(fill) != 1) raise_type("The fill character must be exactly one character long");
  return like(a, pad(a.text(0), a.whole(1, 0), fill, left, right));
}
Value str_center(Args& a) { return pad_with(a, true, true); }
Value str_ljust(Args& a) { return pad_with(a, false, true); }
Value str_rjust(Args& a) { return pad_with(a, true, false); }
Value str_zfill(Args& a) {
  const std::string& s = a.text(0);
  const bool sign = s.starts_with('-') || s.starts_with('+');
  return like(a, s.substr(0, sign) + pad(s.substr(sign), a.whole(1, 0) - sign, "0", true, false));
}

Value all_points(Args& a, bool (*holds)(char32_t)) {
  const std::string& s = a.text(0);
  for (size_t pos = 0; pos < s.size();) {
    if (!holds(next_point(s, pos))) return false;
  }
  return !s.empty();
}
Value str_isspace(Args& a) { return all_points(a, is_space); }
Value str_isalpha(Args& a) { return all_points(a, is_letter); }
Value str_isdigit(Args& a) { return all_points(a, is_digit_point); }
Value str_isdecimal(Args& a) { return all_points(a, is_decimal); }
Value str_isnumeric(Args& a) { return all_points(a, is_numeric); }
Value str_isalnum(Args& a) {
  return all_points(a, [](char32_t c) { return is_letter(c) || is_numeric(c); });
}
Value str_isascii(Args& a) { return a[0].text().length == static_cast<int64_t>(a.text(0).size()); }
Value cased(Args& a, const char* test) {
  Args same{.in = a.in, .at = {a[0]}};
  return find_test(test)->run(same);
}
Value str_isupper(Args& a) { return cased(a, "upper"); }
Value str_islower(Args& a) { return cased(a, "lower"); }

Value str_format(Args& a) { return like(a, format_braces(a.text(0), {std::move(a.rest), std::move(a.named)})); }

constexpr Builtin kText[] = {
    {"strip", "self chars?", str_strip},
    {"lstrip", "self chars?", str_lstrip},
    {"rstrip", "self chars?", str_rstrip},
    {"split", "self sep? maxsplit?", str_split},
    {"rsplit", "self sep? maxsplit?", str_rsplit},
    {"splitlines", "self keepends?", str_splitlines},
    {"partition", "self sep", str_partition},
    {"rpartition", "self sep", str_rpartition},
    {"replace", "self old new count?", str_replace},
    {"join", "self iterable", str_join},
    {"startswith", "self prefix start? end?", str_startswith},
    {"endswith", "self suffix start? end?", str_endswith},
    {"removeprefix", "self prefix", str_removeprefix},
    {"removesuffix", "self suffix", str_removesuffix},
    {"find", "self sub start? end?", str_find},
    {"rfind", "self sub start? end?", str_rfind},
    {"index", "self sub start? end?", str_index},
    {"rindex", "self sub start? end?", str_rindex},
    {"count", "self sub start? end?", str_count},
    {"upper", "self", str_upper},
    {"lower", "self", str_lower},
    {"casefold", "self", str_casefold},
    {"title", "self", str_title},
    {"capitalize", "self", str_capitalize},
    {"swapcase", "self", str_swapcase},
    {"center", "self width fillchar?", str_center},
    {"ljust", "self width fillchar?", str_ljust},
    {"rjust", "self width fillchar?", str_rjust},
    {"zfill", "self width", str_zfill},
    {"isspace", "self", str_isspace},
    {"isalpha", "self", str_isalpha},
    {"isdigit", "self", str_isdigit},
    {"isdecimal", "self", str_isdecimal},
    {"isnumeric", "self", str_isnumeric},
    {"isalnum", "self", str_isalnum},
    {"isascii", "self", str_isascii},
    {"isupper", "self", str_isupper},
    {"islower", "self", str_islower},
    {"format", "self * **", str_format},
};

// --- list and tuple ---

Value list_index(Args& a) {
  const Values& items = a[0].sequence().items;
  a.in.spend(a[0].weight() / kBytesPerStep);
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], a[1])) return static_cast<int64_t>(i);
  }
  raise_type("ValueError: value is not in list");
}
Value list_count(Args& a) {
  const Values& items = a[0].sequence().items;
  a.in.spend(a[0].weight() / kBytesPerStep);
  return static_cast<int64_t>(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return equal(v, a[1]); }));
}
Value copy(Args& a) { return a[0]; }  // values are immutable

constexpr Builtin kList[] = {
    {"index", "self value", list_index},
    {"count", "self value", list_count},
    {"copy", "self", copy},
};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

// --- dict ---

Value dict_get(Args& a) {
  const Value* found = a[0].dict().find(a[1]);
  return found != nullptr ? *found : a[2].given() ? a[2] : Value::none();
}
Value dict_view(Args& a, Shape shape) {
  Values items;
  for (const auto& [key, value] : a[0].dict().entries) {
    items.push_back(shape == Shape::keys ? key : shape == Shape::values ? value : Value::tuple({key, value}));
  }
  return Value::sequence(std::move(items), shape);
}
Value dict_keys(Args& a) { return dict_view(a, Shape::keys); }
Value dict_values(Args& a) { return dict_view(a, Shape::values); }
Value dict_items(Args& a) { return dict_view(a, Shape::items); }

constexpr Builtin kDict[] = {
    {"get", "self key default?", dict_get}, {"keys", "self", dict_keys}, {"values", "self", dict_values},
    {"items", "self", dict_items},          {"copy", "self", copy},
};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

// --- loop ---

Value loop_cycle(Args& a) {
  if (a.rest.empty()) raise_type("no items for cycling given");
  return a.rest[static_cast<size_t>(a[0].loop().index0) % a.rest.size()];
}
Value loop_changed(Args& a) {
  Value now = Value::tuple(std::move(a.rest));
  Value& before = a[0].loop().changed;
  a.in.spend(now.weight() / kBytesPerStep);
  if (before.given() && equal(before, now)) return false;
  before = std::move(now);
  return true;
}

constexpr Builtin kLoop[] = {
    {"cycle", "self *", loop_cycle},
    {"changed", "self *", loop_changed},
};

}  // namespace

const Builtin* find_method(const Value& object, std::string_view name) {
  if (object.is(Kind::text)) return find_row(kText, name);
  if (object.is(Kind::dict)) return find_row(kDict, name);
  if (object.is(Shape::list)) return find_row(kList, name);
  if (object.is(Shape::tuple)) return name == "copy" ? nullptr : find_row(kList, name);
  if (object.is(Kind::loop)) return find_row(kLoop, name);
  return nullptr;
}

bool is_mutator(const Value& object, std::string_view name) {
  const auto among = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return object.is(Shape::list) ? among(kListMutators) : object.is(Kind::dict) && among(kDictMutators);
}

}  // namespace braid::text::jinja
