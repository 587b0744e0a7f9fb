// What each kind of task generates: one turn of a conversation, with thinking and answer separate, and how it is held
// out.
//
// The thinking is written for a small model: every step reads only its own line and the one before, and the line's
// length gives the position. Digits and capitals are one token each (recipes/tiny), so a step is a look-up in a table
// of at most a few hundred facts.
#pragma once
#include <string>
#include <vector>

#include "data/synth/draw.h"

namespace braid::synth {

enum class Split { train, test };

struct Turn {
  std::string task;       // "addition", "reverse", "about", ...: scores are reported by it
  std::string user;       // the prompt
  std::string reasoning;  // "" if there is nothing to think about
  std::string answer;
  std::string expression{};  // of a calculator call before the answer; empty: none
};

// Operands of one to three digits. kind: 0 addition, 1 subtraction, 2 multiplication, 3 comparison. A pair of operands
// in the test is in no training problem, whatever the operation and the order. Without thinking the training numbers
// are smaller.
constexpr int64_t kArithmeticKinds = 4;
Turn arithmetic(Draw& draw, Split split, int64_t kind, bool think = true);

// kind: 0 reverse, 1 count a letter, 2 length, 3 sort letters, 4 sort numbers.
constexpr int64_t kStringKinds = 5;
Turn strings(Draw& draw, Split split, int64_t kind);

// A sum too large to think through, for the calculator that the conversation has.
Turn calculator(Draw& draw, Split split);

// A question about Braid or the model itself; training only, the test is bench/data/tiny-qa.jsonl.
Turn about(Draw& draw);

// Anything else, and the one answer to it; training only, the test is bench/data/tiny-off-topic.jsonl.
Turn off_topic(Draw& draw);

}  // namespace braid::synth
