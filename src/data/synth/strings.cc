// Puzzles on words and short lists. Strings are in capitals, one token each; a lower-case word is spelled in capitals
// first.
//   reverse PLANE  1P2L3A4N5E / 5E4N3A2L1P         number the letters, then walk back by number
//   count A        B0A1N1A2N2A3                    the count so far after each letter
//   length         P1L2A3N4E5
//   sort PLANE     P / LP / ALP / ALNP / AELNP     insertion, one line per letter; numbers likewise
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "data/synth/task.h"
#include "data/synth/words.h"

namespace braid::synth {
namespace {

constexpr std::string_view kReverse[] = {
    "Reverse {w}.",         "Reverse the word {w}.", "Reverse the letters of {w}.",
    "Write {w} backwards.", "Spell {w} backwards.",  "What is {w} backwards?",
    "reverse {w}",          "Can you reverse {w}?",  "Turn {w} around.",
};
constexpr std::string_view kCount[] = {
    "How many {c} are in {w}?",    "How many times does {c} appear in {w}?",
    "Count the {c} in {w}.",       "How often does {c} occur in {w}?",
    "How many {c} does {w} have?", "Count the letter {c} in {w}.",
};
constexpr std::string_view kLength[] = {
    "How many letters does {w} have?", "How many letters are in {w}?", "How long is the word {w}?",
    "Count the letters of {w}.",       "What is the length of {w}?",
};
constexpr std::string_view kSortLetters[] = {
    "Sort the letters of {w}.",
    "Sort {w}.",
    "Put the letters of {w} in order.",
    "Sort the letters in {w} alphabetically.",
};
constexpr std::string_view kSortNumbers[] = {
    "Sort {l}.",
    "Sort these numbers: {l}",
    "Put {l} in order.",
    "Sort the numbers {l}.",
    "Order these from small to large: {l}",
};
constexpr int64_t kLettersMax = 8;

std::string capitals(std::string_view word) {
  std::string out(word);
  for (char& ch : out) ch = ch >= 'a' && ch <= 'z' ? static_cast<char>(ch - 'a' + 'A') : ch;
  return out;
}

// Two in five a word in lower case, one in capitals, the rest random letters, some of them repeated.
std::string text_of(Draw& draw) {
  if (draw.percent(40)) return std::string(draw.pick(words()));
  if (draw.percent(35)) return capitals(draw.pick(words()));
  std::string out;
  for (int64_t left = draw.between(2, kLettersMax); left > 0; --left) {
    const bool again = !out.empty() && draw.percent(15);
    out += again ? out[static_cast<size_t>(draw.below(std::ssize(out)))] : static_cast<char>('A' + draw.below(26));
  }
  return out;
}

std::string reverse_steps(const std::string& w) {
  std::string forward, back;
  for (size_t i = 0; i < w.size(); ++i) forward += fmt::format("{}{}", i + 1, w[i]);
  for (size_t i = w.size(); i > 0; --i) back += fmt::format("{}{}", i, w[i - 1]);
  return forward + "\n" + back;
}

std::string count_steps(const std::string& w, std::optional<char> wanted) {
  std::string out;
  int count = 0;
  for (const char ch : w) out += fmt::format("{}{}", ch, count += !wanted || ch == *wanted);
  return out;
}

std::string sort_steps(const std::string& w) {
  std::string out, sorted;
  for (const char ch : w) {
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), ch), ch);
    out += (out.empty() ? "" : "\n") + sorted;
  }
  return out;
}

std::string list_of(const std::vector<int64_t>& numbers) { return fmt::format("{}", fmt::join(numbers, ", ")); }

Turn sort_numbers(Draw& draw, Split split) {
  std::vector<int64_t> numbers;
  std::string list;
  do {
    numbers.clear();
    for (int64_t left = draw.between(2, 5); left > 0; --left)
      numbers.push_back(draw.below(draw.percent(20) ? 10 : 100));
    list = list_of(numbers);
  } while (held_out(list) != (split == Split::test));
  std::vector<int64_t> sorted;
  std::string steps;
  for (const int64_t n : numbers) {
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), n), n);
    steps += (steps.empty() ? "" : "\n") + list_of(sorted);
  }
  return {.task = "sort numbers",
          .user = fill(draw.pick(kSortNumbers), {{"l", list}}),
          .reasoning = steps,
          .answer = list_of(sorted)};
}

}  // namespace

Turn strings(Draw& draw, Split split, int64_t kind) {
  if (kind == 4) return sort_numbers(draw, split);
  std::string word, shown, problem;
  char wanted = 'A';
  do {
    shown = text_of(draw);
    word = capitals(shown);
    wanted = draw.percent(85) ? word[static_cast<size_t>(draw.below(std::ssize(word)))]
                              : static_cast<char>('A' + draw.below(26));
    problem = fmt::format("{} {}{}", kind, word, kind == 1 ? fmt::format(" {}", wanted) : "");
  } while (held_out(problem) != (split == Split::test));
  const std::string spelled = shown == word ? "" : word + "\n";
  switch (kind) {
    case 0:
      return {.task = "reverse",
              .user = fill(draw.pick(kReverse), {{"w", shown}}),
              .reasoning = spelled + reverse_steps(word),
              .answer = std::string(word.rbegin(), word.rend())};
    case 1:
      return {.task = "count",
              .user = fill(draw.pick(kCount), {{"w", shown}, {"c", std::string(1, wanted)}}),
              .reasoning = fmt::format("{}{}: {}", spelled, wanted, count_steps(word, wanted)),
              .answer = std::to_string(std::count(word.begin(), word.end(), wanted))};
    case 2:
      return {.task = "length",
              .user = fill(draw.pick(kLength), {{"w", shown}}),
              .reasoning = spelled + count_steps(word, std::nullopt),
              .answer = std::to_string(word.size())};
    default: {
      std::string sorted = word;
      std::sort(sorted.begin(), sorted.end());
      return {.task = "sort letters",
              .user = fill(draw.pick(kSortLetters), {{"w", shown}}),
              .reasoning = spelled + sort_steps(word),
              .answer = sorted};
    }
  }
}

}  // namespace braid::synth
