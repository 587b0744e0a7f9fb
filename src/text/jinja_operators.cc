#include "text/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja_builtins.h"
#include "text/jinja_large.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

[[noreturn]] void overflow() { raise_type("an integer beyond 64 bits"); }

std::string decimal(const Value& v) { return v.is(Kind::large) ? v.digits() : fmt::format("{}", v.integer()); }

// Of numbers of any size.
Value whole_power(const Value& base, const Value& exponent) {
  if (base.is_whole() && std::abs(base.real()) <= 1) {
    if (exponent.is(Kind::large)) overflow();
    const bool odd = exponent.integer() % 2 != 0;
    return base.integer() == -1 && !odd ? int64_t{1} : exponent.integer() == 0 ? int64_t{1} : base.integer();
  }
  return Value::whole(large_power(decimal(base), exponent.is(Kind::large) ? INT64_MAX : exponent.integer()));
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) {
    if (a == INT64_MIN) overflow();
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

double floor_mod(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m == 0 ? std::copysign(0.0, b) : m;
}

// Of numbers with fractions, as CPython rounds it.
double floor_quotient(double a, double b) {
  const double m = std::fmod(a, b);
  const double quotient = (a - m) / b - (m != 0 && (m < 0) != (b < 0) ? 1 : 0);
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

Value whole_binary(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+" && !__builtin_add_overflow(a, b, &result)) return result;
  if (op == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
  if (op == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  if (op == "//") return floor_div(a, b);
  if (op == "%") return b == -1 ? int64_t{0} : a - floor_div(a, b) * b;
  if (op == "**") return whole_power(a, b);
  return Value::whole(large_binary(op, decimal(a), decimal(b)));
}

Value number_binary(std::string_view op, const Value& a, const Value& b) {
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.real() == 0) raise_type("ZeroDivisionError: division by zero");
  const bool large = a.is(Kind::large) || b.is(Kind::large);
  const bool fraction = a.is(Kind::real) || b.is(Kind::real) || op == "/" || (op == "**" && b.real() < 0);
  if (large && !fraction) {
    if (op == "//" || op == "%") overflow();
    return op == "**" ? whole_power(a, b) : Value::whole(large_binary(op, decimal(a), decimal(b)));
  }
  const bool whole = a.is_whole() && b.is_whole() && op != "/" && !(op == "**" && b.integer() < 0);
  if (whole) return whole_binary(op, a.integer(), b.integer());
  const double x = a.real(), y = b.real();
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "/") return x / y;
  if (op == "%") return floor_mod(x, y);
  if (op == "//") return floor_quotient(x, y);
  if (x == 0 && y < 0) raise_type("ZeroDivisionError: 0.0 cannot be raised to a negative power");
  const double result = std::pow(x, y);
  if (std::isnan(result) && !std::isnan(x) && !std::isnan(y)) raise_type("a complex number");
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y))
    raise_type("OverflowError: Numerical result out of range");
  return result;
}

Value add_texts(const Text& a, const Text& b) {
  checked_size(static_cast<int64_t>(a.bytes.size() + b.bytes.size()), 1);
  if (a.safe == b.safe) return Value(a.bytes + b.bytes, a.safe);
  return Value((a.safe ? a.bytes : escape_html(a.bytes)) + (b.safe ? b.bytes : escape_html(b.bytes)), true);
}

Value repeat(const Value& v, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (v.is(Kind::text)) {
    std::string out;
    out.reserve(static_cast<size_t>(checked_size(static_cast<int64_t>(v.str().size()), times)));
    for (int64_t i = 0; i < times && !v.str().empty(); ++i) out += v.str();
    return Value(std::move(out), v.text().safe);
  }
  const Values& items = v.sequence().items;
  checked_size(static_cast<int64_t>(items.size() * sizeof(Value)), times);
  Values out;
  for (int64_t i = 0; i < times && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::sequence(std::move(out), v.sequence().shape);
}

bool is_listed(const Value& v) { return v.is(Shape::list) || v.is(Shape::tuple); }

std::string owner_name(const Value& object) {
  return object.is(Kind::none) ? "None" : fmt::format("{} object", type_name(object));
}

Value absent(const Value& object, const Value& key) {
  if (key.is(Kind::text)) {
    return Value::undefined(fmt::format("'{}' has no attribute '{}'", owner_name(object), printable(key.str())));
  }
  return Value::undefined(fmt::format("{} has no element {}", owner_name(object), printable(to_repr(key))));
}

[[noreturn]] void raise_absent(const Value& v) {
  if (v.undefined().unsafe) raise_template(v.undefined().why);
  raise_undefined(v.undefined().why);
}

// Members of `loop`. cycle and changed are methods and come from the method table.
std::optional<Value> loop_attribute(const Loop& loop, const std::string& name) {
  const auto length = static_cast<int64_t>(loop.items.size());
  const auto item = [&](int64_t i, const char* which) {
    return i >= 0 && i < length ? loop.items[static_cast<size_t>(i)]
                                : Value::undefined(fmt::format("there is no {} item", which));
  };
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return loop.index0 + 1 == length;
  if (name == "length") return length;
  if (name == "revindex") return length - loop.index0;
  if (name == "revindex0") return length - loop.index0 - 1;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "previtem") return item(loop.index0 - 1, "previous");
  if (name == "nextitem") return item(loop.index0 + 1, "next");
  return std::nullopt;
}

// A real attribute in Python's sense, or nullopt.
std::optional<Value> own_attribute(const Value& object, const std::string& name) {
  if (object.is(Kind::loop)) {
    if (auto v = loop_attribute(object.loop(), name)) return v;
  }
  if (object.is(Kind::space)) {
    const auto& all = object.space().attributes;
    if (const auto it = all.find(name); it != all.end()) return it->second;
  }
  if (object.is(Kind::callable) && name == "name") return Value(object.callable().name);
  if (object.is(Kind::callable) && name == "arguments" && object.callable().arguments.given())
    return object.callable().arguments;
  if (object.is(Shape::tuple) && object.sequence().label == kGroup) {
    if (name == "grouper") return object.sequence().items[0];
    if (name == "list") return object.sequence().items[1];
  }
  if (const Builtin* method = find_method(object, name)) return as_value(*method, object);
  if (is_mutator(object, name) || name.starts_with("__")) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", printable(name), type_name(object)), true);
  }
  return std::nullopt;
}

// An element by index or key, or nullopt.
std::optional<Value> own_item(const Value& object, const Value& key) {
  if (object.is(Kind::dict)) {
    if (key.is(Shape::list) || key.is(Kind::dict)) return std::nullopt;
    const Value* found = object.dict().find(key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_whole()) return std::nullopt;
  const bool listed = is_listed(object) || object.is(Shape::range);
  if (!listed && !object.is(Kind::text)) return std::nullopt;
  const int64_t length = length_of(object);
  const int64_t at = key.integer() < 0 ? key.integer() + length : key.integer();
  if (at < 0 || at >= length) return std::nullopt;
  if (listed) return object.sequence().items[static_cast<size_t>(at)];
  size_t end = offset_of(object.str(), length, at);
  const size_t start = end;
  next_point(object.str(), end);
  return Value(object.str().substr(start, end - start), object.text().safe);
}

std::optional<int64_t> bound_of(const Value& v) {
  if (!v.given() || v.is(Kind::none)) return std::nullopt;
  if (v.is(Kind::undefined)) raise_absent(v);
  if (!v.is_whole()) raise_type("slice indices must be integers or None or have an __index__ method");
  return v.integer();
}

}  // namespace

int64_t checked_size(int64_t count, int64_t each) {
  int64_t total = 0;
  if (__builtin_mul_overflow(count, each, &total) || total > kWeightMax) {
    raise_type(fmt::format("a result of more than {} bytes", kWeightMax));
  }
  return total;
}

Value binary(std::string_view op, const Value& a, const Value& b) {
  if (op == "%" && a.is(Kind::text)) return Value(format_percent(a.str(), b), a.text().safe);
  for (const Value* v : {&a, &b}) {
    if (v->is(Kind::undefined)) raise_absent(*v);
  }
  if (a.is_number() && b.is_number()) return number_binary(op, a, b);
  if (op == "+" && a.is(Kind::text) && b.is(Kind::text)) return add_texts(a.text(), b.text());
  if (op == "+" && is_listed(a) && is_listed(b) && a.sequence().shape == b.sequence().shape) {
    Values items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    return Value::sequence(std::move(items), a.sequence().shape);
  }
  const auto repeats = [](const Value& v) { return v.is(Kind::text) || is_listed(v); };
  if (op == "*" && repeats(a) && b.is_whole()) return repeat(a, b.integer());
  if (op == "*" && repeats(b) && a.is_whole()) return repeat(b, a.integer());
  if (op == "+" && (a.is(Kind::text) || is_listed(a))) {
    raise_type(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b)));
  }
  raise_type(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

Value negate(const Value& v) {
  if (v.is(Kind::undefined)) raise_absent(v);
  if (v.is(Kind::real)) return -v.real();
  if (v.is(Kind::large)) return Value::whole(v.digits()[0] == '-' ? v.digits().substr(1) : "-" + v.digits());
  if (!v.is_whole()) raise_type(fmt::format("bad operand type for unary -: '{}'", type_name(v)));
  if (v.integer() == INT64_MIN) return Value::whole("9223372036854775808");
  return -v.integer();
}

Value plus(const Value& v) {
  if (v.is(Kind::undefined)) raise_absent(v);
  if (!v.is_number()) raise_type(fmt::format("bad operand type for unary +: '{}'", type_name(v)));
  return v.is(Kind::boolean) ? Value(v.integer()) : v;
}

bool contains(const Value& container, const Value& needle) {
  if (container.is(Kind::text)) {
    if (!needle.is(Kind::text)) {
      raise_type(fmt::format("'in <string>' requires string as left operand, not {}", type_name(needle)));
    }
    return find_text(container.str(), needle.str()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return container.dict().find(needle) != nullptr;
  if (container.is(Kind::undefined)) return false;
  if (!container.is(Kind::sequence))
    raise_type(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  const Values items = container.is(Shape::iterator) ? items_of(container) : Values();
  const Values& all = container.is(Shape::iterator) ? items : container.sequence().items;
  return std::any_of(all.begin(), all.end(), [&](const Value& v) { return equal(v, needle); });
}

bool compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  if (op == "<") return less(a, b, "<");
  if (op == ">") return less(b, a, ">");
  if (op == "<=") return less(a, b, "<=") || equal(a, b);
  return less(b, a, ">=") || equal(a, b);
}

Value get_attribute(const Value& object, const Value& name) {
  if (object.is(Kind::undefined)) raise_absent(object);
  if (auto v = own_attribute(object, name.str())) return *v;
  if (auto v = own_item(object, name)) return *v;
  return absent(object, name);
}

Value get_item(const Value& object, const Value& key) {
  if (object.is(Kind::undefined)) raise_absent(object);
  if (auto v = own_item(object, key)) return *v;
  if (key.is(Kind::text)) {
    if (auto v = own_attribute(object, key.str())) return *v;
  }
  return absent(object, key);
}

Value slice(const Value& object, const Value& from, const Value& to, const Value& step) {
  if (object.is(Kind::undefined)) raise_absent(object);
  const bool listed = is_listed(object) || object.is(Shape::range);
  if (!listed && !object.is(Kind::text)) raise_type(fmt::format("'{}' object is not subscriptable", type_name(object)));
  const int64_t length = length_of(object), by = bound_of(step).value_or(1);
  if (by == 0) raise_type("slice step cannot be zero");
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? length : length - 1;
  const auto place = [&](const Value& v, int64_t fallback) {
    const auto given = bound_of(v);
    if (!given) return fallback;
    return std::clamp(*given < 0 ? *given + length : *given, lowest, highest);
  };
  const int64_t start = place(from, by > 0 ? 0 : length - 1), stop = place(to, by > 0 ? length : -1);
  if (object.is(Kind::text) && by == 1) {
    if (stop <= start) return Value(std::string(), object.text().safe);
    const size_t first = offset_of(object.str(), length, start);
    const std::string_view tail = std::string_view(object.str()).substr(first);
    const bool ascii = length == static_cast<int64_t>(object.str().size());
    const size_t bytes = offset_of(tail, ascii ? static_cast<int64_t>(tail.size()) : -1, stop - start);
    return Value(std::string(tail.substr(0, bytes)), object.text().safe);
  }
  const Values items = object.is(Kind::text) ? items_of(object) : Values();
  const Values& all = object.is(Kind::text) ? items : object.sequence().items;
  Values out;
  const int64_t stride = std::clamp(by, -length - 1, length + 1);  // keeps the sum below from overflowing
  for (int64_t i = start; by > 0 ? i < stop : i > stop; i += stride) out.push_back(all[static_cast<size_t>(i)]);
  if (object.is(Shape::range)) {  // whose numbers fit 64 bits, but for an end that is not reached
    const Sequence& range = object.sequence();
    int64_t first = 0, end = 0, each = 0;
    bool wraps =
        __builtin_mul_overflow(start, range.step, &first) || __builtin_add_overflow(first, range.start, &first);
    wraps |= __builtin_mul_overflow(stop, range.step, &end) || __builtin_add_overflow(end, range.start, &end);
    wraps |= __builtin_mul_overflow(by, range.step, &each);
    if (!wraps) return Value::range(std::move(out), first, end, each);
  }
  if (!object.is(Kind::text))
    return Value::sequence(std::move(out), object.is(Shape::tuple) ? Shape::tuple : Shape::list);
  std::string joined;
  for (const Value& v : out) joined += v.str();
  return Value(std::move(joined), object.text().safe);
}

Value get_path(const Value& object, const Value& path, const Value& fallback) {
  Value v = object;
  const auto step = [&](const Value& key) {
    v = get_item(v, key);
    if (v.is(Kind::undefined) && fallback.given()) v = fallback;
  };
  if (!path.is(Kind::text)) {
    step(path);
    return v;
  }
  const std::string& all = path.str();
  for (size_t start = 0; start <= all.size();) {
    const size_t dot = std::min(all.find('.', start), all.size());
    const std::string part = all.substr(start, dot - start);
    int64_t index = 0;
    const auto got = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool whole = !part.empty() && part[0] != '-' && got.ec == std::errc() && got.ptr == part.data() + part.size();
    step(whole ? Value(index) : Value(part));
    start = dot + 1;
  }
  return v;
}

}  // namespace braid::text::jinja
