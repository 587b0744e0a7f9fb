// Any text as an answer with tool calls: what a model writes is as hostile as what a client sends.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/tool_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tools = nlohmann::ordered_json::parse(
      R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}},
          {"name": "g", "parameters": 5}, 7])");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const braid::text::ParsedAnswer parsed = braid::text::parse_tool_calls(text, tools);
  for (const braid::text::ToolCall& call : parsed.calls) {
    if (!call.arguments.is_object()) std::abort();
  }
  if (parsed.calls.empty() && parsed.content.size() > size) std::abort();
  if (braid::text::length_before_calls(text) > size) std::abort();
  return 0;
}
