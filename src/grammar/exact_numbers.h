// Numbers in schemas and their values, compared as they are written: integers of 64 bits with either sign, integers
// beyond (io::digits_of) and doubles. nlohmann-json compares integers of different signs modulo 2^64, and an integer
// with a double as doubles, which differ less than integers do from 2^53 on.
#pragma once
#include <nlohmann/json.hpp>

namespace braid::grammar {

bool is_number(const nlohmann::ordered_json& value);  // also one beyond 64 bits
bool is_whole(const nlohmann::ordered_json& number);  // 2.0 is

// Exactly, of one of 64 bits or a double.
long double wide_of(const nlohmann::ordered_json& number);

// Of two numbers: below 0, 0 or above 0, as a is less, equal or greater.
int compare_numbers(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// Of integers by their remainder; where one is not written as an integer, by the quotient of doubles, as validators
// have it. `of` has 64 bits, or is a double.
bool is_multiple(const nlohmann::ordered_json& value, const nlohmann::ordered_json& of);

// With one form for each number, so that values which nlohmann-json finds equal are the same for JSON Schema.
nlohmann::json canonical(const nlohmann::ordered_json& value);

}  // namespace braid::grammar
