// Tool calls as programs, in the forms that text/tool_calls.h reads: of certain functions, with arguments that satisfy
// the schemas of their parameters.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/program.h"

namespace braid::grammar {

enum class CallForm {
  xml,   // Nemotron 3: <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
  json,  // Qwen: <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
  list,  // Nano 2: <TOOLCALL>[{"name": NAME, "arguments": {...}}, ...]</TOOLCALL>
  bare   // Llama 3: {"name": NAME, "parameters": {...}}, which is all of the answer
};

struct Function {
  std::string name;
  nlohmann::ordered_json parameters{};  // a schema; null: none
  bool any_arguments = false;           // whatever the schema says, in the form of the call
};

struct CallOptions {
  CallForm form = CallForm::json;
  bool many = true;         // up to kCallsMax calls, otherwise one; in the bare form always one
  bool text_first = false;  // text may come before the calls, or instead of them; in the bare form only instead
};
constexpr int64_t kCallsMax = 32;

// What plain text in the XML form does not contain.
inline constexpr std::array<const char*, 6> kXmlTags = {"</parameter>", "<parameter=",  "</function>",
                                                        "<tool_call>",  "</tool_call>", "</TOOLCALL>"};

// Error, beginning with `where`, for a name that the form cannot hold, and for what json_schema refuses. In the XML
// form parameters come in the order of their schema's properties, others than those do not; a parameter whose type is
// "string" is plain text without the form's own tags, any other JSON.
RuleId tool_calls(Builder& b, const std::vector<Function>& functions, const CallOptions& options,
                  std::string_view where);

// Answers that are free but for their calls, each of which names one of `names`. What follows the name is free too in
// the XML form, up to the end of the call; in the others it is any object. Such an answer may be cut anywhere. The tag
// that opens a call says whether it is of the list form. In the bare form an answer that begins with a brace is a call.
RuleId free_but_for_names(Builder& b, const std::vector<std::string>& names, CallForm form);

// Text without any of the ASCII texts of `forbidden`, then `next`. With `brace`, text that begins with a brace, white
// space aside, is not allowed: it goes on there.
StateId text_without(Builder& b, const std::vector<std::string>& forbidden, StateId next,
                     std::optional<StateId> brace = {});

}  // namespace braid::grammar
