// Problems whose right answers are a form, of which there are many: JSON by a schema, texts of a regular expression.
// The judges are the programs that constrain answers of the server (grammar/): what one lets through, the other takes.
#pragma once
#include "environments/environment.h"

namespace braid::environments {

// The JSON of an answer, an object; null where it is not one, or where an object has a key twice, of which readers take
// either.
nlohmann::ordered_json object_of(const std::string& answer);

// An object with one to three properties; the schema is the secret. In any order.
Problem schema_problem(synth::Draw& draw, int64_t level);
double satisfies_schema(const Problem& problem, const std::string& answer);

// An expression of one to three parts.
Problem regex_problem(synth::Draw& draw, int64_t level);
double matches_regex(const Problem& problem, const std::string& answer);

}  // namespace braid::environments
