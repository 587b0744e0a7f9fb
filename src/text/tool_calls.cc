#include "text/tool_calls.h"

#include <algorithm>
#include <optional>

#include "text/partial_tag.h"

namespace braid::text {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kTags[] = {"<tool_call>", "<TOOLCALL>"};
constexpr std::string_view kEnds[] = {"</tool_call>", "</TOOLCALL>"};

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// Takes `text` up to `end` off its front; all of it where `end` is missing.
std::string_view take(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + end.size());
  return out;
}

// Discarded where it is not JSON, or nested so deeply that writing it again would exhaust the stack. Brackets inside
// strings count too: no call has as many.
ordered_json parse(std::string_view text) {
  constexpr int64_t kNestingMax = 64;
  int64_t depth = 0;
  for (const char ch : text) {
    depth += (ch == '[' || ch == '{') - (ch == ']' || ch == '}');
    if (depth > kNestingMax) return ordered_json::value_t::discarded;
  }
  return ordered_json::parse(text, nullptr, false);
}

const ordered_json* schema_of(const ordered_json& tools, const std::string& name, const std::string& key) {
  for (const ordered_json& tool : tools) {
    const ordered_json& f = tool.contains("function") ? tool["function"] : tool;
    if (!f.is_object() || !f.contains("name") || f["name"] != name) continue;
    const ordered_json::json_pointer at("/parameters/properties");
    if (!f.contains(at) || !f[at].is_object() || !f[at].contains(key)) return nullptr;
    return &f[at][key];
  }
  return nullptr;
}

ordered_json typed(std::string_view text, const ordered_json* schema) {
  const bool is_text = schema && schema->is_object() && schema->contains("type") && (*schema)["type"] == "string";
  const ordered_json value = is_text ? ordered_json(ordered_json::value_t::discarded) : parse(text);
  return value.is_discarded() ? ordered_json(std::string(text)) : value;
}

std::optional<ToolCall> xml_call(std::string_view body, const ordered_json& tools) {
  constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=";
  if (!body.starts_with(kFunction)) return std::nullopt;
  body.remove_prefix(kFunction.size());
  ToolCall call{std::string(trimmed(take(body, ">"))), ordered_json::object()};
  std::string_view inside = take(body, "</function>");
  for (size_t at = inside.find(kParameter); at != inside.npos; at = inside.find(kParameter)) {
    inside.remove_prefix(at + kParameter.size());
    const std::string key(trimmed(take(inside, ">")));
    // Without its closing tag a value ends where the next begins.
    const size_t next = inside.find(kParameter), end = inside.find("</parameter>");
    std::string_view value = inside.substr(0, std::min(next, end));
    inside.remove_prefix(value.size());
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    call.arguments[key] = typed(value, schema_of(tools, call.name, key));
  }
  return call.name.empty() ? std::nullopt : std::optional(std::move(call));
}

bool json_calls(std::string_view body, std::vector<ToolCall>& out) {
  const ordered_json read = parse(body);
  const ordered_json list = read.is_array() ? read : ordered_json::array({read});
  for (const ordered_json& call : list) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    const char* key = call.contains("arguments") ? "arguments" : "parameters";
    ordered_json arguments = call.value(key, ordered_json::object());
    if (arguments.is_string()) arguments = parse(arguments.get<std::string>());
    if (!arguments.is_object()) return false;
    out.push_back({call["name"], std::move(arguments)});
  }
  return true;
}

}  // namespace

ParsedAnswer parse_tool_calls(std::string_view text, const ordered_json& tools) {
  ParsedAnswer out;
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t at = rest.npos, kind = 0;
    for (size_t k = 0; k < std::size(kTags); ++k) {
      if (const size_t found = rest.find(kTags[k]); found < at) at = found, kind = k;
    }
    out.content += rest.substr(0, at);
    if (at == rest.npos) break;
    rest.remove_prefix(at + kTags[kind].size());
    const std::string_view body = trimmed(take(rest, kEnds[kind]));
    if (auto call = xml_call(body, tools)) {
      out.calls.push_back(std::move(*call));
    } else if (!json_calls(body, out.calls)) {
      return {std::string(text), {}};
    }
  }
  if (!out.calls.empty()) out.content = trimmed(out.content);
  return out;
}

size_t length_before_calls(std::string_view text) {
  size_t end = text.size();
  for (const std::string_view tag : kTags) end = std::min({end, text.find(tag), text.size() - partial_tag(text, tag)});
  return end;
}

}  // namespace braid::text
