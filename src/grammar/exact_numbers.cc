#include "grammar/exact_numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "io/ordered_json.h"

namespace braid::grammar {
namespace {

using Json = nlohmann::ordered_json;

// Holds integers of 64 bits and doubles exactly.
using Wide = long double;
static_assert(std::numeric_limits<Wide>::digits >= 64);

double double_of(const Json& number) {
  const auto digits = io::digits_of(number);
  return digits ? std::strtod(digits->c_str(), nullptr) : number.get<double>();
}

std::string digits_of_whole(const Json& number) {
  if (const auto digits = io::digits_of(number)) return *digits;
  const std::string digits = number.is_number_float() ? fmt::format("{:.0f}", number.get<double>()) : number.dump();
  return digits == "-0" ? "0" : digits;
}

int sign_of(const std::string& digits) { return digits.starts_with('-') ? -1 : 1; }

int compare_digits(const std::string& a, const std::string& b) {
  if (sign_of(a) != sign_of(b)) return sign_of(a);
  const int larger = a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
  return sign_of(a) * larger;
}

// Of a whole number beyond 64 bits (below -2^63, or from 2^64 on) with another one.
int compare_beyond(const std::string& digits, const Json& other) {
  if (const auto more = io::digits_of(other)) return compare_digits(digits, *more);
  const Wide value = wide_of(other);
  const int sign = sign_of(digits);
  if (sign < 0 ? value >= -0x1p63L : value < 0x1p64L) return sign;
  return compare_digits(digits, fmt::format("{:.0f}", other.get<double>()));  // all its digits: doubles there are whole
}

// value modulo `of`, digit by digit.
uint64_t remainder_of(const std::string& digits, uint64_t of) {
  unsigned __int128 rest = 0;
  for (const char digit : digits) {
    if (digit != '-') rest = (rest * 10 + static_cast<unsigned>(digit - '0')) % of;
  }
  return static_cast<uint64_t>(rest);
}

}  // namespace

bool is_number(const Json& value) { return value.is_number() || io::digits_of(value); }

bool is_whole(const Json& number) {
  if (!number.is_number_float()) return true;
  const double value = number.get<double>();
  return value == std::trunc(value);
}

Wide wide_of(const Json& number) {
  if (number.is_number_unsigned()) return static_cast<Wide>(number.get<uint64_t>());
  if (number.is_number_integer()) return static_cast<Wide>(number.get<int64_t>());
  return static_cast<Wide>(number.get<double>());
}

int compare_numbers(const Json& a, const Json& b) {
  if (const auto digits = io::digits_of(a)) return compare_beyond(*digits, b);
  if (const auto digits = io::digits_of(b)) return -compare_beyond(*digits, a);
  const Wide first = wide_of(a), second = wide_of(b);
  return first < second ? -1 : first > second ? 1 : 0;
}

bool is_multiple(const Json& value, const Json& of) {
  const bool integers = !value.is_number_float() && of.is_number_integer();
  if (integers && of != 0) {
    const std::string step = of.dump();
    return remainder_of(digits_of_whole(value), std::strtoull(step.c_str() + (step[0] == '-' ? 1 : 0), nullptr, 10)) ==
           0;
  }
  const double quotient = double_of(value) / double_of(of);
  return quotient == std::trunc(quotient);
}

nlohmann::json canonical(const Json& value) {
  if (value.is_array()) {
    nlohmann::json out = nlohmann::json::array();
    for (const Json& one : value) out.push_back(canonical(one));
    return out;
  }
  if (value.is_object()) {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [key, one] : value.items()) out[key] = canonical(one);
    return out;
  }
  if (!is_number(value) || !is_whole(value)) return value;
  const std::string digits = digits_of_whole(value);
  return nlohmann::json::binary({digits.begin(), digits.end()});
}

}  // namespace braid::grammar
