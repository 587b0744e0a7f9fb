// JSON numbers within bounds, digit by digit: an automaton follows the decimal digits of both bounds and the remainder
// of the digits so far.
//
// Integers have at most 15 digits (18 where a bound has more), numbers 15 digits of which at most 15 after the point,
// so that a reader who takes them for doubles sees what was checked; without bounds an exponent of at most two digits
// may follow.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/program.h"

namespace braid::grammar {

// A decimal number, exactly: value = digits * 10^-scale.
struct Decimal {
  int64_t digits = 0;
  int scale = 0;  // 0 to 15
};
bool operator<(const Decimal& a, const Decimal& b);  // exactly

// From the shortest text of a double, or of an integer. nullopt: more than 18 digits, or too small.
std::optional<Decimal> decimal_of(std::string_view text);

// Of a number with more than 15 digits after the point, the nearest that has 15, from above (`up`) or from below.
// nullopt: it has no more than 15, or more than 18 in all.
std::optional<Decimal> decimal_rounded(std::string_view text, bool up);

// Whether a number of too many digits is above all numbers of 15 digits (or below them all).
bool lies_beyond(std::string_view text, bool above);

struct NumberBounds {
  std::optional<Decimal> min{}, max{}, multiple{};
  bool min_exclusive = false, max_exclusive = false;
  bool integer = false;
};
// Error, beginning with `where`, for a multiple that cannot be enforced (zero, below it, or more than 1,000 steps of
// its last digit).
//
// Validators divide doubles: 0.3 is not a multiple of 0.1 for them, since 0.3 / 0.1 is not whole. Of a multiple that no
// double holds, those are allowed whose quotient is whole among the 10,000 next to zero on either side, and beyond them
// the whole numbers (where the error of the double cannot change their quotients).
StateId number(Builder& b, const NumberBounds& bounds, std::string_view where, StateId next);

}  // namespace braid::grammar
