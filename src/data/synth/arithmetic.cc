// Addition, subtraction, multiplication and comparison, with the schoolbook's steps:
//   387+458          387-458             387*58+000;
//   7+8+0=15;5       3<4                 7*8=56+0+0=56;6     product, + carry + kept digit; what is written so far
//   8+5+1=14;45      458-387             8*8=64+5+0=69;96
//   3+4+1=08;845     8-7-0=1-00;1        3*8=24+6+0=30;3096
//                    5-8-0=7-10;71       387*5+309;6         what is left to do; the 6 is final
//                    4-3-1=0-00;071      ...
// Each line ends in the result so far; the carry is the first digit after "=", the borrow the digit after "-".
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "data/synth/holdout.h"
#include "data/synth/task.h"

namespace braid::synth {
namespace {

using Forms = std::span<const std::string_view>;

constexpr std::string_view kAddition[] = {
    "What is {a} + {b}?",
    "{a} + {b}",
    "{a}+{b}",
    "{a} + {b} =",
    "What is {a} plus {b}?",
    "Add {a} and {b}.",
    "Compute {a} + {b}.",
    "How much is {a} plus {b}?",
    "What is the sum of {a} and {b}?",
    "Calculate {a} + {b}",
    "what's {a} + {b}",
    "Please add {a} to {b}.",
    "Use the calculator: {a} + {b}",
    "Work out {a} + {b} for me.",
    "{a} and {b} together?",
    "Total of {a} and {b}",
    "{a} plus {b}",
    "could you add {a} and {b}",
};
constexpr std::string_view kSubtraction[] = {
    "What is {a} - {b}?",
    "{a} - {b}",
    "{a}-{b}",
    "{a} - {b} =",
    "What is {a} minus {b}?",
    "Subtract {b} from {a}.",
    "Compute {a} - {b}.",
    "How much is {a} minus {b}?",
    "Take {b} away from {a}.",
    "Calculate {a} - {b}",
    "what's {a} - {b}",
    "Use the calculator: {a} - {b}",
    "Work out {a} - {b} for me.",
    "What remains of {a} without {b}?",
    "Difference: {a} - {b}",
    "{a} minus {b}",
};
constexpr std::string_view kMultiplication[] = {
    "What is {a} * {b}?",
    "{a} * {b}",
    "{a}*{b}",
    "{a} * {b} =",
    "What is {a} times {b}?",
    "Multiply {a} by {b}.",
    "Compute {a} * {b}.",
    "How much is {a} times {b}?",
    "What is the product of {a} and {b}?",
    "Calculate {a} * {b}",
    "what's {a} * {b}",
    "{a} x {b}",
    "{a}x{b}",
    "Use the calculator: {a} * {b}",
    "Work out {a} * {b} for me.",
    "{a} times {b}",
    "What do you get if you multiply {a} and {b}?",
};
constexpr std::string_view kLarger[] = {
    "Which is larger, {a} or {b}?",  "Which number is bigger: {a} or {b}?", "What is the larger of {a} and {b}?",
    "Which is greater, {a} or {b}?", "{a} or {b}, which is larger?",        "The bigger one of {a} and {b}?",
};
constexpr std::string_view kSmaller[] = {
    "Which is smaller, {a} or {b}?",
    "Which number is less: {a} or {b}?",
    "What is the smaller of {a} and {b}?",
    "{a} or {b}, which is smaller?",
};
constexpr std::string_view kAskGreater[] = {"Is {a} greater than {b}?", "Is {a} > {b}?", "Is {a} larger than {b}?",
                                            "Is {a} more than {b}?"};
constexpr std::string_view kAskLess[] = {"Is {a} less than {b}?", "Is {a} < {b}?", "Is {a} smaller than {b}?"};
constexpr std::string_view kCompare[] = {"Compare {a} and {b}.", "Compare {a} with {b}.",
                                         "Put <, = or > between {a} and {b}."};

int width_of(int64_t n) { return static_cast<int>(std::to_string(n).size()); }
std::string padded(int64_t n, int width) { return fmt::format("{:0{}}", n, width); }

// Digits from the last to the first.
std::array<int, 3> digits_of(int64_t n) {
  return {static_cast<int>(n % 10), static_cast<int>(n / 10 % 10), static_cast<int>(n / 100)};
}

// Weights of one, two and three digits. Steps of a product grow with both factors: fewer long ones teach the same.
constexpr int64_t kLengths[] = {20, 35, 45}, kLengthsOfFactors[] = {20, 45, 35};

int64_t operand(Draw& draw, std::span<const int64_t> lengths) {
  constexpr int64_t kLeast[] = {0, 10, 100}, kMost[] = {9, 99, 999};
  const size_t digits = draw.weighted(lengths);
  return draw.between(kLeast[digits], kMost[digits]);
}

std::pair<int64_t, int64_t> operands(Draw& draw, Split split, std::span<const int64_t> lengths) {
  while (true) {
    const int64_t a = operand(draw, lengths), b = operand(draw, lengths);
    if (split == Split::train || held_out_pair(a, b)) return {a, b};
  }
}

std::string add_steps(int64_t a, int64_t b) {
  const int width = std::max(width_of(a), width_of(b));
  std::string out = fmt::format("{}+{}", padded(a, width), padded(b, width)), result;
  const auto da = digits_of(a), db = digits_of(b);
  for (int i = 0, carry = 0; i < width; ++i) {
    const size_t at = static_cast<size_t>(i);
    const int sum = da[at] + db[at] + carry;
    result.insert(0, i + 1 == width ? std::to_string(sum) : std::to_string(sum % 10));
    out += fmt::format("\n{}+{}+{}={:02};{}", da[at], db[at], carry, sum, result);
    carry = sum / 10;
  }
  return out;
}

char sign_of(int64_t a, int64_t b) { return a < b ? '<' : a > b ? '>' : '='; }

// Compares digit by digit from the first, until two differ.
std::string compare_steps(int64_t a, int64_t b) {
  const int width = std::max(width_of(a), width_of(b));
  const std::string left = padded(a, width), right = padded(b, width);
  std::string out;
  for (size_t i = 0; i < left.size(); ++i) {
    out += fmt::format("\n{}{}{}", left[i], sign_of(left[i], right[i]), right[i]);
    if (left[i] != right[i]) break;
  }
  return out;
}

std::string subtract_steps(int64_t a, int64_t b) {
  const int width = std::max(width_of(a), width_of(b));
  std::string out = fmt::format("{}-{}", padded(a, width), padded(b, width)) + compare_steps(a, b), result;
  if (a < b) {
    std::swap(a, b);
    out += fmt::format("\n{}-{}", padded(a, width), padded(b, width));
  }
  const auto da = digits_of(a), db = digits_of(b);
  for (int i = 0, borrow = 0; i < width; ++i) {
    const size_t at = static_cast<size_t>(i);
    const int difference = da[at] - db[at] - borrow, digit = (difference + 10) % 10;
    result.insert(0, std::to_string(digit));
    out += fmt::format("\n{}-{}-{}={}-{};{}", da[at], db[at], borrow, digit, difference < 0 ? "10" : "00", result);
    borrow = difference < 0 ? 1 : 0;
  }
  return out;
}

// The longer factor comes first. One pass for each digit of the other, from its last: it adds the result of earlier
// passes, and the last digit of every pass is final. Each pass begins with what is left to do, so that
// 387*58+000 = 10 * (387*5+309) + 6.
std::string multiply_steps(int64_t a, int64_t b) {
  if (width_of(a) < width_of(b)) std::swap(a, b);
  const int wide = width_of(a);
  const auto da = digits_of(a);
  std::string out, fixed;
  int64_t kept = 0;
  while (true) {
    const int factor = static_cast<int>(b % 10);
    out += fmt::format("{}*{}+{};{}", a, b, padded(kept, wide), fixed);
    const auto dk = digits_of(kept);
    std::string result;
    for (int i = 0, carry = 0; i < wide; ++i) {
      const size_t at = static_cast<size_t>(i);
      const int product = da[at] * factor, sum = product + carry + dk[at];
      result.insert(0, i + 1 == wide ? padded(sum, 2) : std::to_string(sum % 10));
      out += fmt::format("\n{}*{}={:02}+{}+{}={:02};{}", da[at], factor, product, carry, dk[at], sum, result);
      carry = sum / 10;
    }
    out += '\n';
    if (b < 10) return out + result + fixed;
    fixed.insert(0, result.substr(result.size() - 1));
    kept = (a * factor + kept) / 10;
    b /= 10;
  }
}

constexpr Forms kComparisons[] = {kLarger, kSmaller, kAskGreater, kAskLess, kCompare};

Turn comparison(Draw& draw, int64_t a, int64_t b) {
  const int64_t kind = draw.below(std::ssize(kComparisons));
  const char sign = sign_of(a, b);
  Turn turn{.task = "comparison",
            .user = fill(draw.pick(kComparisons[kind]), {{"a", std::to_string(a)}, {"b", std::to_string(b)}}),
            .reasoning = compare_thinking(a, b),
            .answer = {}};
  if (kind == 4) {
    turn.answer = fmt::format("{} {} {}", a, sign, b);
  } else if (kind >= 2) {
    turn.answer = sign == (kind == 2 ? '>' : '<') ? "Yes" : "No";
  } else {
    turn.answer = a == b ? "They are equal." : std::to_string(kind == 0 ? std::max(a, b) : std::min(a, b));
  }
  return turn;
}

}  // namespace

std::string compare_thinking(int64_t a, int64_t b) {
  const int width = std::max(width_of(a), width_of(b));
  return fmt::format("{} {}{}", padded(a, width), padded(b, width), compare_steps(a, b));
}

Turn solved(int64_t kind, int64_t a, int64_t b, std::string user) {
  constexpr const char* kNames[] = {"addition", "subtraction", "multiplication"};
  const int64_t results[] = {a + b, a - b, a * b};
  return {.task = kNames[kind],
          .user = std::move(user),
          .reasoning = kind == 0   ? add_steps(a, b)
                       : kind == 1 ? subtract_steps(a, b)
                                   : multiply_steps(a, b),
          .answer = std::to_string(results[kind])};
}

Turn arithmetic(Draw& draw, Split split, int64_t kind) {
  auto [a, b] = operands(draw, split, kind == 2 ? kLengthsOfFactors : kLengths);
  if (kind == 3) {
    const bool near = draw.percent(40);  // the first digits agree
    while (near) {
      b = std::clamp<int64_t>(a + draw.between(-12, 12), 0, kNumberMax);
      if (split == Split::train || held_out_pair(a, b)) break;
      a = draw.between(10, kNumberMax);
    }
    return comparison(draw, a, b);
  }
  return solved(kind, a, b, sum_asked(draw, kind, std::to_string(a), std::to_string(b)));
}

std::string sum_asked(Draw& draw, int64_t kind, const std::string& a, const std::string& b) {
  const Forms kForms[] = {kAddition, kSubtraction, kMultiplication, kComparisons[draw.below(std::ssize(kComparisons))]};
  return fill(draw.pick(kForms[kind]), {{"a", a}, {"b", b}});
}

}  // namespace braid::synth
