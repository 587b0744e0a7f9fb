// Tool calls in the text of an answer, in the forms that models write (docs/internals/families.md):
//   Nemotron 3   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
//   Qwen, Llama  <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
//   Nano 2       <TOOLCALL>[{"name": NAME, "arguments": {...}}, ...]</TOOLCALL>
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace braid::text {

struct ToolCall {
  std::string name;
  nlohmann::ordered_json arguments;  // an object
};

struct ParsedAnswer {
  std::string content;  // without the calls; all of the text where a call cannot be read
  std::vector<ToolCall> calls;
};

// Values of Nemotron's form are text; they become numbers, booleans or objects where the schema of their parameter in
// `tools` (an array, or null) does not say "string" and they are JSON. A missing closing tag at the end is tolerated.
ParsedAnswer parse_tool_calls(std::string_view text, const nlohmann::ordered_json& tools);

// How much of a streamed answer comes before the first call: the length of `text` up to a tag, or to what may become
// one.
size_t length_before_calls(std::string_view text);

}  // namespace braid::text
