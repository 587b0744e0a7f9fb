#include "serve/tool_choice.h"

#include <algorithm>

#include "serve/api_error.h"
#include "serve/fields.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

constexpr const char* kField = "tool_choice";

[[noreturn]] void refuse_choice() {
  refuse(
      "'tool_choice' is none of \"none\", \"auto\", \"required\", {\"type\": \"function\", \"function\": {\"name\": "
      "...}} and {\"type\": \"allowed_tools\", \"mode\": ..., \"tools\": [...]}",
      kField);
}

// The name in {"function": {"name": ...}} or {"name": ...}; null: none.
const std::string* name_in(const ordered_json& tool) {
  if (!tool.is_object()) return nullptr;
  const ordered_json* function = Fields(tool).find("function");
  const ordered_json& named = function && function->is_object() ? *function : tool;
  const ordered_json* name = Fields(named).find("name");
  return name ? name->get_ptr<const std::string*>() : nullptr;
}

ToolChoice allowed_of(const ordered_json& choice) {
  const ordered_json* inside = Fields(choice).find("allowed_tools");
  const Fields allowed(inside && inside->is_object() ? *inside : choice);
  const ordered_json *mode = allowed.find("mode"), *tools = allowed.find("tools");
  if (!tools || !tools->is_array() || (mode && *mode != "auto" && *mode != "required")) refuse_choice();
  ToolChoice out{.required = mode && *mode == "required", .names = std::set<std::string>()};
  for (const ordered_json& tool : *tools) {
    if (!tool.is_object()) refuse_choice();
    const ordered_json* type = Fields(tool).find("type");
    if (type && *type != "function") continue;  // of those that a hosted model runs itself none is on offer
    const std::string* name = name_in(tool);
    if (!name) refuse_choice();
    out.names->insert(*name);
  }
  return out;
}

// The type of a tool of the request that is not a function.
bool chooses_skipped(const ordered_json& body, const ordered_json& choice) {
  const ordered_json *type = choice.is_object() ? Fields(choice).find("type") : nullptr,
                     *tools = Fields(body).find("tools");
  if (!type || *type == "function" || !tools || !tools->is_array()) return false;
  return std::ranges::any_of(*tools, [&](const ordered_json& tool) {
    const ordered_json* other = tool.is_object() ? Fields(tool).find("type") : nullptr;
    return other && *other == *type;
  });
}

}  // namespace

ToolChoice read_tool_choice(const ordered_json& body, const ordered_json& tools) {
  const ordered_json* choice = Fields(body).find(kField);
  if (!choice || *choice == "auto" || *choice == "none" || chooses_skipped(body, *choice)) return {};
  ToolChoice out{.required = true};
  if (choice->is_object() && Fields(*choice).find("type") && (*choice)["type"] == "allowed_tools") {
    out = allowed_of(*choice);
  } else if (*choice != "required") {
    const std::string* name = choice->is_object() && choice->contains("function") ? name_in(*choice) : nullptr;
    if (!name) refuse_choice();
    out.one = true;
    out.names = {*name};
  }
  std::set<std::string> offered;
  if (!tools.is_null()) {
    for (const ordered_json& tool : tools) offered.insert(tool["function"]["name"].get<std::string>());
  }
  const bool known = !out.names || std::ranges::includes(offered, *out.names);
  if (!known || offered.empty() || (out.names && out.names->empty()))
    refuse("'tool_choice' asks for a function that 'tools' does not have", kField);
  return out;
}

}  // namespace braid::serve
