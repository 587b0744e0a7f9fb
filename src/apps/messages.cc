#include "apps/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

constexpr size_t kFileMax = size_t{32} << 20;

ordered_json read_array(const std::filesystem::path& path, const char* expected, bool digits = false) {
  const std::string name = path.string();
  std::error_code none;
  if (name != "-" && !std::filesystem::exists(path, none))
    fail(printable(name), {.what = "is missing", .expected = expected});
  const std::string text = sys::read_file(path, kFileMax);
  ordered_json list =
      io::parse_ordered(text, printable(name), expected, {.keys = io::kOrderedKeysMax, .digits = digits});
  if (!list.is_array()) fail(printable(name), {.what = "is not an array", .expected = expected});
  return list;
}

// Refuses the first item that is not right.
void check_items(const std::filesystem::path& path, const ordered_json& list, const char* item, const char* expected,
                 bool (*right)(const ordered_json&)) {
  const auto wrong = std::find_if_not(list.begin(), list.end(), right);
  if (wrong == list.end()) return;
  fail(printable(path.string()),
       {.what = fmt::format("[{}] is not a {}", wrong - list.begin(), item), .expected = expected});
}

bool has_text(const ordered_json& object, const char* key) { return object.contains(key) && object[key].is_string(); }

// OpenAI's list of parts as one string; templates of text models take nothing else.
void join_parts(ordered_json& content) {
  if (!content.is_array()) return;
  std::string text;
  for (const ordered_json& part : content) {
    if (!part.is_object() || !has_text(part, "text")) return;
    text += part["text"].get<std::string>();
  }
  content = std::move(text);
}

bool is_message(const ordered_json& m) {
  if (!m.is_object() || !has_text(m, "role")) return false;
  if (has_text(m, "content")) return true;
  return m.contains("tool_calls") && (!m.contains("content") || m["content"].is_null());
}

bool is_function(const ordered_json& t) {
  return t.is_object() && (has_text(t, "name") ||
                           (t.contains("function") && t["function"].is_object() && has_text(t["function"], "name")));
}

}  // namespace

ordered_json read_messages(const std::filesystem::path& path) {
  constexpr const char* kExpected = R"([{"role": "user", "content": "..."}, ...])";
  ordered_json messages = read_array(path, kExpected, true);
  if (messages.empty()) fail(printable(path.string()), {.what = "holds no message", .expected = kExpected});
  for (ordered_json& m : messages) {
    if (m.is_object() && m.contains("content")) join_parts(m["content"]);
  }
  check_items(path, messages, "message", kExpected, &is_message);
  return messages;
}

ordered_json read_tools(const std::filesystem::path& path) {
  constexpr const char* kExpected = R"([{"type": "function", "function": {"name": "...", "parameters": {}}}, ...])";
  ordered_json tools = read_array(path, kExpected);
  check_items(path, tools, "function", kExpected, &is_function);
  return tools;
}

void write_messages(const std::filesystem::path& path, const ordered_json& messages) {
  io::write_text_file(path, io::dumped(messages, 2) + "\n");
}

}  // namespace braid::apps
