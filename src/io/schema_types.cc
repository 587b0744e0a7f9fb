#include "io/schema_types.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braid::io {
namespace {

using nlohmann::ordered_json;

// Sets of types, by bits.
enum : uint32_t { kString = 1, kNull = 2, kBoolean = 4, kInteger = 8, kFraction = 16, kArray = 32, kObject = 64 };
constexpr uint32_t kAll = 127;

struct TypeName {
  std::string_view name;
  uint32_t types;
};
constexpr TypeName kNames[] = {{"string", kString},   {"null", kNull},   {"boolean", kBoolean},
                               {"integer", kInteger}, {"array", kArray}, {"number", kInteger | kFraction},
                               {"object", kObject}};

uint32_t named(const ordered_json& type) {
  if (type.is_array()) {
    uint32_t out = 0;
    for (const ordered_json& one : type) out |= one.is_string() ? named(one) : 0;
    return out;
  }
  const auto at = std::ranges::find_if(kNames, [&](const TypeName& t) { return type == t.name; });
  return at == std::end(kNames) ? kAll : at->types;
}

uint32_t type_of(const ordered_json& value) {
  if (value.is_string()) return kString;
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number()) return kInteger | kFraction;  // 5.0 is an integer too
  return value.is_array() ? kArray : kObject;
}

// Walks a schema that may refer to itself: beyond so many steps it allows everything.
class Types {
 public:
  explicit Types(const ordered_json& root) : root_(root) {}

  uint32_t of(const ordered_json& schema, int depth = 0) {
    if (schema == false) return 0;
    if (!schema.is_object()) return kAll;
    uint32_t out = schema.contains("type") ? named(schema["type"]) : kAll;
    if (schema.contains("const")) out &= type_of(schema["const"]);
    if (schema.contains("enum") && schema["enum"].is_array()) {
      uint32_t listed = 0;
      for (const ordered_json& one : schema["enum"]) listed |= type_of(one);
      out &= listed;
    }
    const auto inside = [&](const ordered_json& one) { return std::optional(of(one, depth + 1)); };
    return out & combined(schema, depth, inside).value_or(kAll);
  }

  // nullopt: the schema does not speak of such a parameter.
  std::optional<uint32_t> of_parameter(const ordered_json& schema, const std::string& name, int depth = 0) {
    if (!schema.is_object()) return std::nullopt;
    const bool listed =
        schema.contains("properties") && schema["properties"].is_object() && schema["properties"].contains(name);
    std::optional<uint32_t> out;
    if (listed)
      out = of(schema["properties"][name]);
    else if (schema.contains("additionalProperties"))
      out = of(schema["additionalProperties"]);
    const auto inside = [&](const ordered_json& one) { return of_parameter(one, name, depth + 1); };
    return both(out, combined(schema, depth, inside));
  }

 private:
  static std::optional<uint32_t> both(std::optional<uint32_t> a, std::optional<uint32_t> b) {
    return a && b ? *a & *b : a ? a : b;
  }
  static std::optional<uint32_t> either(std::optional<uint32_t> a, std::optional<uint32_t> b) {
    return a && b ? *a | *b : a ? a : b;
  }
  // Of the schemas that this one combines.
  template <class Inside>
  std::optional<uint32_t> combined(const ordered_json& schema, int depth, const Inside& inside) {
    constexpr int kDepthMax = 64, kStepsMax = 10'000;
    if (depth > kDepthMax || ++steps_ > kStepsMax) return std::nullopt;
    std::optional<uint32_t> out;
    if (schema.contains("$ref") && schema["$ref"].is_string()) {
      if (const ordered_json* target = schema_at(root_, schema["$ref"])) out = inside(*target);
    }
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      if (!schema.contains(key) || !schema[key].is_array()) continue;
      std::optional<uint32_t> here;
      for (const ordered_json& one : schema[key])
        here = std::string_view(key) == "allOf" ? both(here, inside(one)) : either(here, inside(one));
      out = both(out, here);
    }
    return out;
  }

  const ordered_json& root_;
  int steps_ = 0;
};

}  // namespace

namespace {

// A reference is part of a URI, in which characters may be written as % and two digits.
std::string percent_decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    const bool coded =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    out += coded ? static_cast<char>(value) : text[i];
    if (coded) i += 2;
  }
  return out;
}

const ordered_json* schema_at_pointer(const ordered_json& root, const std::string& reference) {
  if (!reference.starts_with('#') || (reference.size() > 1 && reference[1] != '/')) return nullptr;
  const ordered_json* at = &root;
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      const bool escape = reference[i] == '~' && i + 1 < end;
      key += escape ? (reference[++i] == '1' ? '/' : '~') : reference[i];
    }
    if (at->is_object() && at->contains(key)) {
      at = &(*at)[key];
    } else {
      const bool index =
          at->is_array() && !key.empty() && key.size() < 6 && key.find_first_not_of("0123456789") == key.npos;
      if (!index || std::stoul(key) >= at->size()) return nullptr;
      at = &(*at)[std::stoul(key)];
    }
    begin = end + 1;
  }
  return at->is_object() || at->is_boolean() ? at : nullptr;
}

}  // namespace

const ordered_json* schema_at(const ordered_json& root, const std::string& reference) {
  const ordered_json* as_written = schema_at_pointer(root, reference);
  return as_written ? as_written : schema_at_pointer(root, percent_decoded(reference));
}

ParameterForm parameter_form(const ordered_json& parameters, const std::string& name) {
  const uint32_t types = Types(parameters).of_parameter(parameters, name).value_or(0);
  if (types == 0) return ParameterForm::unknown;
  if (types == kString) return ParameterForm::text;
  return types == (kString | kNull) ? ParameterForm::optional_text : ParameterForm::json;
}

}  // namespace braid::io
