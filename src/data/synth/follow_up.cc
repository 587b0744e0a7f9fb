// Questions about the answer of the turn before: arithmetic on a number, its name in words, puzzles on letters. Their
// thinking begins with that answer, copied.
#include <algorithm>

#include <fmt/format.h>

#include "data/synth/task.h"
#include "data/synth/text.h"

namespace braid::synth {
namespace {

using Forms = std::span<const std::string_view>;

constexpr std::string_view kAdd[] = {"Add {b} to that.",       "And plus {b}?",      "plus {b}",     "Now add {b}.",
                                     "Add {b} to the result.", "What if I add {b}?", "and {b} more", "+ {b}",
                                     "Then add {b} to it."};
constexpr std::string_view kSubtract[] = {
    "Subtract {b} from that.", "And minus {b}?", "minus {b}",    "Now take away {b}.",
    "Take {b} away from it.",  "- {b}",          "and {b} less", "Subtract {b} from the result."};
constexpr std::string_view kMultiply[] = {
    "Multiply that by {b}.", "And times {b}?", "times {b}", "Now times {b}.", "Multiply the result by {b}.", "* {b}"};
constexpr std::string_view kDouble[] = {"Double it.", "Double that.", "Twice that?", "Now double the result."};
constexpr std::string_view kGreater[] = {"Is that more than {b}?", "Is that greater than {b}?",
                                         "Is it larger than {b}?"};
constexpr std::string_view kLess[] = {"Is that less than {b}?", "Is it smaller than {b}?"};
constexpr std::string_view kInWords[] = {"And in words?",    "Write that in words.",          "in words please",
                                         "Say it in words.", "How is that written in words?", "Spell out that number.",
                                         "Now as words."};

constexpr std::string_view kReverseIt[] = {"Reverse that.", "Now backwards.", "Turn it around.", "And reversed?"};
constexpr std::string_view kCountIn[] = {"How many {c} are in it?", "And how many {c} does that have?",
                                         "Count the {c} in that."};
constexpr std::string_view kLengthOfIt[] = {"How many letters is that?", "How long is that?", "And its length?"};
constexpr std::string_view kSortIt[] = {"Sort its letters.", "Sort that.", "Now put the letters in order."};

int64_t second_number(Draw& draw) {
  return draw.percent(40) ? draw.between(1, 9) : draw.between(10, draw.percent(60) ? 99 : kNumberMax);
}

Turn of_number(Draw& draw, int64_t n) {
  enum : size_t { kAdds, kSubtracts, kMultiplies, kDoubles, kIsGreater, kIsLess, kWords };
  constexpr int64_t kWeights[] = {25, 20, 10, 8, 6, 6, 25};
  constexpr Forms kForms[] = {kAdd, kSubtract, kMultiply, kDouble, kGreater, kLess, kInWords};
  const size_t kind = draw.weighted(kWeights);
  const int64_t b = kind == kDoubles      ? 2
                    : kind == kMultiplies ? draw.between(2, draw.percent(70) ? 9 : 99)
                                          : second_number(draw);
  std::string user = fill(draw.pick(kForms[kind]), {{"b", std::to_string(b)}});
  switch (kind) {
    case kAdds:
      return solved(0, n, b, std::move(user));
    case kSubtracts:
      return solved(1, n, b, std::move(user));
    case kMultiplies:
    case kDoubles:
      return solved(2, n, b, std::move(user));
    case kWords:
      return {.task = "in words", .user = std::move(user), .reasoning = std::to_string(n), .answer = in_words(n)};
    default:
      return {.task = "comparison",
              .user = std::move(user),
              .reasoning = compare_thinking(n, b),
              .answer = (kind == kIsGreater ? n > b : n < b) ? "Yes" : "No"};
  }
}

Turn of_letters(Draw& draw, const std::string& word) {
  constexpr Forms kForms[] = {kReverseIt, kCountIn, kLengthOfIt, kSortIt};
  const int64_t kind = draw.below(std::ssize(kForms));
  const char wanted = letter_for(draw, word);
  Turn turn = puzzle(kind, word, wanted, fill(draw.pick(kForms[kind]), {{"c", std::string(1, wanted)}}));
  turn.reasoning = word + "\n" + turn.reasoning;  // copied first, like a word in lower case
  return turn;
}

}  // namespace

std::string in_words(int64_t n) {
  constexpr const char* kSmall[] = {"zero",     "one",     "two",     "three",     "four",     "five",    "six",
                                    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
                                    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  constexpr const char* kTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                   "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (n < 20) return kSmall[n];
  if (n < 100) return n % 10 ? fmt::format("{}-{}", kTens[n / 10], kSmall[n % 10]) : kTens[n / 10];
  const std::string hundreds = fmt::format("{} hundred", kSmall[n / 100]);
  return n % 100 ? hundreds + " " + in_words(n % 100) : hundreds;
}

std::optional<Turn> follow_up(Draw& draw, const Turn& before) {
  const std::string& said = before.answer;
  if (!said.empty() && said.size() <= 3 && std::ranges::all_of(said, is_digit)) return of_number(draw, number_of(said));
  if (before.puzzle && said.size() > 1 && std::ranges::all_of(said, is_letter)) return of_letters(draw, said);
  return std::nullopt;
}

}  // namespace braid::synth
