// The % operator and str.format: both reduce to one field specification, that of Python's format().
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sys/utf8.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^, or = for padding after the sign
  char sign = '-';    // - + or space
  bool alternate = false, commas = false;
  int64_t width = 0, precision = -1;
  char type = '\0';
};

constexpr int64_t kPrecisionMax = 400;  // digits; a double has at most about 770, of which nobody prints half

int64_t read_number(std::string_view s, size_t& at) {
  int64_t n = 0;
  for (; at < s.size() && s[at] >= '0' && s[at] <= '9'; ++at) n = std::min(n * 10 + (s[at] - '0'), kWeightMax + 1);
  return n;
}

// Without a type letter: as %g, but in fixed notation always with a fraction, so from one digit less on as 1e+01.
std::string plain_real(double d, int precision) {
  if (!std::isfinite(d)) return real_text(d);
  const std::string scientific = fmt::format("{:.{}e}", d, precision - 1);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent >= -4 && exponent < precision - 1) {
    std::string fixed = fmt::format("{:.{}g}", d, precision);
    return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
  }
  const size_t e = scientific.find('e');
  std::string digits = scientific.substr(0, e);
  if (digits.find('.') != std::string::npos) digits.erase(digits.find_last_not_of(".0") + 1);
  return digits + scientific.substr(e);
}

std::string digits_of(const Value& v, const Spec& spec, bool& negative) {
  const auto precision = static_cast<int>(std::min(spec.precision < 0 ? 6 : spec.precision, kPrecisionMax));
  if (v.is(Kind::large) &&
      (spec.type == '\0' || std::string_view("dixXob").find(spec.type) != std::string_view::npos)) {
    if (spec.type != '\0' && spec.type != 'd' && spec.type != 'i') raise_type("an integer beyond 64 bits");
    negative = v.digits()[0] == '-';
    return v.digits().substr(negative);
  }
  if (v.is_whole() && (spec.type == '\0' || std::string_view("dixXob").find(spec.type) != std::string_view::npos)) {
    negative = v.integer() < 0;
    const uint64_t n = negative ? 0 - static_cast<uint64_t>(v.integer()) : static_cast<uint64_t>(v.integer());
    const std::string prefix =
        spec.alternate && spec.type != '\0' && spec.type != 'd' ? std::string("0") + spec.type : "";
    switch (spec.type) {
      case 'x':
        return prefix + fmt::format("{:x}", n);
      case 'X':
        return prefix + fmt::format("{:X}", n);
      case 'o':
        return prefix + fmt::format("{:o}", n);
      case 'b':
        return prefix + fmt::format("{:b}", n);
      default:
        return fmt::format("{}", n);
    }
  }
  negative = std::signbit(v.real());
  const double d = std::abs(v.real());
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", d, precision);
    case 'E':
      return fmt::format("{:.{}E}", d, precision);
    case 'f':
      return fmt::format("{:.{}f}", d, precision);
    case 'F':
      return fmt::format("{:.{}F}", d, precision);
    case '%':
      return fmt::format("{:.{}f}%", d * 100, precision);
    case 'G':
      return fmt::format("{:.{}G}", d, std::max(precision, 1));
    case 'g':
      return fmt::format("{:.{}g}", d, std::max(precision, 1));
    default:
      return spec.precision < 0 ? real_text(d) : plain_real(d, std::max(precision, 1));
  }
}

std::string with_commas(std::string digits) {
  size_t end = 0;
  while (end < digits.size() && std::isdigit(static_cast<unsigned char>(digits[end]))) ++end;
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string padded(const std::string& s, const Spec& spec, char align) {
  if (spec.width > kWeightMax) raise_type("a field is too wide");
  return align == '^' ? [&] {
    const int64_t missing = std::max<int64_t>(spec.width - sys::utf8_count(s), 0);
    return pad(pad(s, spec.width - (missing - missing / 2), spec.fill, true, false), spec.width, spec.fill, false, true);
  }() : pad(s, spec.width, spec.fill, align == '>', align == '<');
}

std::string number(const Value& v, const Spec& spec) {
  bool negative = false;
  std::string digits = digits_of(v, spec, negative);
  if (spec.commas) digits = with_commas(std::move(digits));
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align != '=') return padded(sign + digits, spec, spec.align == '\0' ? '>' : spec.align);
  Spec rest = spec;
  rest.width -= static_cast<int64_t>(sign.size());
  return sign + padded(digits, rest, '>');
}

std::string text(std::string s, const Spec& spec) {
  if (spec.precision >= 0 && spec.precision < sys::utf8_count(s))
    s.resize(offset_of(s, sys::utf8_count(s), spec.precision));
  return padded(s, spec, spec.align == '\0' ? '<' : spec.align);
}

// [[fill]align][sign][#][0][width][,][.precision][type]
Spec read_spec(std::string_view s) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t at = 0, after = 0;
  if (!s.empty()) next_point(s, after);
  if (after > 0 && after < s.size() && is_align(s[after])) {
    spec.fill = std::string(s.substr(0, after));
    spec.align = s[after];
    at = after + 1;
  } else if (!s.empty() && is_align(s[0])) {
    spec.align = s[at++];
  }
  const auto skip = [&](char c) { return at < s.size() && s[at] == c && ++at > 0; };
  for (const char c : {'+', '-', ' '}) {
    if (skip(c)) spec.sign = c;
  }
  spec.alternate = skip('#');
  if (skip('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(s, at);
  spec.commas = skip(',');
  if (skip('.')) spec.precision = read_number(s, at);
  if (at < s.size()) spec.type = s[at++];
  if (at != s.size()) raise_type("ValueError: Invalid format specifier");
  return spec;
}

std::string format_value(const Value& v, std::string_view specification) {
  if (!specification.empty() && !v.is_number() && !v.is(Kind::text))
    raise_type(fmt::format("unsupported format string passed to {}.__format__", type_name(v)));
  const Spec spec = read_spec(specification);
  const bool numeric = spec.type != '\0' && spec.type != 's';
  if (numeric && !v.is_number())
    raise_type(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(v)));
  const bool as_number = numeric || v.is(Kind::integer) || v.is(Kind::large) || v.is(Kind::real) ||
                         (v.is(Kind::boolean) && !specification.empty());
  if (!as_number || spec.type == 's') return text(to_text(v), spec);
  constexpr std::string_view kTypes = "dxXobeEfFgG%n";
  if (numeric && kTypes.find(spec.type) == std::string_view::npos)
    raise_type(fmt::format("Unknown format code '{}'", spec.type));
  if (v.is(Kind::real) && std::string_view("dxXob").find(spec.type) != std::string_view::npos && spec.type != '\0') {
    raise_type(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
  }
  return number(v, spec);
}

}  // namespace

// After a percent sign.
static void check_number(char type, const Value& value) {
  if (!value.is_number()) raise_type(fmt::format("%{} format: a number is required, not {}", type, type_name(value)));
  if (value.is(Kind::real) && (type == 'x' || type == 'X' || type == 'o'))
    raise_type(fmt::format("%{} format: an integer is required, not float", type));
}

std::string format_percent(const std::string& format, const Value& values) {
  const bool several = values.is(Shape::tuple);
  size_t used = 0;
  std::string out;
  const auto next = [&]() -> Value {
    if (!several) return used++ == 0 ? values : (raise_type("not enough arguments for format string"), Value());
    if (used >= values.sequence().items.size()) raise_type("not enough arguments for format string");
    return values.sequence().items[used++];
  };
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      const size_t end = std::min(format.find('%', at), format.size());
      out.append(format, at, end - at);
      at = end;
      continue;
    }
    ++at;
    Spec spec;
    Value value;
    if (at < format.size() && format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == std::string::npos) raise_type("ValueError: incomplete format key");
      if (!values.is(Kind::dict)) raise_type("format requires a mapping");
      const Value* found = values.dict().find(Value(format.substr(at + 1, close - at - 1)));
      if (found == nullptr) raise_type("KeyError: a key of the format string is missing");
      value = *found;
      used = 1;
      at = close + 1;
    }
    for (; at < format.size() && std::string_view("-+ 0#").find(format[at]) != std::string_view::npos; ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+' || (format[at] == ' ' && spec.sign != '+')) spec.sign = format[at];
      if (format[at] == '#') spec.alternate = true;
      if (format[at] == '0' && spec.align == '\0') {
        spec.align = '=';
        spec.fill = "0";
      }
    }
    if (spec.align == '<') spec.fill = " ";
    spec.width = read_number(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = read_number(format, ++at);
    if (at >= format.size()) raise_type("ValueError: incomplete format");
    const char type = format[at++];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (!value.given()) value = next();
    if (type == 's' || type == 'r' || type == 'a') {
      if (spec.align == '=') spec.align = '>', spec.fill = " ";
      if (spec.align == '\0') spec.align = '>';
      out += text(type == 's' ? to_text(value) : to_repr(value), spec);
    } else if (std::string_view("diuxXoeEfFgG").find(type) != std::string_view::npos) {
      check_number(type, value);
      spec.type = type == 'u' || type == 'i' ? 'd' : type;
      const bool truncates = spec.type == 'd' && value.is(Kind::real);
      if (truncates && !std::isfinite(value.real())) raise_type("cannot convert float infinity or NaN to integer");
      out += number(truncates ? Value::whole(fmt::format("{:.0f}", std::trunc(value.real()) + 0.0)) : value, spec);
    } else {
      raise_type(fmt::format("ValueError: unsupported format character in '{}'", printable(format)));
    }
    checked_size(static_cast<int64_t>(out.size()), 1);
  }
  const bool all_used =
      several ? used == values.sequence().items.size() : used > 0 || values.is(Kind::dict) || values.is(Shape::list);
  if (!all_used) raise_type("not all arguments converted during string formatting");
  return out;
}

std::string format_braces(const std::string& format, const CallArgs& args) {
  std::string out;
  size_t automatic = 0;
  const auto lookup = [&](std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, end);
    Value v;
    size_t digits = 0;
    const int64_t index = read_number(name, digits);
    if (digits == name.size()) {
      const size_t i = name.empty() ? automatic++ : static_cast<size_t>(index);
      if (i >= args.positional.size())
        raise_type("IndexError: Replacement index out of range for positional args tuple");
      v = args.positional[i];
    } else {
      const auto it =
          std::find_if(args.named.begin(), args.named.end(), [&](const auto& a) { return a.first == name; });
      if (it == args.named.end()) raise_type("KeyError: a field of the format string is missing");
      v = it->second;
    }
    for (size_t at = end; at < field.size();) {
      const bool bracket = field[at] == '[';
      const size_t close = std::min(field.find_first_of(bracket ? "]" : ".[", at + 1), field.size());
      const std::string_view part = field.substr(at + 1, close - at - 1);
      size_t read = 0;
      const int64_t number = read_number(part, read);
      v = bracket ? get_item(v, read == part.size() && read > 0 ? Value(number) : Value(std::string(part)))
                  : get_attribute(v, Value(std::string(part)));
      at = close + bracket;
    }
    return v;
  };
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
    } else if (c == '{') {
      const size_t close = format.find('}', at);
      if (close == std::string::npos) raise_type("ValueError: expected '}' before end of string");
      const std::string_view field = std::string_view(format).substr(at + 1, close - at - 1);
      const size_t colon = std::min(field.find(':'), field.size()), bang = std::min(field.find('!'), colon);
      Value v = lookup(field.substr(0, bang));
      if (bang < colon) v = Value(field.substr(bang, colon - bang) == "!r" ? to_repr(v) : to_text(v));
      out += format_value(v, field.substr(std::min(colon + 1, field.size())));
      checked_size(static_cast<int64_t>(out.size()), 1);
      at = close + 1;
    } else if (c == '}') {
      raise_type("ValueError: Single '}' encountered in format string");
    } else {
      out += c;
      ++at;
    }
  }
  return out;
}

}  // namespace braid::text::jinja
