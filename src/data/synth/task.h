// What each kind of task generates: one turn of a conversation, with thinking and answer separate.
//
// The thinking is written for a small model: every step reads only its own line and the one before, and the line's
// length gives the position. Digits and capitals are one token each (recipes/tiny), so a step is a look-up in a table
// of at most a few hundred facts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/synth/draw.h"

namespace braid::synth {

// A problem of the test is made of a held-out pair of numbers or word (holdout.h). Problems to train on may be, too:
// who writes them drops those.
enum class Split { train, test };

struct Turn {
  std::string task;       // "addition", "reverse", "about", ...: scores are reported by it
  std::string user;       // the prompt
  std::string reasoning;  // "" if there is nothing to think about
  std::string answer;
  std::string expression{};  // of a calculator call before the answer; empty: none
  bool puzzle = false;       // its capitals are letters of a puzzle
};

// Numbers have at most three digits, words at most twelve letters: what off_range declines.
constexpr int64_t kNumberMax = 999, kLettersMax = 12;

// kind: 0 addition, 1 subtraction, 2 multiplication, 3 comparison.
constexpr int64_t kArithmeticKinds = 4;
Turn arithmetic(Draw& draw, Split split, int64_t kind);

// A problem of the first three kinds, asked as `user`.
Turn solved(int64_t kind, int64_t a, int64_t b, std::string user);
std::string compare_thinking(int64_t a, int64_t b);

// The question of a problem of any of the four kinds, whatever stands for its numbers.
std::string sum_asked(Draw& draw, int64_t kind, const std::string& a, const std::string& b);

// kind: 0 reverse, 1 count a letter, 2 length, 3 sort letters, 4 sort numbers.
constexpr int64_t kStringKinds = 5;
Turn strings(Draw& draw, Split split, int64_t kind);

// One to six words, in capitals; training only.
Turn in_capitals(Draw& draw);

// A puzzle of the first four kinds on `shown`, asked as `user`; `wanted` is the letter to count, a capital.
Turn puzzle(int64_t kind, const std::string& shown, char wanted, std::string user);
std::string puzzle_asked(Draw& draw, int64_t kind, const std::string& shown, char wanted);
char letter_for(Draw& draw, std::string_view word);  // to count in a word in capitals: usually one of its own

// "eight hundred forty-five"; 0 to 999.
std::string in_words(int64_t n);

// A question about the answer of the turn before ("Add 3 to that.", "And in words?"), if it has any.
std::optional<Turn> follow_up(Draw& draw, const Turn& before);

// A sum too large to think through, for the calculator that the conversation has.
Turn calculator(Draw& draw, Split split);

// A question about Braid or the model itself; training only, the test is bench/data/tiny-qa.jsonl.
Turn about(Draw& draw);

// Like the tasks above, but longer, or with other operations; declined. Training only, the test is
// bench/data/tiny-off-range.jsonl.
Turn off_range(Draw& draw);

// Anything else, and the one answer to it; training only, the test is bench/data/tiny-off-topic.jsonl.
Turn off_topic(Draw& draw);

}  // namespace braid::synth
