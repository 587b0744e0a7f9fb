// Sums too large for the written steps, for the calculator: the expression is copied from the question, digit by digit.
#include <fmt/format.h>

#include "data/synth/holdout.h"
#include "data/synth/task.h"

namespace braid::synth {
namespace {

constexpr std::string_view kAsked[] = {
    "What is {e}?", "Calculate {e}.",          "{e}",     "How much is {e}?",
    "Compute {e}.", "Use the calculator: {e}", "{e} = ?", "Work out {e} for me.",
};
// The sign in the question, and in the expression.
struct Operator {
  std::string_view asked, sign;
};
constexpr Operator kOperators[] = {{"+", "+"}, {"-", "-"}, {"*", "*"}, {"plus", "+"}, {"minus", "-"}, {"times", "*"}};

int64_t number(Draw& draw) {
  int64_t n = draw.between(1, 9);
  for (int64_t more = draw.between(1, 5); more > 0; --more) n = n * 10 + draw.below(10);
  return n;
}

int64_t apply(std::string_view sign, int64_t a, int64_t b) { return sign == "+" ? a + b : sign == "-" ? a - b : a * b; }

// Three terms at most; a product binds first.
struct Expression {
  std::string asked, text;
  int64_t value = 0, first = 0, second = 0;
};

Expression expression(Draw& draw) {
  if (draw.percent(15)) {  // a division that comes out even
    const int64_t b = draw.between(2, 999), value = draw.between(2, 9999);
    const std::string asked = draw.percent(50) ? "divided by" : "/";
    return {fmt::format("{} {} {}", b * value, asked, b), fmt::format("{} / {}", b * value, b), value, b * value, b};
  }
  const int64_t a = number(draw), b = number(draw);
  const Operator first = draw.pick(kOperators);
  Expression e{.asked = fmt::format("{} {} {}", a, first.asked, b),
               .text = fmt::format("{} {} {}", a, first.sign, b),
               .value = apply(first.sign, a, b),
               .first = a,
               .second = b};
  if (!draw.percent(30)) return e;
  const int64_t c = draw.between(2, 999);
  const Operator second = draw.pick(kOperators);
  e.asked += fmt::format(" {} {}", second.asked, c);
  e.text += fmt::format(" {} {}", second.sign, c);
  const bool late = second.sign == "*" && first.sign != "*";
  e.value = late ? apply(first.sign, a, b * c) : apply(second.sign, e.value, c);
  return e;
}

}  // namespace

Turn calculator(Draw& draw, Split split) {
  Expression e;
  do e = expression(draw);
  while (split == Split::test && !held_out_pair(e.first, e.second));
  return {.task = "calculator",
          .user = fill(draw.pick(kAsked), {{"e", e.asked}}),
          .reasoning = "The calculator does this.",
          .answer = std::to_string(e.value),
          .expression = e.text};
}

}  // namespace braid::synth
