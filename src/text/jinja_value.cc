#include "text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "sys/utf8.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {

void raise_type(std::string text) { throw Raised{TemplateError::Kind::type, std::move(text)}; }
void raise_undefined(std::string text) { throw Raised{TemplateError::Kind::undefined, std::move(text)}; }
void raise_template(std::string text) { throw Raised{TemplateError::Kind::tmpl, std::move(text)}; }

namespace {

constexpr size_t kIndexed = 8;  // dicts of more entries get a hash index; below it a scan is faster

// Adds one member's depth and weight to those of its container; raises when a limit is exceeded.
void add_member(const Value& v, int32_t& depth, int64_t& weight) {
  depth = std::max(depth, v.depth() + 1);
  weight += static_cast<int64_t>(sizeof(Value)) + v.weight();
  if (depth > kDepthMax) raise_type(fmt::format("lists or dicts are nested more than {} deep", kDepthMax));
  if (weight > kWeightMax) raise_type(fmt::format("a list or dict holds more than {} bytes", kWeightMax));
}

}  // namespace

Value::Value(std::string bytes, bool safe) {
  if (static_cast<int64_t>(bytes.size()) > kWeightMax)
    raise_type(fmt::format("a text is longer than {} bytes", kWeightMax));
  const int64_t length = sys::utf8_count(bytes);
  v_ = std::make_shared<const Text>(Text{std::move(bytes), length, safe});
}

Value Value::whole(std::string digits) {
  int64_t value = 0;
  const auto got = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (got.ec == std::errc()) return value;
  Value v;
  const size_t sign = digits.starts_with('-');
  digits.erase(sign, std::min(digits.find_first_not_of('0', sign), digits.size()) - sign);
  v.v_ = std::make_shared<const Large>(Large{std::move(digits)});
  return v;
}

double Value::real() const {
  if (is(Kind::large)) return std::strtod(digits().c_str(), nullptr);
  return is(Kind::real) ? std::get<double>(v_) : static_cast<double>(integer());
}

Value Value::none() {
  Value v;
  v.v_ = None{};
  return v;
}

Value Value::undefined(std::string why, bool unsafe) {
  Value v;
  v.v_ = std::make_shared<const Undefined>(Undefined{std::move(why), unsafe});
  return v;
}

Value Value::sequence(Values items, Shape shape, std::string label) {
  auto made = std::make_shared<Sequence>();
  for (const Value& item : items) add_member(item, made->depth, made->weight);
  made->shape = shape;
  made->items = std::move(items);
  made->label = std::move(label);
  Value v;
  v.v_ = std::move(made);
  return v;
}

Value Value::range(Values items, int64_t start, int64_t stop, int64_t step) {
  Value v = sequence(
      std::move(items), Shape::range,
      step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step));
  v.sequence().start = start;
  v.sequence().step = step;
  return v;
}

bool Value::is(Shape s) const { return is(Kind::sequence) && sequence().shape == s; }

bool Value::same(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::missing:
    case Kind::none:
      return true;
    case Kind::boolean:
      return boolean() == other.boolean();
    case Kind::integer:
      return integer() == other.integer();
    case Kind::real:
      return real() == other.real();
    case Kind::large:
      return digits() == other.digits();
    case Kind::undefined:
      return &undefined() == &other.undefined();
    case Kind::text:
      return &text() == &other.text() || str() == other.str();  // constants are one object in Python
    case Kind::sequence:
      return &sequence() == &other.sequence();
    case Kind::dict:
      return &dict() == &other.dict();
    case Kind::space:
      return &space() == &other.space();
    case Kind::callable:
      return &callable() == &other.callable();
    case Kind::loop:
      return &loop() == &other.loop();
  }
  return false;
}

int32_t Value::depth() const {
  switch (kind()) {
    case Kind::sequence:
      return sequence().depth;
    case Kind::dict:
      return dict().depth;
    case Kind::callable:
      return callable().depth;
    default:
      return 0;  // the interpreter clears namespaces and loops one by one, whatever they hold
  }
}

int64_t Value::weight() const {
  switch (kind()) {
    case Kind::large:
      return static_cast<int64_t>(digits().size());
    case Kind::text:
      return static_cast<int64_t>(str().size());
    case Kind::sequence:
      return sequence().weight;
    case Kind::dict:
      return dict().weight;
    default:
      return 0;
  }
}

int64_t Value::surface() const {
  constexpr auto kItem = static_cast<int64_t>(sizeof(Value));
  switch (kind()) {
    case Kind::text:
      return static_cast<int64_t>(str().size() + sizeof(Text));
    case Kind::large:
      return static_cast<int64_t>(digits().size() + sizeof(Large));
    case Kind::sequence:
      return kItem * static_cast<int64_t>(sequence().items.size() + 4);
    case Kind::dict:
      return 4 * kItem * static_cast<int64_t>(dict().entries.size() + 1);
    case Kind::undefined:
    case Kind::space:
    case Kind::callable:
    case Kind::loop:
      return 4 * kItem;
    default:
      return 0;
  }
}

int64_t Value::work() const {
  if (is(Kind::text)) return weight() / kBytesPerStep;
  if (is(Kind::sequence)) return static_cast<int64_t>(sequence().items.size());
  return is(Kind::dict) ? static_cast<int64_t>(dict().entries.size()) : 0;
}

bool Value::fresh() const {
  return std::visit(
      [](const auto& held) {
        if constexpr (requires { held.use_count(); }) return held.use_count() == 1;
        return false;
      },
      v_);
}

const Value* Dict::find(const Value& key) const {
  if (entries.size() > kIndexed) {
    const auto it = index.find(key_of(key));
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [k, v] : entries) {
    if (equal(k, key)) return &v;
  }
  if (key.is(Kind::sequence) || key.is(Kind::dict)) key_of(key);  // an unhashable key is an error even when absent
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  add_member(key, depth, weight);
  add_member(value, depth, weight);
  const std::string canonical = key_of(key);
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = std::move(value);  // `this` is not const here, only find() is
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kIndexed + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(key_of(entries[i].first), i);
  } else if (entries.size() > kIndexed) {
    index.emplace(canonical, entries.size() - 1);
  }
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return v.boolean();
    case Kind::integer:
      return v.integer() != 0;
    case Kind::real:
      return v.real() != 0;
    case Kind::text:
      return !v.str().empty();
    case Kind::sequence:
      return v.is(Shape::iterator) || !v.sequence().items.empty();
    case Kind::dict:
      return !v.dict().entries.empty();
    case Kind::large:
    case Kind::space:
    case Kind::callable:
      return true;
    case Kind::loop:
      return !v.loop().items.empty();
  }
  return false;
}

namespace {

bool equal_sequences(const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.shape != b.shape || a.shape == Shape::iterator || a.shape == Shape::values) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

std::string digits_of(const Value& v) { return v.is(Kind::large) ? v.digits() : fmt::format("{}", v.integer()); }

int order_digits(const std::string& a, const std::string& b) {
  const bool negative = a.starts_with('-');
  if (negative != b.starts_with('-')) return negative ? -1 : 1;
  const int order = a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
  return negative ? -order : order;
}

// Of a whole number and one that may have a fraction.
int order_with_real(const Value& a, double b) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (std::isnan(b)) return 2;
  if (std::isinf(b)) return b > 0 ? -1 : 1;
  if (a.is_whole() && std::abs(b) < kExact && std::abs(a.real()) < kExact) return a.real() < b ? -1 : a.real() > b;
  const double floor = std::floor(b);
  const int order = order_digits(digits_of(a), fmt::format("{:.0f}", floor + 0.0));
  return order != 0 ? order : floor < b ? -1 : 0;
}

// An exact comparison of numbers: negative, 0, positive, or 2 if either is NaN.
int order_numbers(const Value& a, const Value& b) {
  const auto sign = [](int order) { return order < 0 ? -1 : order > 0; };
  if (a.is_whole() && b.is_whole()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  if (!a.is(Kind::real) && !b.is(Kind::real)) return sign(order_digits(digits_of(a), digits_of(b)));
  if (!a.is(Kind::real)) {
    const int order = order_with_real(a, b.real());
    return order == 2 ? 2 : sign(order);
  }
  if (!b.is(Kind::real)) {
    const int order = order_with_real(b, a.real());
    return order == 2 ? 2 : -sign(order);
  }
  const double x = a.real(), y = b.real();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      return a.str() == b.str();
    case Kind::sequence:
      return equal_sequences(a.sequence(), b.sequence());
    case Kind::dict:
      return equal_dicts(a.dict(), b.dict());
    default:
      return a.same(b);
  }
}

bool less(const Value& a, const Value& b, const char* op) {
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == -1;
  if (a.is(Kind::text) && b.is(Kind::text)) return a.str() < b.str();  // UTF-8 sorts by code point
  for (const Value* v : {&a, &b}) {
    if (v->is(Kind::undefined)) raise_undefined(v->undefined().why);
  }
  const bool listed = a.is(Shape::list) || a.is(Shape::tuple);
  if (!listed || !b.is(Kind::sequence) || a.sequence().shape != b.sequence().shape) {
    raise_type(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
  }
  const Values &x = a.sequence().items, &y = b.sequence().items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(x[i], y[i])) return less(x[i], y[i], op);
  }
  return x.size() < y.size();
}

std::string key_of(const Value& v) {
  if (v.is(Kind::text)) return "s" + v.str();
  if (v.is_whole()) return fmt::format("n{}", v.integer());
  if (v.is(Kind::large)) return "n" + v.digits();
  if (v.is(Kind::real)) {
    const double d = v.real();
    return d == std::floor(d) && std::isfinite(d) ? fmt::format("n{:.0f}", d + 0.0) : fmt::format("n{}", d);
  }
  if (v.is(Shape::tuple)) {
    std::string key = "t";
    for (const Value& item : v.sequence().items) {
      const std::string part = key_of(item);
      key += fmt::format("{}:", part.size()) + part;
    }
    return key;
  }
  if (v.is(Kind::sequence) || v.is(Kind::dict)) raise_type(fmt::format("unhashable type: '{}'", type_name(v)));
  if (v.is(Kind::space)) return fmt::format("o{}", static_cast<const void*>(&v.space()));
  if (v.is(Kind::callable)) return fmt::format("o{}", static_cast<const void*>(&v.callable()));
  return fmt::format("k{}", static_cast<int>(v.kind()));
}

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::large:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return v.text().safe ? "Markup" : "str";
    case Kind::sequence: {
      constexpr std::string_view kNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                             "dict_values", "dict_items", "generator"};
      return kNames[static_cast<size_t>(v.sequence().shape)];
    }
    case Kind::dict:
      return "dict";
    case Kind::space:
      return "Namespace";
    case Kind::callable:
      return "function";
    case Kind::loop:
      return "LoopContext";
  }
  return "object";
}

Values items_of(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
      return {};
    case Kind::sequence: {
      Sequence& s = v.sequence();
      if (s.shape != Shape::iterator) return s.items;
      Values rest(s.items.begin() + static_cast<std::ptrdiff_t>(s.next), s.items.end());
      s.next = s.items.size();
      return rest;
    }
    case Kind::dict: {
      Values keys;
      keys.reserve(v.dict().entries.size());
      for (const auto& [key, value] : v.dict().entries) keys.push_back(key);
      return keys;
    }
    case Kind::text: {
      if (v.text().length > kWeightMax / 128) raise_type("a string too long to iterate over");
      Values points;
      for (size_t pos = 0; pos < v.str().size();) {
        const size_t start = pos;
        next_point(v.str(), pos);
        points.emplace_back(v.str().substr(start, pos - start));
      }
      return points;
    }
    default:
      raise_type(fmt::format("'{}' object is not iterable", type_name(v)));
  }
}

int64_t length_of(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return v.text().length;
    case Kind::dict:
      return static_cast<int64_t>(v.dict().entries.size());
    case Kind::loop:
      return static_cast<int64_t>(v.loop().items.size());
    case Kind::sequence:
      if (!v.is(Shape::iterator)) return static_cast<int64_t>(v.sequence().items.size());
      [[fallthrough]];
    default:
      raise_type(fmt::format("object of type '{}' has no len()", type_name(v)));
  }
}

}  // namespace braid::text::jinja
