// Sums, products and powers of whole numbers beyond 64 bits, as Python computes them. Numbers have at most as many
// digits as Python prints.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace braid::text::jinja {

// a and b are decimal digits, after a sign if negative; op is +, - or *. Type error for a longer result.
std::string large_binary(std::string_view op, const std::string& a, const std::string& b);
std::string large_power(const std::string& base, int64_t exponent);  // of 0 or more

}  // namespace braid::text::jinja
