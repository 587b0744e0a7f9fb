// Which of the offered tools an answer may or must call: the field tool_choice of chat requests, in all its forms.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace braid::serve {

struct ToolChoice {
  bool required = false;                         // the answer is a call
  bool one = false;                              // of the function that was named, once
  std::optional<std::set<std::string>> names{};  // only these functions; nullopt: any

  bool allows(const std::string& name) const { return !names || names->contains(name); }
};

// "none", "auto", "required", a function, or {"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]},
// with the last two fields inside a further "allowed_tools" or not. A choice of a tool that is not a function, which is
// skipped, is "auto". `tools`: the functions on offer, or null. ApiError for anything else, and for functions that are
// not on offer.
ToolChoice read_tool_choice(const nlohmann::ordered_json& body, const nlohmann::ordered_json& tools);

}  // namespace braid::serve
