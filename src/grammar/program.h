// What texts are allowed, as a program over bytes: rules that are non-deterministic automata whose states may call
// other rules (a recursive transition network). Nothing here knows of JSON, regular expressions or tokens.
//
// A Builder makes states from the end of a text to its beginning: every function takes the state that follows and
// returns the one before. Loops go through later() and bind(), recursion through declare() and define().
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::grammar {

using StateId = int32_t;
using RuleId = int32_t;

struct ByteEdge {
  uint8_t first = 0, last = 0;  // inclusive
  StateId next = 0;
};

struct State {
  enum class Kind : uint8_t {
    bytes,   // reads a byte: the edges [a, a + b)
    split,   // any of the states targets [a, a + b)
    call,    // the rule a, then the state b
    repeat,  // the repetition a
    done     // the end of the rule
  };
  Kind kind = Kind::done;
  int32_t a = 0, b = 0;
};

// The rule `body` from `min` to `max` times (kUnbounded: without an end), then `next`.
constexpr int32_t kUnbounded = -1;
struct Repetition {
  RuleId body = 0;
  int32_t min = 0, max = kUnbounded;
  StateId next = 0;
};

struct Program {
  std::vector<State> states;
  std::vector<ByteEdge> edges;
  std::vector<StateId> targets;
  std::vector<Repetition> repetitions;
  std::vector<StateId> rules;  // where each begins
  std::vector<bool> nullable;  // by rule: the empty text is one of its texts
  RuleId start = 0;
  bool may_be_cut = false;  // an answer may end anywhere in a text: nothing is reserved for the rest of it
};

class Builder {
 public:
  // `where` begins the Error of a program that is too large.
  explicit Builder(std::string where) : where_(std::move(where)) {}

  StateId done();
  StateId bytes(std::vector<ByteEdge> edges);
  StateId byte(uint8_t first, uint8_t last, StateId next) { return bytes({{first, last, next}}); }
  StateId literal(std::string_view text, StateId next);
  // A text that may be a token by itself, which kTagMark begins (token_trie.h), or be spelled.
  StateId tag(std::string_view text, StateId next);
  // One of several texts, with common beginnings shared, so that a thousand of them are one state at a time.
  StateId literals(const std::vector<std::string>& texts, StateId next);
  StateId any_of(const std::vector<StateId>& states);
  StateId call(RuleId rule, StateId next);
  StateId repeat(RuleId body, int64_t min, int64_t max, StateId next);

  StateId later();
  void bind(StateId placeholder, StateId target);

  RuleId declare();
  void define(RuleId rule, StateId start);
  RuleId rule(StateId start);

  void let_be_cut() { program_.may_be_cut = true; }

  // The program whose texts are those of `start`.
  Program finish(RuleId start);

 private:
  [[noreturn]] void too_large() const;
  StateId add(State state);

  std::string where_;
  Program program_;
  StateId done_ = -1;
};

}  // namespace braid::grammar
