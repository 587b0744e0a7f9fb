#include "apps/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/json.h"
#include "sys/error.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

constexpr size_t kFileMax = size_t{32} << 20;

// Read twice: io::Json has the limits and names what is wrong.
ordered_json read_array(const std::filesystem::path& path, const char* expected) {
  const std::string name = path.string();
  if (name != "-" && !std::filesystem::exists(path))
    fail(printable(name), {.what = "is missing", .expected = expected});
  const std::string text = sys::read_file(path, kFileMax);
  (void)io::Json::parse(text, printable(name));
  ordered_json list = ordered_json::parse(text, nullptr, false);
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

}  // namespace

ordered_json read_messages(const std::filesystem::path& path) {
  constexpr const char* kExpected = R"([{"role": "user", "content": "..."}, ...])";
  ordered_json messages = read_array(path, kExpected);
  check_items(path, messages, "message", kExpected, [](const ordered_json& m) {
    return m.is_object() && m.contains("role") && m["role"].is_string() &&
           (m.contains("content") || m.contains("tool_calls"));
  });
  return messages;
}

ordered_json read_tools(const std::filesystem::path& path) {
  constexpr const char* kExpected = R"([{"type": "function", "function": {"name": "...", "parameters": {}}}, ...])";
  ordered_json tools = read_array(path, kExpected);
  check_items(path, tools, "function", kExpected, [](const ordered_json& t) { return t.is_object(); });
  return tools;
}

void write_messages(const std::filesystem::path& path, const ordered_json& messages) {
  io::write_text_file(path, messages.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace braid::apps
