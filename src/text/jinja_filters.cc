// Filters: what follows a bar.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "sys/utf8.h"
#include "text/jinja_builtins.h"
#include "text/jinja_html.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_pretty.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"
#include "text/jinja_wrap.h"

namespace braid::text::jinja {
namespace {

// --- any value ---

Value by_default(Args& a) {
  const bool replaced = a[0].is(Kind::undefined) || (a.flag(2, false) && !truth(a[0]));
  return !replaced ? a[0] : a[1].given() ? a[1] : Value("");
}
Value string(Args& a) { return a[0].is(Kind::text) ? a[0] : Value(a.printed(0)); }
Value safe(Args& a) { return Value(a.printed(0), true); }
Value escape(Args& a) {
  return a[0].is(Kind::text) && a[0].text().safe ? a[0] : Value(escape_html(a.printed(0)), true);
}
Value force_escape(Args& a) { return Value(escape_html(a.printed(0)), true); }
Value length(Args& a) { return length_of(a[0]); }
Value attr(Args& a) {  // the keys of a dict are not attributes
  const bool key = a[0].is(Kind::dict) && !find_method(a[0], a.text(1)) && !is_mutator(a[0], a.text(1));
  return key ? Value::undefined(fmt::format("'dict object' has no attribute '{}'", a.text(1)))
             : get_attribute(a[0], a[1]);
}

// json.dumps of the reference implementation, except that ensure_ascii is off.
Value tojson(Args& a) {
  JsonStyle style{.sort_keys = a.flag(4, false), .ascii = a.flag(1, false)};
  if (a.given(2)) {
    style.indent = a[2].is(Kind::text)
                       ? a[2].str()
                       : std::string(static_cast<size_t>(checked_size(std::max<int64_t>(a.whole(2, 0), 0), 1)), ' ');
    style.between = ",";
  }
  if (a.given(3)) {
    const Values both = items_of(a[3]);
    if (both.size() != 2 || !both[0].is(Kind::text) || !both[1].is(Kind::text))
      raise_type("separators must be two strings");
    style.between = both[0].str();
    style.colon = both[1].str();
  }
  return Value(to_json(a[0], style));
}

// --- numbers ---

// Python takes an underscore between two digits, and nowhere else.
bool drop_underscores(std::string& s) {
  const auto digit = [&](size_t i) { return i < s.size() && std::isalnum(static_cast<unsigned char>(s[i])); };
  for (size_t at = s.find('_'); at != std::string::npos; at = s.find('_', at)) {
    if (at == 0 || !digit(at - 1) || !digit(at + 1)) return false;
    s.erase(at, 1);
  }
  return true;
}

std::optional<double> parse_real(const std::string& text) {
  std::string s = to_lower(strip(text, nullptr));
  if (!drop_underscores(s)) return std::nullopt;
  if (s.starts_with('+')) s.erase(0, 1);
  if (s.find('x') != std::string::npos || s.find("nan(") != std::string::npos) return std::nullopt;
  double d = 0;
  const auto got = std::from_chars(s.data(), s.data() + s.size(), d);
  if (got.ptr != s.data() + s.size() || got.ec == std::errc::invalid_argument) return std::nullopt;
  if (got.ec == std::errc::result_out_of_range) return std::strtod(s.c_str(), nullptr);  // infinity or nearly nothing
  return d;
}

Value whole_of(double d) { return Value::whole(fmt::format("{:.0f}", std::trunc(d) + 0.0)); }

Value to_int(Args& a) {
  const Value otherwise = a[1].given() ? a[1] : Value(int64_t{0});
  if (a[0].is_whole()) return a[0].integer();
  if (a[0].is(Kind::large)) return a[0];
  if (a[0].is(Kind::real)) return std::isfinite(a[0].real()) ? whole_of(a[0].real()) : otherwise;
  if (a[0].is(Kind::undefined)) raise_undefined(a[0].undefined().why);
  if (!a[0].is(Kind::text)) return otherwise;
  std::string s = strip(a[0].str(), nullptr);
  if (!drop_underscores(s)) return otherwise;
  const bool plus = s.starts_with('+') && !s.starts_with("+-");
  int64_t base = a.whole(2, 10);
  if (base < 2 || base > 36) base = 10;
  size_t from = plus;
  if (base == 16 && s.substr(from).starts_with("0x")) from += 2;
  if (base == 8 && s.substr(from).starts_with("0o")) from += 2;
  if (base == 2 && s.substr(from).starts_with("0b")) from += 2;
  int64_t value = 0;
  const auto got = std::from_chars(s.data() + from, s.data() + s.size(), value, static_cast<int>(base));
  if (got.ec == std::errc::result_out_of_range && got.ptr == s.data() + s.size()) {
    if (base != 10) raise_type("an integer beyond 64 bits");
    return Value::whole(s.substr(from));
  }
  if (got.ec == std::errc() && got.ptr == s.data() + s.size()) return value;
  const auto real = parse_real(s);
  return real && std::isfinite(*real) ? whole_of(*real) : otherwise;
}

Value to_float(Args& a) {
  if (a[0].is_number()) return a[0].real();
  if (a[0].is(Kind::undefined)) raise_undefined(a[0].undefined().why);
  const auto d = a[0].is(Kind::text) ? parse_real(a[0].str()) : std::nullopt;
  return d ? Value(*d) : a[1].given() ? a[1] : Value(0.0);
}

Value absolute(Args& a) { return less(a[0], Value(int64_t{0}), "<") ? negate(a[0]) : a[0]; }

Value round_to(Args& a) {
  const std::string method = a.given(2) ? a.text(2) : "common";
  const int64_t digits = std::clamp<int64_t>(a.whole(1, 0), -400, 400);
  if (method != "common" && method != "ceil" && method != "floor")
    raise_template("method must be common, ceil or floor");
  if (!a[0].is_number()) raise_type(fmt::format("type {} doesn't define __round__ method", type_name(a[0])));
  if (method == "common" && a[0].is(Kind::large)) return digits < 0 ? whole_of(a[0].real()) : a[0];
  if (method == "common" && a[0].is_whole() && digits >= 0) return a[0].integer();
  const double d = a[0].real(), scale = std::pow(10.0, static_cast<double>(digits));
  if (method != "common") return (method == "ceil" ? std::ceil(d * scale) : std::floor(d * scale)) / scale;
  if (!std::isfinite(d)) return d;
  if (digits < 0)
    return a[0].is_whole() ? whole_of(std::nearbyint(d * scale) / scale) : Value(std::nearbyint(d * scale) / scale);
  const std::string exact = fmt::format("{:.{}f}", d, digits);  // ties of the decimal text to even, as Python rounds
  double rounded = 0;
  std::from_chars(exact.data(), exact.data() + exact.size(), rounded);
  return rounded;
}

Value file_size(Args& a) {
  const auto read = a[0].is(Kind::text) ? parse_real(a[0].str()) : std::optional<double>();
  if (!read && !a[0].is_number()) raise_type(fmt::format("could not convert {} to float", type_name(a[0])));
  const double bytes = read ? *read : a[0].real(), base = a.flag(1, false) ? 1024 : 1000;
  if (bytes == 1) return Value("1 Byte");
  if (bytes < base) return Value(to_text(whole_of(bytes)) + " Bytes");
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) unit *= base, ++i;
  const char prefix = i == 0 && base == 1024 ? 'K' : kPrefixes[i];
  return Value(fmt::format("{:.1f} {}{}", bytes / unit, prefix, base == 1024 ? "iB" : "B"));
}

// --- text ---

Value upper(Args& a) { return Value(to_upper(a.printed(0))); }
Value lower(Args& a) { return Value(to_lower(a.printed(0))); }
Value capitalize(Args& a) { return Value(to_capital(a.printed(0))); }
Value trim(Args& a) { return Value(strip(a.printed(0), a.given(1) ? &a.text(1) : nullptr)); }
Value center(Args& a) { return Value(pad(a.printed(0), a.whole(1, 80), " ", true, true)); }
Value replace_in(Args& a) {
  return Value(replace(a.printed(0), a.printed(1), a.printed(2), a.given(3) ? a.whole(3, -1) : -1));
}
Value format(Args& a) {
  if (a.named.empty()) return Value(format_percent(a.printed(0), Value::tuple(std::move(a.rest))));
  if (!a.rest.empty()) raise_template("can't handle positional and keyword arguments at the same time");
  auto values = std::make_shared<Dict>();
  for (auto& [name, value] : a.named) values->set(Value(name), value);
  return Value(format_percent(a.printed(0), std::shared_ptr<const Dict>(std::move(values))));
}

// Of a text, or of the pairs of a dict or a list as a query.
Value url_encode(Args& a) {
  const auto quoted = [](const std::string& s, bool query) {
    constexpr std::string_view kPlain = "_.-~";
    std::string out;
    for (const char c : s) {
      if (std::isalnum(static_cast<unsigned char>(c)) || kPlain.find(c) != std::string_view::npos ||
          (c == '/' && !query))
        out += c;
      else if (c == ' ' && query)
        out += '+';
      else
        out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return out;
  };
  if (!a[0].is(Kind::dict) && !a[0].is(Kind::sequence)) return Value(quoted(a.printed(0), false));
  std::vector<std::string> parts;
  const auto add = [&](const Value& key, const Value& value) {
    parts.push_back(quoted(to_text(key), true) + "=" + quoted(to_text(value), true));
  };
  if (a[0].is(Kind::dict)) {
    for (const auto& [key, value] : a[0].dict().entries) add(key, value);
  } else {
    for (const Value& pair : items_of(a[0])) {
      const Values both = items_of(pair);
      if (both.size() != 2) raise_type("ValueError: a pair is needed for each entry of a query");
      add(both[0], both[1]);
    }
  }
  return Value(join("&", parts));
}

// A word begins after a space, a hyphen or an opening bracket, unlike in str.title.
Value title(Args& a) {
  const std::string s = to_lower(a.printed(0));
  std::string out;
  bool begins = true;
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    const char32_t c = next_point(s, pos);
    out += begins ? to_upper(s.substr(start, pos - start)) : s.substr(start, pos - start);
    begins = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return Value(std::move(out));
}

Value indent(Args& a) {
  const std::string by = a[1].is(Kind::text) ? a[1].str() : pad("", a.whole(1, 4), " ", true, false);
  const bool first = a.flag(2, false), blank = a.flag(3, false);
  if (a[0].is(Kind::undefined)) raise_undefined(a[0].undefined().why);
  std::vector<std::string> lines = split_lines(a.text(0) + "\n", false);
  checked_size(static_cast<int64_t>(lines.size()), static_cast<int64_t>(by.size()));
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == 0 ? first : blank || !lines[i].empty()) lines[i].insert(0, by);
  }
  return Value(join("\n", lines), a[0].text().safe);
}

Value truncate(Args& a) {
  const std::string& s = a.text(0);
  const int64_t most = a.whole(1, 255), leeway = a.given(4) ? a.whole(4, 5) : 5;
  const std::string end = a[3].given() ? a.text(3) : "...";
  if (most < sys::utf8_count(end) || leeway < 0)
    raise_type("AssertionError: expected a length of at least that of the end");
  if (a[0].text().length - most <= leeway) return a[0];
  const std::string kept = s.substr(0, offset_of(s, a[0].text().length, most - sys::utf8_count(end)));
  return Value((a.flag(2, false) ? kept : rsplit(kept, " ", 1)[0]) + end);
}

Value wordcount(Args& a) {
  const std::string s = a.printed(0);
  int64_t n = 0;
  bool inside = false;
  for (size_t pos = 0; pos < s.size();) {
    const char32_t c = next_point(s, pos);
    const bool word = is_letter(c) || is_numeric(c) || c == '_';
    n += word && !inside;
    inside = word;
  }
  return n;
}

// As textwrap wraps each line of it.
Value wordwrap(Args& a) {
  const std::string& s = a.text(0);
  const int64_t width = a[1].given() ? a.whole(1, 79) : 79;
  if (width <= 0) raise_type(fmt::format("ValueError: invalid width {} (must be > 0)", width));
  const std::string between = a.given(3) ? a.text(3) : "\n";
  std::vector<std::string> lines;
  for (const std::string& line : split_lines(s, false))
    lines.push_back(join(between, wrapped(line, width, a.flag(2, true), a.flag(4, true))));
  return Value(join(between, lines));
}

Value strip_html(Args& a) { return Value(strip_tags(a.printed(0))); }
Value pretty(Args& a) {
  return Value(to_pretty(a[0], [&a](int64_t bytes) { a.in.spend(1 + bytes / kBytesPerStep); }));
}

// --- sequences ---

// What an `attribute=` argument picks from an item: itself, without one; several, separated by commas, when `split`.
class Picker {
 public:
  Picker(const Value& attribute, bool fold_case, bool split_commas = false, Value fallback = {})
      : fold_case_(fold_case), many_(split_commas), fallback_(std::move(fallback)) {
    if (!attribute.given() || attribute.is(Kind::none)) return;
    if (many_ && attribute.is(Kind::text)) {
      for (std::string& part : split(attribute.str(), ",", -1)) paths_.emplace_back(std::move(part));
    } else {
      paths_.push_back(attribute);
    }
  }
  Value operator()(const Value& item) const {
    if (paths_.empty()) return folded(item);
    if (paths_.size() == 1) return folded(get_path(item, paths_[0], fallback_));
    Values all;
    for (const Value& path : paths_) all.push_back(folded(get_path(item, path, fallback_)));
    return Value::list(std::move(all));
  }

 private:
  Value folded(const Value& v) const { return fold_case_ && v.is(Kind::text) ? Value(to_lower(v.str())) : v; }
  bool fold_case_, many_;
  Value fallback_;
  Values paths_;
};

// Items in the order of their keys; equal ones stay as they are, reversed or not.
Values sorted(Args& a, const Values& items, const Picker& key, bool reverse) {
  std::vector<std::pair<Value, size_t>> order;
  int64_t weight = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    order.emplace_back(key(items[i]), i);
    weight += order.back().first.weight();
  }
  const auto log2 = static_cast<int64_t>(std::bit_width(order.size()));
  a.in.spend(log2 * (static_cast<int64_t>(order.size()) + weight / kBytesPerStep));
  std::stable_sort(order.begin(), order.end(), [reverse](const auto& x, const auto& y) {
    return reverse ? less(y.first, x.first, "<") : less(x.first, y.first, "<");
  });
  Values out;
  for (const auto& [unused, i] : order) out.push_back(items[i]);
  return out;
}

Value list(Args& a) { return Value::list(items_of(a[0])); }
Value first(Args& a) {
  Values items = items_of(a[0]);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}
Value last(Args& a) {
  Values items = items_of(a[0]);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Args& a) {
  if (a[0].is(Kind::text)) return slice(a[0], {}, {}, Value(int64_t{-1}));
  Values items = items_of(a[0]);
  std::reverse(items.begin(), items.end());
  return Value::iterator(std::move(items));
}

Value join_with(Args& a) {
  const Picker pick(a[2], false);
  std::vector<std::string> parts;
  int64_t total = 0;
  for (const Value& v : items_of(a[0])) {
    parts.push_back(to_text(pick(v)));
    total = checked_size(total + static_cast<int64_t>(parts.back().size()), 1);
  }
  return Value(join(a[1].given() ? a.printed(1) : "", parts));
}

Value sort(Args& a) {
  return Value::list(sorted(a, items_of(a[0]), Picker(a[3], !a.flag(2, false), true), a.flag(1, false)));
}

Value dictsort(Args& a) {
  const std::string by = a.given(2) ? a.text(2) : "key";
  if (by != "key" && by != "value") raise_template("You can only sort by either \"key\" or \"value\"");
  if (!a[0].is(Kind::dict)) raise_type(fmt::format("'{}' object has no attribute 'items'", type_name(a[0])));
  Values pairs;
  for (const auto& [key, value] : a[0].dict().entries) pairs.push_back(Value::tuple({key, value}));
  return Value::list(sorted(a, pairs, Picker(Value(int64_t{by == "value"}), !a.flag(1, false)), a.flag(3, false)));
}

Value items(Args& a) {
  if (a[0].is(Kind::undefined)) return Value::iterator({});
  if (!a[0].is(Kind::dict)) raise_type("Can only get item pairs from a mapping.");
  Values pairs;
  for (const auto& [key, value] : a[0].dict().entries) pairs.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(pairs));
}

Value unique(Args& a) {
  const Picker pick(a[2], !a.flag(1, false));
  a.in.spend(a[0].weight() / kBytesPerStep);
  Dict seen;
  Values out;
  for (const Value& v : items_of(a[0])) {
    const Value key = pick(v);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    out.push_back(v);
  }
  return Value::iterator(std::move(out));
}

Value extreme(Args& a, bool largest) {
  const Picker pick(a[2], !a.flag(1, false));
  const Values all = items_of(a[0]);
  a.in.spend(a[0].weight() / kBytesPerStep);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = pick(all[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    Value key = pick(all[i]);
    if (!(largest ? less(best_key, key, ">") : less(key, best_key, "<"))) continue;
    best = i;
    best_key = std::move(key);
  }
  return all[best];
}
Value min(Args& a) { return extreme(a, false); }
Value max(Args& a) { return extreme(a, true); }

Value sum(Args& a) {
  const Picker pick(a[1], false);
  Value total = a[2].given() ? a[2] : Value(int64_t{0});
  if (total.is(Kind::text)) raise_type("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& v : items_of(a[0])) {
    total = binary("+", total, pick(v));
    a.in.allocate(total.surface());
  }
  return total;
}

Value batch(Args& a) {
  const int64_t size = a.whole(1, 0);
  Values out, line;
  for (const Value& v : items_of(a[0])) {
    if (static_cast<int64_t>(line.size()) == size) out.push_back(Value::list(std::exchange(line, {})));
    line.push_back(v);
  }
  if (!line.empty()) {
    const auto missing = size - static_cast<int64_t>(line.size());
    if (a.given(2) && missing > 0) {
      checked_size(missing, static_cast<int64_t>(sizeof(Value)));
      line.insert(line.end(), static_cast<size_t>(missing), a[2]);
    }
    out.push_back(Value::list(std::move(line)));
  }
  return Value::iterator(std::move(out));
}

Value slice_up(Args& a) {
  const Values all = items_of(a[0]);
  const int64_t slices = a.whole(1, 0), length = std::ssize(all);
  if (slices == 0) raise_type("ZeroDivisionError: integer division or modulo by zero");
  checked_size(std::max<int64_t>(slices, 0), 4 * static_cast<int64_t>(sizeof(Value)));
  Values out;
  for (int64_t i = 0, from = 0; i < slices; ++i) {
    const bool longer = i < length % slices;
    const int64_t to = from + length / slices + longer;
    Values part(all.begin() + from, all.begin() + to);
    if (a.given(2) && !longer) part.push_back(a[2]);
    out.push_back(Value::list(std::move(part)));
    from = to;
  }
  return Value::iterator(std::move(out));
}

Value group_by(Args& a) {
  const Picker key(a[1], !a.flag(3, false), false, a.given(2) ? a[2] : Value()),
      shown(a[1], false, false, a.given(2) ? a[2] : Value());
  Values out, group;
  Value current;
  const auto finish = [&] {
    Value name = shown(group[0]);
    out.push_back(Value::sequence({std::move(name), Value::list(std::exchange(group, {}))}, Shape::tuple, kGroup));
  };
  for (const Value& v : sorted(a, items_of(a[0]), key, false)) {
    Value k = key(v);
    if (!group.empty() && !equal(k, current)) finish();
    current = std::move(k);
    group.push_back(v);
  }
  if (!group.empty()) finish();
  return Value::list(std::move(out));
}

// --- filters and tests over sequences ---

// The reference checks `if value:` first, so that none, undefined and 0 give nothing whatever the arguments are.
Value map(Args& a) {
  Values out;
  if (!truth(a[0])) return Value::iterator(std::move(out));
  if (a.rest.empty() && !a.named.empty() && a.named[0].first == "attribute") {
    const Value fallback = a.named.size() > 1 && a.named[1].first == "default" ? a.named[1].second : Value();
    for (const Value& v : items_of(a[0])) out.push_back(get_path(v, a.named[0].second, fallback));
    return Value::iterator(std::move(out));
  }
  if (a.rest.empty() || !a.rest[0].is(Kind::text)) raise_template("map requires a filter argument");
  const Builtin* filter = find_filter(a.rest[0].str());
  if (filter == nullptr) raise_template(fmt::format("No filter named '{}'.", printable(a.rest[0].str())));
  for (const Value& v : items_of(a[0])) {
    CallArgs args{{v}, a.named};
    args.positional.insert(args.positional.end(), a.rest.begin() + 1, a.rest.end());
    out.push_back(run_builtin(*filter, a.in, std::move(args)));
  }
  return Value::iterator(std::move(out));
}

Value selected(Args& a, bool by_attribute, bool wanted) {
  if (!truth(a[0])) return Value::iterator({});
  if (by_attribute && a.rest.empty()) raise_template("Missing parameter for attribute name");
  const Value attribute = by_attribute ? a.rest[0] : Value();
  const size_t at = by_attribute;
  const Builtin* test = nullptr;
  if (a.rest.size() > at) {
    test = a.rest[at].is(Kind::text) ? find_test(a.rest[at].str()) : nullptr;
    if (test == nullptr) raise_template(fmt::format("No test named '{}'.", printable(to_text(a.rest[at]))));
  }
  Values out;
  for (const Value& v : items_of(a[0])) {
    a.in.spend(1);
    const Value subject = by_attribute ? get_path(v, attribute, {}) : v;
    bool holds = truth(subject);
    if (test != nullptr) {
      CallArgs args{{subject}, a.named};
      args.positional.insert(args.positional.end(), a.rest.begin() + static_cast<std::ptrdiff_t>(at) + 1, a.rest.end());
      holds = truth(run_builtin(*test, a.in, std::move(args)));
    }
    if (holds == wanted) out.push_back(v);
  }
  return Value::iterator(std::move(out));
}
Value select(Args& a) { return selected(a, false, true); }
Value reject(Args& a) { return selected(a, false, false); }
Value select_attr(Args& a) { return selected(a, true, true); }
Value reject_attr(Args& a) { return selected(a, true, false); }

constexpr Builtin kFilters[] = {
    {"abs", "value", absolute},
    {"attr", "value name", attr},
    {"batch", "value linecount fill_with?", batch},
    {"capitalize", "value", capitalize},
    {"center", "value width?", center},
    {"count", "value", length},
    {"d", "value default_value? boolean?", by_default},
    {"default", "value default_value? boolean?", by_default},
    {"dictsort", "value case_sensitive? by? reverse?", dictsort},
    {"e", "value", escape},
    {"escape", "value", escape},
    {"filesizeformat", "value binary?", file_size},
    {"first", "value", first},
    {"float", "value default?", to_float},
    {"forceescape", "value", force_escape},
    {"format", "value * **", format},
    {"groupby", "value attribute default? case_sensitive?", group_by},
    {"indent", "value width? first? blank?", indent},
    {"int", "value default? base?", to_int},
    {"items", "value", items},
    {"join", "value d? attribute?", join_with},
    {"last", "value", last},
    {"length", "value", length},
    {"list", "value", list},
    {"lower", "value", lower},
    {"map", "value * **", map},
    {"max", "value case_sensitive? attribute?", max},
    {"min", "value case_sensitive? attribute?", min},
    {"pprint", "value", pretty},
    {"reject", "value * **", reject},
    {"rejectattr", "value * **", reject_attr},
    {"replace", "value old new count?", replace_in},
    {"reverse", "value", reverse},
    {"round", "value precision? method?", round_to},
    {"safe", "value", safe},
    {"select", "value * **", select},
    {"selectattr", "value * **", select_attr},
    {"slice", "value slices fill_with?", slice_up},
    {"sort", "value reverse? case_sensitive? attribute?", sort},
    {"string", "value", string},
    {"striptags", "value", strip_html},
    {"sum", "value attribute? start?", sum},
    {"title", "value", title},
    {"tojson", "value ensure_ascii? indent? separators? sort_keys?", tojson},
    {"trim", "value chars?", trim},
    {"truncate", "value length? killwords? end? leeway?", truncate},
    {"unique", "value case_sensitive? attribute?", unique},
    {"upper", "value", upper},
    {"urlencode", "value", url_encode},
    {"wordcount", "value", wordcount},
    {"wordwrap", "value width? break_long_words? wrapstring? break_on_hyphens?", wordwrap},
};

}  // namespace

const Builtin* find_filter(std::string_view name) { return find_row(kFilters, name); }

}  // namespace braid::text::jinja
