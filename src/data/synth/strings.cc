// Puzzles on words and short lists. Strings are in capitals, one token each; a lower-case word is spelled in capitals
// first.
//   reverse PLANE  1P2L3A4N5E / 5E4N3A2L1P         number the letters, then walk back by number
//   count A        B0A1N1A2N2A3                    the count so far after each letter
//   length         P1L2A3N4E5
//   sort PLANE     P / LP / ALP / ALNP / AELNP     insertion, one line per letter; numbers likewise
// Words in capitals are one puzzle more, which needs no thinking: how the pieces of a vocabulary are spelled.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "data/synth/holdout.h"
#include "data/synth/task.h"
#include "data/synth/text.h"
#include "data/synth/words.h"

namespace braid::synth {
namespace {

using Forms = std::span<const std::string_view>;

constexpr const char* kNames[] = {"reverse", "count", "length", "sort letters"};

constexpr std::string_view kReverse[] = {
    "Reverse {w}.",
    "Reverse the word {w}.",
    "Reverse the letters of {w}.",
    "Write {w} backwards.",
    "Spell {w} backwards.",
    "What is {w} backwards?",
    "reverse {w}",
    "Can you reverse {w}?",
    "Turn {w} around.",
    "{w} backwards",
    "backwards: {w}",
    "Please reverse {w} for me.",
    "What does {w} read from right to left?",
};
constexpr std::string_view kCount[] = {
    "How many {c} are in {w}?",    "How many times does {c} appear in {w}?",
    "Count the {c} in {w}.",       "How often does {c} occur in {w}?",
    "How many {c} does {w} have?", "Count the letter {c} in {w}.",
    "How many {c}'s are in {w}?",  "How many {c}s are there in {w}?",
    "How many {c}'s in {w}",       "{c} in {w}: how many?",
    "number of {c} in {w}",        "How many times is {c} in the word {w}?",
};
constexpr std::string_view kLength[] = {
    "How many letters does {w} have?",
    "How many letters are in {w}?",
    "How long is the word {w}?",
    "Count the letters of {w}.",
    "What is the length of {w}?",
    "How many letters in {w}",
    "length of {w}",
};
constexpr std::string_view kSortLetters[] = {
    "Sort the letters of {w}.",
    "Sort {w}.",
    "Put the letters of {w} in order.",
    "Sort the letters in {w} alphabetically.",
    "sort {w}",
    "Alphabetical order of the letters in {w}?",
    "Arrange the letters of {w} from A to Z.",
};
constexpr std::string_view kSortNumbers[] = {
    "Sort {l}.",
    "Sort these numbers: {l}",
    "Put {l} in order.",
    "Sort the numbers {l}.",
    "Order these from small to large: {l}",
};

constexpr std::string_view kInCapitals[] = {
    "Write {w} in capitals.",
    "{w} in capitals",
    "Put {w} in capital letters.",
    "Capitals: {w}",
    "{w} in upper case",
    "Convert {w} to upper case.",
    "Please write {w} in capital letters.",
    "How does {w} look in capitals?",
};

// Letters at random, some of them repeated.
std::string random_letters(Draw& draw) {
  std::string out;
  for (int64_t left = draw.between(2, kLettersMax); left > 0; --left) {
    const bool again = !out.empty() && draw.percent(15);
    out += again ? out[static_cast<size_t>(draw.below(std::ssize(out)))] : static_cast<char>('A' + draw.below(26));
  }
  return out;
}

// The beginning of a word and the end of another: the pieces of words, in other places.
std::string blended_word(Draw& draw) {
  const std::string_view first = draw.pick(words()), second = draw.pick(words());
  std::string out(first.substr(0, static_cast<size_t>(draw.between(1, std::ssize(first)))));
  out.append(second.substr(static_cast<size_t>(draw.below(std::ssize(second)))));
  out.resize(std::min(out.size(), static_cast<size_t>(kLettersMax)));
  return out;
}

std::string word_of(Draw& draw) {
  constexpr int64_t kWeights[] = {40, 30, 30};
  switch (draw.weighted(kWeights)) {
    case 0:
      return std::string(draw.pick(words()));
    case 1:
      return invented_word(draw, 2, kLettersMax);
    default:
      return blended_word(draw);
  }
}

// Words and invented ones in lower case or as people also write them, and random letters in capitals.
std::string text_of(Draw& draw) {
  constexpr int64_t kLower = 0, kCapitals = 1, kTitle = 2, kMixed = 3;
  constexpr int64_t kWeights[] = {45, 12, 8, 7, 28};
  const auto kind = static_cast<int64_t>(draw.weighted(kWeights));
  if (kind > kMixed) return random_letters(draw);
  std::string out = word_of(draw);
  for (size_t i = 0; i < out.size() && kind != kLower; ++i) {
    if (kind == kCapitals || (kind == kTitle ? i == 0 : draw.percent(50))) out[i] = upper(out[i]);
  }
  return out;
}

// Now and then in quotes.
std::string quoted(Draw& draw, const std::string& text) {
  if (!draw.percent(15)) return text;
  const char* mark = draw.percent(50) ? "\"" : "'";
  return mark + text + mark;
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
  } while (split == Split::test && !held_out_list(numbers));
  std::vector<int64_t> sorted;
  std::string steps;
  for (const int64_t n : numbers) {
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), n), n);
    steps += (steps.empty() ? "" : "\n") + list_of(sorted);
  }
  return {.task = "sort numbers",
          .user = fill(draw.pick(kSortNumbers), {{"l", list}}),
          .reasoning = steps,
          .answer = list_of(sorted),
          .puzzle = true};
}

}  // namespace

Turn puzzle(int64_t kind, const std::string& shown, char wanted, std::string user) {
  const std::string word = capitals(shown), spelled = shown == word ? "" : word + "\n";
  Turn turn{.task = kNames[kind], .user = std::move(user), .reasoning = spelled, .answer = word, .puzzle = true};
  switch (kind) {
    case 0:
      turn.reasoning += reverse_steps(word);
      std::ranges::reverse(turn.answer);
      break;
    case 1:
      turn.reasoning += fmt::format("{}: {}", wanted, count_steps(word, wanted));
      turn.answer = std::to_string(std::ranges::count(word, wanted));
      break;
    case 2:
      turn.reasoning += count_steps(word, std::nullopt);
      turn.answer = std::to_string(word.size());
      break;
    default:
      turn.reasoning += sort_steps(word);
      std::ranges::sort(turn.answer);
  }
  return turn;
}

char letter_for(Draw& draw, std::string_view word) {
  return draw.percent(85) ? word[static_cast<size_t>(draw.below(std::ssize(word)))]
                          : static_cast<char>('A' + draw.below(26));
}

Turn strings(Draw& draw, Split split, int64_t kind) {
  if (kind == 4) return sort_numbers(draw, split);
  std::string shown;
  do shown = text_of(draw);
  while (split == Split::test && !held_out_word(capitals(shown)));
  const char wanted = letter_for(draw, capitals(shown));
  return puzzle(kind, shown, wanted, puzzle_asked(draw, kind, shown, wanted));
}

Turn in_capitals(Draw& draw) {
  std::string list;
  for (int64_t left = draw.between(1, 6); left > 0; --left) list += (list.empty() ? "" : ", ") + word_of(draw);
  return {.task = "capitals",
          .user = fill(draw.pick(kInCapitals), {{"w", list}}),
          .reasoning = "This needs no steps.",
          .answer = capitals(list),
          .puzzle = true};
}

std::string puzzle_asked(Draw& draw, int64_t kind, const std::string& shown, char wanted) {
  constexpr Forms kForms[] = {kReverse, kCount, kLength, kSortLetters};
  const std::string letter(1, draw.percent(25) ? lower(wanted) : wanted);
  const std::string word = quoted(draw, shown), one = quoted(draw, letter);
  return fill(draw.pick(kForms[kind]), {{"w", word}, {"c", one}});
}

}  // namespace braid::synth
