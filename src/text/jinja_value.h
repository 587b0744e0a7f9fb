// The values of a chat template: Python's, as far as Jinja templates can see them. They are immutable (the sandbox of
// the reference implementation forbids changing lists and dicts), so sharing is free; a namespace is the one exception.
// Every container stores its nesting depth and its total bytes (shared parts counted each time): comparing, printing
// and freeing are recursive and bounded by these two.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/template.h"

namespace braid::text::jinja {

class Interpreter;
class Value;

// Thrown by value operations, which do not know where they are; the interpreter adds template and line.
struct Raised {
  TemplateError::Kind kind;
  std::string text;
};
[[noreturn]] void raise_type(std::string text);       // TypeError, ValueError, OverflowError, ... and every limit
[[noreturn]] void raise_undefined(std::string text);  // use of something undefined
[[noreturn]] void raise_template(std::string text);   // raise_exception, and what the sandbox refuses

constexpr int32_t kDepthMax = 500;     // nesting of lists and dicts; Python gives up near 1000
constexpr int64_t kBytesPerStep = 16;  // text that counts as one step of Limits: slow searches read 0.1 byte/ns
constexpr int64_t kWeightMax = int64_t{1} << 26;  // bytes of one text or container, 64 MiB: longer than any prompt

enum class Kind : uint8_t {
  missing,
  undefined,
  none,
  boolean,
  integer,
  real,
  large,
  text,
  sequence,
  dict,
  space,
  callable,
  loop
};

// UTF-8, always valid. `safe` is what `|safe` and `|escape` mark: adding to it escapes the other side.
struct Text {
  std::string bytes;
  int64_t length;  // code points
  bool safe;
};

struct Undefined {
  std::string why;
  bool unsafe = false;  // hidden by the sandbox
};

// A whole number beyond 64 bits: its digits, after a sign if it is negative (ids, bounds of schemas).
struct Large {
  std::string digits;
};

struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
struct Loop;

using Values = std::vector<Value>;
enum class Shape : uint8_t { list, tuple, range, keys, values, items, iterator };

class Value {
 public:
  Value() = default;  // missing: an argument that was not given
  Value(bool b) : v_(b) {}
  Value(int64_t i) : v_(i) {}
  Value(double d) : v_(d) {}
  Value(std::string bytes, bool safe = false);
  Value(const char* bytes) : Value(std::string(bytes)) {}
  Value(std::shared_ptr<const Dict> d) : v_(std::move(d)) {}
  Value(std::shared_ptr<Namespace> n) : v_(std::move(n)) {}
  Value(std::shared_ptr<const Callable> c) : v_(std::move(c)) {}
  Value(std::shared_ptr<Loop> l) : v_(std::move(l)) {}
  static Value none();
  static Value whole(std::string digits);  // of any size
  static Value undefined(std::string why, bool unsafe = false);
  static Value sequence(Values items, Shape shape, std::string label = {});
  static Value list(Values items) { return sequence(std::move(items), Shape::list); }
  static Value tuple(Values items) { return sequence(std::move(items), Shape::tuple); }
  static Value range(Values items, int64_t start, int64_t stop, int64_t step);
  static Value iterator(Values items) { return sequence(std::move(items), Shape::iterator); }

  Kind kind() const { return static_cast<Kind>(v_.index()); }
  bool is(Kind k) const { return kind() == k; }
  bool is(Shape s) const;
  bool given() const { return !is(Kind::missing); }
  bool is_number() const { return is_whole() || is(Kind::real) || is(Kind::large); }
  bool is_whole() const { return is(Kind::boolean) || is(Kind::integer); }  // one of 64 bits
  bool same(const Value& other) const;                                      // Python's `is`

  bool boolean() const { return std::get<bool>(v_); }
  int64_t integer() const { return is(Kind::boolean) ? int64_t{boolean()} : std::get<int64_t>(v_); }
  double real() const;  // of a number, the nearest
  const std::string& digits() const { return std::get<std::shared_ptr<const Large>>(v_)->digits; }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(v_); }
  const std::string& str() const { return text().bytes; }
  Sequence& sequence() const { return *std::get<std::shared_ptr<Sequence>>(v_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(v_); }
  Namespace& space() const { return *std::get<std::shared_ptr<Namespace>>(v_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(v_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(v_); }
  const Undefined& undefined() const { return *std::get<std::shared_ptr<const Undefined>>(v_); }

  int32_t depth() const;    // 0 for a scalar
  int64_t weight() const;   // bytes, shared parts counted each time
  int64_t surface() const;  // its own bytes, without what it points to
  int64_t work() const;     // steps to iterate over it once, without what it points to
  bool fresh() const;       // it has no other owner: it was just created

 private:
  struct None {};
  std::variant<std::monostate, std::shared_ptr<const Undefined>, None, bool, int64_t, double,
               std::shared_ptr<const Large>, std::shared_ptr<const Text>, std::shared_ptr<Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Callable>,
               std::shared_ptr<Loop>>
      v_;
};

struct Sequence {
  Shape shape;
  Values items;
  std::string label;            // how a range prints
  int64_t start = 0, step = 1;  // of a range
  int32_t depth = 1;
  int64_t weight = 0;
  size_t next = 0;  // iterators are used up as they are read
};

// Keeps insertion order. Keys are equal as in Python: 1, 1.0 and true are one key.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // by canonical key, only when there are many entries
  int32_t depth = 1;
  int64_t weight = 0;
  const Value* find(const Value& key) const;
  void set(const Value& key, Value value);  // only while it is being built
};

struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
};

struct CallArgs {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Interpreter&, CallArgs)> run;
  Value arguments{};  // of a macro: a tuple of their names
  int32_t depth = 1;
};

// What `loop` is inside a for.
struct Loop {
  Values items;
  int64_t index0 = 0;
  int64_t depth0 = 0;
  Value changed;                               // what loop.changed() last saw
  std::function<Value(const Value&)> recurse;  // loop(items) of a recursive loop
};

bool truth(const Value& v);
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b, const char* op);  // type error where Python has no order
std::string key_of(const Value& v);                         // canonical dict key; type error for a list or dict
std::string_view type_name(const Value& v);                 // "str", "NoneType", ...
Values items_of(const Value& v);                            // what a for loop iterates over
int64_t length_of(const Value& v);

}  // namespace braid::text::jinja
