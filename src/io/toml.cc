#include "io/toml.h"

#include <toml++/toml.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::io {
namespace {

constexpr size_t kBytesMax = size_t{1} << 20;

// JSON has no literals for these; transformers spells them this way, and io/json.h reads it.
nlohmann::json number(double value) {
  if (std::isfinite(value)) return value;
  return {{"__float__", std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity"}};
}

// Recursion is as deep as toml++ lets values nest (256).
nlohmann::json to_json(const toml::node& node, const std::string& name) {
  if (const auto* table = node.as_table()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [key, value] : *table) object[std::string(key.str())] = to_json(value, name);
    return object;
  }
  if (const auto* array = node.as_array()) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& value : *array) list.push_back(to_json(value, name));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* real = node.as_floating_point()) return number(real->get());
  if (const auto* truth = node.as_boolean()) return truth->get();
  fail(name, {.what = fmt::format("line {}: dates have no meaning here", node.source().begin.line),
              .expected = "a number, true, false, a list, a table or \"text\""});
}

toml::table parse(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text, std::string_view(name));
  } catch (const toml::parse_error& error) {
    const auto& position = error.source().begin;
    fail(name, {.what = fmt::format("is not valid TOML, line {} column {}", position.line, position.column),
                .got = printable(error.description())});
  }
}

// The value of an override: TOML if it parses, else the text itself.
nlohmann::json value_of(const std::string& text, const std::string& name) {
  try {
    const toml::table line = toml::parse("value = " + text);
    if (line.size() == 1) return to_json(*line.get("value"), name);
  } catch (const toml::parse_error&) {
  }
  return text;
}

void apply(nlohmann::json& root, const std::string& override_text) {
  const size_t equals = override_text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    fail(printable(override_text), {.what = "is not an override", .expected = "key=value, as in optimizer.lr=1e-3"});
  }
  const std::string key = override_text.substr(0, equals);
  nlohmann::json* at = &root;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    if (at->is_null()) *at = nlohmann::json::object();
    if (!at->is_object())
      fail(printable(key), {.what = "is not a table", .got = fmt::format("a value at {}", key.substr(0, begin - 1))});
    at = &(*at)[key.substr(begin, end - begin)];
    begin = end + 1;
  }
  *at = value_of(override_text.substr(equals + 1), printable(key));
}

}  // namespace

Json parse_toml(std::string_view text, std::string name, std::span<const std::string> overrides) {
  if (text.size() > kBytesMax)
    fail(name, {.what = "is too large", .got = fmt::format("{} bytes", text.size()), .expected = "at most 1 MiB"});
  nlohmann::json root = to_json(parse(text, name), name);
  for (const std::string& o : overrides) apply(root, o);
  return Json::parse(root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), std::move(name));
}

Json read_toml(const std::filesystem::path& path, std::span<const std::string> overrides) {
  const sys::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.starts_with("GGUF")) fail(printable(path.string()), {.what = "is a GGUF file", .expected = "TOML"});
  return parse_toml(text, path.filename().string(), overrides);
}

}  // namespace braid::io
