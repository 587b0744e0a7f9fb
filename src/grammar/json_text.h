// The parts of JSON texts as models may write them, for grammars that are made of them.
//
// White space is bounded, so that no answer can be lost in it: after a bracket or a comma and before a closing bracket
// nothing, or a newline and up to 32 spaces of indentation; after a comma or a colon also one space. None elsewhere.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/program.h"

namespace braid::grammar {

class JsonText {
 public:
  explicit JsonText(Builder& b);

  // Every function returns what begins with its subject and goes on with `next`.
  StateId open(char bracket, StateId next);            // "[", and space
  StateId close(char bracket, StateId next);           // space, and "]"
  StateId empty(char left, char right, StateId next);  // "[]"
  StateId comma(StateId next);
  StateId colon(StateId next);
  // A string of `min` to `max` characters (kUnbounded: any number).
  StateId string(int64_t min, int64_t max, StateId next);
  // A string that is none of `names` and has no escapes: a further key of an object.
  StateId other_key(const std::vector<std::string>& names, StateId next);
  // "null", "true", "false".
  StateId word(std::string_view text, StateId next) { return b_.literal(text, next); }
  // Members or elements out of `one`, from `min` to `max` of them, separated, between brackets. `one` makes what stands
  // before its argument.
  template <class One>
  StateId list(char left, char right, int64_t min, int64_t max, const One& one, StateId next) {
    const StateId none = empty(left, right, next), end = close(right, next);
    if (max == 0) return min == 0 ? none : b_.any_of({});
    const RuleId further = b_.rule(comma(one(b_.done())));
    const StateId rest = b_.repeat(further, min - 1, max < 0 ? max : max - 1, end);
    const StateId first = open(left, one(rest));
    return min > 0 ? first : b_.any_of({first, none});
  }
  // Any value whose brackets nest at most kAnyDepth deep, and any such object.
  StateId any_value(StateId next) { return b_.call(value_at(kAnyDepth), next); }
  StateId any_object(StateId next) { return b_.call(object_at(kAnyDepth), next); }

  static constexpr int kAnyDepth = 8;
  static constexpr int64_t kKeyMax = 128;  // characters of a key that no schema names

 private:
  RuleId value_at(int depth);
  RuleId object_at(int depth);

  Builder& b_;
  RuleId gap_, character_;
  std::vector<RuleId> values_, objects_;  // by depth; -1: not made yet
};

}  // namespace braid::grammar
