#include "data/synth/holdout.h"

#include <algorithm>
#include <set>
#include <string>

#include "data/synth/text.h"
#include "data/synth/topics.h"
#include "data/synth/words.h"

namespace braid::synth {
namespace {

constexpr size_t kDigitsMax = 9;   // longer numbers are in no test
constexpr size_t kLettersMin = 3;  // the steps of every sort contain shorter strings
constexpr uint64_t kOneInWords = 8, kOneInLetters = 64, kOneInPairs = 64;

uint64_t hash_of(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, then a finaliser: the low bits of FNV alone are weak
  for (const char ch : key) hash = (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  return hash >> 40;
}

using Words = std::set<std::string, std::less<>>;

Words puzzle_words() {
  Words out;
  for (const std::string_view word : words()) out.insert(capitals(word));
  for (const std::span<const Topic> list : {topics(), courtesies()}) {
    for (const Topic& topic : list) {
      for (const std::string_view text : {topic.label, topic.answer}) {
        for (const std::string_view word : runs_of(text, is_letter)) out.erase(capitals(word));
      }
    }
  }
  return out;
}

bool connects(std::string_view between) {
  if (between.find_first_of("=;:\n") != between.npos) return false;
  const bool sign = between.size() == 1 && std::string_view("+-*/x<>,").find(between[0]) != std::string_view::npos;
  return sign || between.find(' ') != between.npos;
}

bool mentions_pair(std::string_view text) {
  std::string_view before;
  for (const std::string_view number : runs_of(text, is_digit)) {
    if (!before.empty() && std::max(before.size(), number.size()) <= kDigitsMax) {
      const auto* end = before.data() + before.size();
      if (connects({end, static_cast<size_t>(number.data() - end)}) &&
          held_out_pair(number_of(before), number_of(number)))
        return true;
    }
    before = number;
  }
  return false;
}

// Letters count as a word of their own if they are in capitals, and only in puzzles: elsewhere they are names (GGUF).
bool mentions_word(std::string_view text, bool puzzle) {
  static const Words known = puzzle_words();
  return std::ranges::any_of(runs_of(text, is_letter), [&](std::string_view run) {
    const std::string word = capitals(run);
    return ((puzzle && word == run) || known.contains(word)) && held_out_word(word);
  });
}

}  // namespace

bool held_out_pair(int64_t a, int64_t b) {
  const auto [least, most] = std::minmax(a, b);
  if (most < 10 || (least < 10 && most < 100)) return false;
  return hash_of(std::to_string(least) + " " + std::to_string(most)) % kOneInPairs == 0;
}

bool held_out_word(std::string_view word) {
  static const Words known = puzzle_words();
  return word.size() >= kLettersMin && hash_of(word) % (known.contains(word) ? kOneInWords : kOneInLetters) == 0;
}

bool held_out_list(const std::vector<int64_t>& numbers) {
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (held_out_pair(numbers[i - 1], numbers[i])) return true;
  }
  return false;
}

bool mentions_held_out(const Turn& turn) {
  const std::string* texts[] = {&turn.user, &turn.reasoning, &turn.answer, &turn.expression};
  return std::ranges::any_of(
      texts, [&](const std::string* text) { return mentions_pair(*text) || mentions_word(*text, turn.puzzle); });
}

}  // namespace braid::synth
