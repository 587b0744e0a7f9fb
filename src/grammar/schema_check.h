// A JSON Schema before it is compiled: every keyword is known and has a value of its kind, also where only a $ref
// leads.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace braid::grammar {

// Error, beginning with `where`, names the keyword and the JSON pointer of the schema that has it.
void check_schema(const nlohmann::ordered_json& schema, std::string_view where);

// Says nothing about which values are valid: title, description, ...
bool is_annotation(std::string_view keyword);

// `pointer` of a JSON pointer's step.
std::string pointer_step(std::string_view key);

}  // namespace braid::grammar
