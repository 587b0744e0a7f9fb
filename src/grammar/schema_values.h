// Single values under schemas that combine no others: what enum and const allow beside further keywords.
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace braid::grammar {

// null: the schema has no such keyword.
const nlohmann::ordered_json* keyword_in(const nlohmann::ordered_json& schema, const char* keyword);

// As JSON Schema compares values: whatever the order of keys, and 1 is 1.0.
bool same_value(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);
using ValueSet = std::set<nlohmann::json>;  // in their canonical form (exact_numbers.h)
ValueSet value_set(const nlohmann::ordered_json& list);

// How many values a JSON value consists of, itself included.
int64_t count_values(const nlohmann::ordered_json& value);

// By the name that the keyword `type` has for it.
bool has_type(const nlohmann::ordered_json& value, const std::string& type);

// Whether a value satisfies a keyword of a checked schema. Unknown: a format or a pattern, or a keyword for the inside
// of an array or object.
enum class Holds { no, yes, unknown };
Holds holds(const nlohmann::ordered_json& value, const std::string& keyword, const nlohmann::ordered_json& operand);

// The values of enum and const for which the other keywords are known to hold; a pattern is searched for in texts, as
// validators do. Error, beginning with `where`, for a value that is an array or object beside keywords for its inside.
std::vector<nlohmann::ordered_json> listed_values(const nlohmann::ordered_json& schema, std::string_view where);

}  // namespace braid::grammar
