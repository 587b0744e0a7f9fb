#include "environments/built_in.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/synth/holdout.h"
#include "data/synth/task.h"
#include "environments/forms.h"
#include "text/tool_calls.h"

namespace braid::environments {
namespace {

using nlohmann::ordered_json;
using synth::Draw;

ordered_json asked(const std::string& text) {
  return ordered_json::array({ordered_json{{"role", "user"}, {"content", text}}});
}

// Draws until nothing of the problem is held out for the tests of models/tiny.
template <class Make>
synth::Turn trainable(const Make& make) {
  synth::Turn turn;
  do turn = make();
  while (synth::mentions_held_out(turn));
  return turn;
}

Problem problem_of(const synth::Turn& turn) { return {.messages = asked(turn.user), .secret = turn.answer}; }

double equals(const Problem& problem, const std::string& answer) {
  return answer == problem.secret.get_ref<const std::string&>() ? 1 : 0;
}

// A number of so many digits.
int64_t number(Draw& draw, int64_t digits) {
  constexpr int64_t kLeast[] = {0, 0, 10, 100}, kMost[] = {0, 9, 99, 999};
  return draw.between(kLeast[digits], kMost[digits]);
}

Problem sum(Draw& draw, int64_t kind, int64_t digits, int64_t second_digits) {
  return problem_of(trainable([&] {
    const int64_t a = number(draw, digits), b = number(draw, second_digits);
    return synth::solved(kind, a, b, synth::sum_asked(draw, kind, std::to_string(a), std::to_string(b)));
  }));
}

// Level: digits of both numbers.
Problem addition(Draw& draw, int64_t level) { return sum(draw, 0, level + 1, level + 1); }
Problem subtraction(Draw& draw, int64_t level) { return sum(draw, 1, level + 1, level + 1); }
// 3 * 4, 37 * 4, 37 * 48.
Problem multiplication(Draw& draw, int64_t level) { return sum(draw, 2, level == 0 ? 1 : 2, level == 2 ? 2 : 1); }
Problem comparison(Draw& draw, int64_t) {
  return problem_of(trainable([&] { return synth::arithmetic(draw, synth::Split::train, 3); }));
}

// Two to five numbers.
Problem sorting(Draw& draw, int64_t level) {
  constexpr std::string_view kForms[] = {"Sort {l}.", "Sort these numbers: {l}", "Put {l} in order.",
                                         "Sort the numbers {l}.", "Order these from small to large: {l}"};
  return problem_of(trainable([&] {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < level + 2; ++i) numbers.push_back(draw.below(draw.percent(20) ? 10 : 100));
    std::string list = fmt::format("{}", fmt::join(numbers, ", "));
    std::ranges::sort(numbers);
    return synth::Turn{.task = "sort numbers",
                       .user = synth::fill(draw.pick(kForms), {{"l", std::move(list)}}),
                       .reasoning = {},
                       .answer = fmt::format("{}", fmt::join(numbers, ", ")),
                       .puzzle = true};
  }));
}

// Integers between commas, spaces or new lines; nothing for any other text.
std::optional<std::vector<int64_t>> listed(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr size_t kDigitsMax = 18;
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    const size_t digits = std::min(text.find_first_not_of(kDigits), text.size());
    if (digits == 0 || digits > kDigitsMax) return std::nullopt;
    numbers.push_back(std::stoll(std::string(text.substr(0, digits))));
    text.remove_prefix(digits);
    const size_t gap = std::min(text.find_first_of(kDigits), text.size());
    const std::string_view between = text.substr(0, gap);
    if (between.find_first_not_of(", \t\r\n") != between.npos || std::ranges::count(between, ',') > 1)
      return std::nullopt;
    if (gap == text.size() && gap > 0) return std::nullopt;  // a comma that nothing follows
    text.remove_prefix(gap);
  }
  return numbers;
}

double lists_alike(const Problem& problem, const std::string& answer) {
  const auto numbers = listed(answer);
  return numbers && numbers == listed(problem.secret.get_ref<const std::string&>()) ? 1 : 0;
}

constexpr std::string_view kOpening = "([{", kClosing = ")]}";

// The beginning of a text of brackets, and what closes all that is open: the only right answer.
Problem brackets(Draw& draw, int64_t level) {
  std::string text, open;
  for (int64_t left = 2 * (level + 1); left > 0 || open.empty(); --left) {
    if (!open.empty() && draw.percent(35)) {
      text += open.back();
      open.pop_back();
      continue;
    }
    const auto kind = static_cast<size_t>(draw.below(std::ssize(kOpening)));
    text += kOpening[kind];
    open += kClosing[kind];
  }
  std::ranges::reverse(open);
  return {.messages = asked("Close the brackets: " + text), .secret = open};
}

double closes(const Problem& problem, const std::string& answer) {
  std::string closing = answer;
  std::erase_if(closing, [](char ch) { return ch == ' '; });
  return closing == problem.secret.get_ref<const std::string&>() ? 1 : 0;
}

// One to four words, then five to eight, then up to sixteen.
Problem exact_length(Draw& draw, int64_t level) {
  const int64_t most = int64_t{4} << level, words = draw.between(level == 0 ? 1 : most / 2 + 1, most);
  return {
      .messages = asked(words == 1 ? "Answer in exactly 1 word." : fmt::format("Answer in exactly {} words.", words)),
      .secret = words};
}

double has_length(const Problem& problem, const std::string& answer) {
  int64_t words = 0;
  bool inside = false;
  for (const char ch : answer) {
    const bool space = ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r';
    words += !space && !inside;
    inside = !space;
  }
  return words == problem.secret.get<int64_t>() ? 1 : 0;
}

ordered_json calculator_tools() {
  return ordered_json::parse(R"([{"type": "function", "function": {
    "name": "calculator", "description": "Works out an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}])");
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

Problem tool_call(Draw& draw, int64_t) {
  const synth::Turn turn = trainable([&] { return synth::calculator(draw, synth::Split::train); });
  return {.messages = asked(turn.user), .tools = calculator_tools(), .secret = without_spaces(turn.expression)};
}

// One call, of the function that is offered, with the expression of the question.
double calls(const Problem& problem, const std::string& answer) {
  const text::ParsedAnswer parsed = text::parse_tool_calls(answer, problem.tools);
  if (parsed.calls.size() != 1 || !parsed.calls[0].complete || parsed.calls[0].name != "calculator") return 0;
  const ordered_json arguments = object_of(parsed.calls[0].arguments);
  if (!arguments.is_object() || arguments.size() != 1) return 0;
  constexpr std::string_view kParameter = "<parameter=";  // the reader drops a second one of that name
  if (const size_t at = answer.find(kParameter); at != answer.npos && answer.find(kParameter, at + 1) != answer.npos)
    return 0;
  const auto expression = arguments.find("expression");
  if (expression == arguments.end() || !expression->is_string()) return 0;
  return without_spaces(expression->get<std::string>()) == problem.secret.get_ref<const std::string&>() ? 1 : 0;
}

constexpr BuiltIn kTable[] = {
    {"addition", 3, addition, equals},
    {"subtraction", 3, subtraction, equals},
    {"multiplication", 3, multiplication, equals},
    {"comparison", 1, comparison, equals},
    {"sorting", 4, sorting, lists_alike},
    {"brackets", 4, brackets, closes},
    {"exact-length", 3, exact_length, has_length},
    {"tool-call", 1, tool_call, calls},
    {"json-schema", 3, schema_problem, satisfies_schema},
    {"regex", 3, regex_problem, matches_regex},
};

}  // namespace

std::span<const BuiltIn> built_in() { return kTable; }

}  // namespace braid::environments
