// What a JSON Schema says of the types of its values, through $ref, allOf, anyOf and oneOf. The grammar that enforces
// tool calls and the reader of them both ask here how a parameter is written, so that they cannot disagree.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace braid::io {

// The schema that a $ref leads to: "#" and a JSON pointer into `root`. null: it leads nowhere.
const nlohmann::ordered_json* schema_at(const nlohmann::ordered_json& root, const std::string& reference);

// The value of a parameter in the XML form of tool calls.
enum class ParameterForm {
  unknown,       // the schema has no such parameter: plain text, and "null" is null (as vLLM's reader has it)
  json,          // as JSON
  text,          // all its values are strings: plain text
  optional_text  // strings or null: "null" is null, a JSON string is that string, anything else is plain text
};
// Of the parameter `name` of an object's schema, which need not be a valid one. Its alternatives are taken together.
ParameterForm parameter_form(const nlohmann::ordered_json& parameters, const std::string& name);

}  // namespace braid::io
