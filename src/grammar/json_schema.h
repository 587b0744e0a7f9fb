// JSON Schema (draft 2020-12) as a program: what OpenAI's structured outputs accept and pydantic's model_json_schema()
// writes.
//
// Enforced: type, enum, const, properties, required, additionalProperties, propertyNames, minProperties and
// maxProperties (of objects without `properties`), patternProperties (of one pattern, without other keys), items,
// prefixItems, minItems, maxItems, minLength, maxLength, pattern (grammar/regex.h), format, minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, multipleOf, anyOf, oneOf (one_of.h), allOf, $ref into the schema itself. Ignored:
// title, description, default, examples, discriminator and other annotations, but where a $ref leads into them. Any
// other keyword is an Error that names it and its place.
//
// The texts are a subset of the valid ones, chosen so that models write well: properties come in the schema's order,
// objects with `properties` have others only where additionalProperties is given, a pattern describes the whole string,
// numbers have a bounded number of digits, white space is bounded (json_text.h).
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

#include "grammar/program.h"

namespace braid::grammar {

// Error, beginning with `where`, when the schema is not one, has more than 10,000 values, nests deeper than 64, or uses
// what is not supported.
RuleId json_schema(Builder& b, const nlohmann::ordered_json& schema, std::string_view where);

// The properties of an object's schema in the XML form of tool calls (grammar/tool_calls.h):
// <parameter=NAME>\nVALUE\n</parameter>\n for each.
RuleId xml_parameters(Builder& b, const nlohmann::ordered_json& schema, std::string_view where);

}  // namespace braid::grammar
