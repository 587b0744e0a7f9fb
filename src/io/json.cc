// The parser is nlohmann-json's; ours are the builder behind it (limits, Python's constants) and the getters.
#include "io/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "io/ordered_json.h"
#include "io/placeholder.h"
#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::io {
namespace {

using Value = nlohmann::json;
using nlohmann::ordered_json;

constexpr uint8_t kDigits = 1;  // subtype of binary values, of which JSON has none
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Constant {
  std::string_view text;
  double value;
};
constexpr Constant kConstants[] = {{"-Infinity", -kInfinity},  // before Infinity, which it ends with
                                   {"Infinity", kInfinity},
                                   {"NaN", std::numeric_limits<double>::quiet_NaN()}};

const Constant* constant_at(std::string_view text) {
  for (const Constant& c : kConstants) {
    if (text.starts_with(c.text)) return &c;
  }
  return nullptr;
}

// Python writes bare NaN and Infinity, which no JSON parser reads. Each becomes a string of the same length, so that
// positions in messages stay right, and its ordinal among the document's strings is recorded, so that no real string
// can be mistaken for one.
struct Constants {
  std::string text;                                  // empty when the document has none
  std::vector<std::pair<int64_t, double>> ordinals;  // ascending
};

Constants replace_constants(std::string_view text) {
  Constants out;
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return out;
  int64_t strings = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        inside = false;
    } else if (text[i] == '"') {
      inside = true;
      ++strings;
    } else if (const Constant* c = constant_at(text.substr(i))) {
      if (out.text.empty()) out.text = text;
      out.text[i] = out.text[i + c->text.size() - 1] = '"';
      out.ordinals.emplace_back(strings++, c->value);
      i += c->text.size() - 1;
    }
  }
  return out;
}

// Receives the parser's events and builds the value, a Node. A callback that returns false ends the parse; `problem`
// says why.
template <class Node>
class Builder {
 public:
  Builder(const JsonLimits& limits, const Constants& constants) : limits_(limits), constants_(constants) {}

  Node root;
  std::string problem;
  size_t problem_at = 0;  // byte offset plus one of a syntax error, 0 when the problem is a limit

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& text) {
    const bool whole = text.find_first_not_of("-0123456789") == text.npos;
    if (!whole || !limits_.digits) return add(value);
    return add(Node::binary(std::vector<uint8_t>(text.begin(), text.end()), kDigits));
  }
  bool binary(typename Node::binary_t&) { return false; }
  bool string(std::string& value) {
    double constant = 0;
    if (take_constant(constant)) return add(constant);
    if (too_long(value)) return false;
    return add(std::move(value));
  }
  bool key(std::string& value) {
    double constant = 0;
    if (take_constant(constant)) return refuse("a number is used as a key");
    if (too_long(value)) return false;
    if (std::ssize(*stack_.back()) >= limits_.keys)
      return refuse(fmt::format("has an object of more than {} keys", limits_.keys));
    slot_ = &(*stack_.back())[std::move(value)];
    return true;
  }
  bool start_object(size_t) { return open(Node::object()); }
  bool start_array(size_t) { return open(Node::array()); }
  bool end_object() {
    if constexpr (std::is_same_v<Node, Value>) replace_constant(*stack_.back());
    stack_.pop_back();
    return true;
  }
  bool end_array() {
    stack_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string& last_token, const nlohmann::detail::exception& error) {
    constexpr int kNumberOverflow = 406;
    const bool overflow = error.id == kNumberOverflow;
    problem = overflow ? "has a number that is too large for a double" : "is not valid JSON";
    problem_at = overflow ? position - std::min(position, last_token.size()) + 1 : position;
    return false;
  }

 private:
  // transformers 5 spells what JSON cannot: {"__float__": "Infinity"}
  static void replace_constant(Node& object) {
    if (object.size() != 1) return;
    const auto only = object.find("__float__");
    if (only == object.end() || !only->is_string()) return;
    const auto& text = only->template get_ref<const std::string&>();
    const Constant* c = constant_at(text);
    if (c && c->text == text) object = c->value;
  }
  bool refuse(std::string why) {
    problem = std::move(why);
    return false;
  }
  bool too_long(const std::string& text) {
    return std::ssize(text) > limits_.string_bytes && !refuse(fmt::format("has a string of {} bytes", text.size()));
  }
  bool take_constant(double& value) {
    const int64_t ordinal = strings_++;
    if (next_constant_ == constants_.ordinals.size() || constants_.ordinals[next_constant_].first != ordinal)
      return false;
    value = constants_.ordinals[next_constant_++].second;
    return true;
  }
  Node* insert(Node&& value) {
    if (++values_ > limits_.values) {
      refuse(fmt::format("has more than {} values", limits_.values));
      return nullptr;
    }
    if (stack_.empty()) return &(root = std::move(value));
    if (stack_.back()->is_array()) return &stack_.back()->emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }
  bool add(Node&& value) { return insert(std::move(value)) != nullptr; }
  bool open(Node&& value) {
    if (std::ssize(stack_) >= limits_.depth)
      return refuse(fmt::format("is nested deeper than {} levels", limits_.depth));
    Node* inserted = insert(std::move(value));
    if (inserted) stack_.push_back(inserted);
    return inserted != nullptr;
  }

  const JsonLimits& limits_;
  const Constants& constants_;
  std::vector<Node*> stack_;
  Node* slot_ = nullptr;
  int64_t values_ = 0, strings_ = 0;
  size_t next_constant_ = 0;
};

std::string position_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n');
  const size_t column = offset - (start == before.npos ? 0 : start + 1) + 1;
  if (text.find('\n') == text.npos) return fmt::format("column {}", column);  // perhaps not the first line of its file
  return fmt::format("line {}, column {}", line, column);
}

std::string shown(const Value& value) {
  const auto entries = [&] { return fmt::format("{} {}", value.size(), value.size() == 1 ? "entry" : "entries"); };
  if (value.is_object()) return "an object of " + entries();
  if (value.is_array()) return "a list of " + entries();
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return fmt::to_string(value.get<double>());
  return printable(value.dump(-1, ' ', true, Value::error_handler_t::replace), 80);
}

// The parser stops inside a wrong word; the message shows it from its first letter.
size_t word_begin(std::string_view text, size_t offset) {
  const auto letter = [&](size_t i) { return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])); };
  constexpr size_t kWord = 16;
  const size_t limit = offset - std::min(offset, kWord);
  while (offset > limit && letter(offset) && letter(offset - 1)) --offset;
  return offset;
}

// The value of a text in which `constants` were replaced.
template <class Node>
Node build(std::string_view text, const Constants& constants, const std::string& name, const JsonLimits& limits,
           const std::string& expected) {
  if (std::ssize(text) > limits.bytes) {
    fail(name, {.what = "is too large for JSON",
                .got = fmt::format("{} bytes", text.size()),
                .expected = fmt::format("at most {}", limits.bytes)});
  }
  // To the parser a NUL is the end of the text; what follows it, unless padding, would be ignored.
  if (const size_t end = text.find('\0'); end != text.npos && text.find_first_not_of('\0', end) != text.npos)
    fail(name, {.what = "is not valid JSON at " + position_of(text, end),
                .got = printable(text.substr(end), 20),
                .expected = expected});
  const std::string_view source = constants.ordinals.empty() ? text : std::string_view(constants.text);
  Builder<Node> builder(limits, constants);
  if (!Node::sax_parse(source.begin(), source.end(), &builder)) {
    if (builder.problem_at == 0) fail(name, {.what = builder.problem});
    const size_t offset = word_begin(text, std::min(builder.problem_at - 1, text.size()));
    const bool ended = offset >= text.size();
    fail(name, {.what = fmt::format("{} at {}", builder.problem, position_of(text, offset)),
                .got = ended ? "the end of the text" : printable(text.substr(offset), 20),
                .expected = expected});
  }
  return std::move(builder.root);
}

}  // namespace

std::optional<std::string> digits_of(const ordered_json& json) {
  if (!json.is_binary() || json.get_binary().subtype() != kDigits) return std::nullopt;
  return std::string(json.get_binary().begin(), json.get_binary().end());
}

namespace {

bool has_digits(const ordered_json& json) {
  return json.is_structured() ? std::any_of(json.begin(), json.end(), has_digits) : json.is_binary();
}

// What nlohmann-json cannot print: on one line.
void print_digits(const ordered_json& json, std::string& out) {
  const auto text = [](const ordered_json& value) {
    return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  if (!json.is_structured()) {
    out += digits_of(json).value_or(json.is_binary() ? "null" : text(json));
    return;
  }
  out += json.is_object() ? '{' : '[';
  for (bool first = true; const auto& [key, value] : json.items()) {
    if (!std::exchange(first, false)) out += ',';
    if (json.is_object()) out += text(key) + ':';
    print_digits(value, out);
  }
  out += json.is_object() ? '}' : ']';
}

}  // namespace

std::string dumped(const ordered_json& json, int indent) {
  if (!has_digits(json)) return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
  std::string out;
  print_digits(json, out);
  return out;
}

ordered_json parse_ordered(std::string_view text, const std::string& where, const std::string& expected,
                           JsonLimits limits) {
  limits.keys = std::min(limits.keys, kOrderedKeysMax);
  return build<ordered_json>(text, {}, where, limits, expected);
}

struct Json::Document {
  Value root;
  std::string name;
};

Json::Json(std::shared_ptr<const Document> document, const nlohmann::json* node, std::string path)
    : document_(std::move(document)), node_(node), path_(std::move(path)) {}

Json Json::parse(std::string_view text, std::string name, const JsonLimits& limits) {
  const Constants constants = std::ssize(text) > limits.bytes ? Constants{} : replace_constants(text);
  auto root = build<Value>(text, constants, name, limits, {});
  auto document = std::make_shared<const Document>(Document{std::move(root), std::move(name)});
  const Value* node = &document->root;
  return Json(std::move(document), node, "");
}

Json Json::read(const std::filesystem::path& path, const JsonLimits& limits) {
  refuse_missing(path);
  const sys::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  refuse_lfs_pointer(path, file.bytes());
  return parse(text, printable(path.string()), limits);
}

bool Json::is_object() const { return node_->is_object(); }
bool Json::is_array() const { return node_->is_array(); }
bool Json::is_string() const { return node_->is_string(); }
const std::string& Json::document() const { return document_->name; }

void Json::refuse(std::string what, std::string expected, std::string hint) const {
  const std::string subject = path_.empty() ? "the document" : printable(path_);
  fail(document_->name, {.what = fmt::format("{} {}", subject, what),
                         .got = shown(*node_),
                         .expected = std::move(expected),
                         .hint = std::move(hint)});
}

Json Json::child(std::string_view key, const Value& node) const {
  return Json(document_, &node, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

std::optional<Json> Json::get(Keys keys) const {
  if (!is_object()) refuse("is of the wrong kind", "an object");
  for (std::string_view key : keys) {
    const auto found = node_->find(key);
    if (found != node_->end() && !found->is_null()) return child(key, *found);
  }
  return std::nullopt;
}

Json Json::need(Keys keys) const {
  if (auto found = get(keys)) return *found;
  const std::string prefix = path_.empty() ? "" : printable(path_) + ".";
  fail(document_->name, {.what = fmt::format("{}{} is missing", prefix, *keys.begin())});
}

std::optional<int64_t> Json::int_of(Keys keys, IntRange range) const {
  const auto found = get(keys);
  return found ? std::optional(found->as_int(range)) : std::nullopt;
}
std::optional<double> Json::number_of(Keys keys, NumberRange range) const {
  const auto found = get(keys);
  return found ? std::optional(found->as_number(range)) : std::nullopt;
}
std::optional<bool> Json::bool_of(Keys keys) const {
  const auto found = get(keys);
  return found ? std::optional(found->as_bool()) : std::nullopt;
}
std::optional<std::string> Json::string_of(Keys keys) const {
  const auto found = get(keys);
  return found ? std::optional(found->as_string()) : std::nullopt;
}

int64_t Json::as_int(IntRange range) const {
  const auto expected = [&] {
    if (range.max == IntRange{}.max) {
      return range.min == IntRange{}.min ? "an integer" : fmt::format("an integer of at least {}", range.min);
    }
    return fmt::format("an integer from {} to {}", range.min, range.max);
  };
  const auto* integer = node_->get_ptr<const Value::number_integer_t*>();  // also set for unsigned values
  const auto* real = node_->get_ptr<const Value::number_float_t*>();
  constexpr double exact = 9007199254740992.0;  // 2^53: integers that some writers spell 4096.0
  int64_t value = 0;
  if (integer && !(node_->is_number_unsigned() && *integer < 0))
    value = *integer;
  else if (real && std::abs(*real) <= exact && std::trunc(*real) == *real)
    value = static_cast<int64_t>(*real);
  else
    refuse("is not a whole number", expected());
  if (value < range.min || value > range.max) refuse("is out of range", expected());
  return value;
}

double Json::as_number(NumberRange range) const {
  const bool open = range.min == NumberRange{}.min && range.max == NumberRange{}.max;
  const auto expected = [&] { return open ? "a number" : fmt::format("a number from {} to {}", range.min, range.max); };
  if (!node_->is_number()) refuse("is not a number", expected());
  const double value = node_->get<double>();
  if (!open && !(value >= range.min && value <= range.max)) refuse("is out of range", expected());
  return value;
}

bool Json::as_bool() const {
  if (!node_->is_boolean()) refuse("is not true or false", "true or false");
  return node_->get<bool>();
}

const std::string& Json::as_string() const {
  if (!node_->is_string()) refuse("is not a string", "a string");
  return node_->get_ref<const std::string&>();
}

std::vector<Json> Json::items() const {
  if (!is_array()) refuse("is not a list", "a list");
  std::vector<Json> out;
  out.reserve(node_->size());
  for (const Value& item : *node_) out.push_back(Json(document_, &item, fmt::format("{}[{}]", path_, out.size())));
  return out;
}

std::vector<std::pair<std::string, Json>> Json::members() const {
  if (!is_object()) refuse("is of the wrong kind", "an object");
  std::vector<std::pair<std::string, Json>> out;
  out.reserve(node_->size());
  for (const auto& [key, value] : node_->items()) out.emplace_back(key, child(key, value));
  return out;
}

}  // namespace braid::io
