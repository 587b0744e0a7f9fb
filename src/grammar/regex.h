// Regular expressions as programs. The subset: literals, `.` (any character but an end of a line), classes with ranges,
// negation and \d \w \s, groups (capturing or not), `|`, ? * + {m} {m,} {m,n} (lazy forms mean the same), the escapes
// \d \D \w \W \s \S \n \r \t \f \v \0 \xHH \uHHHH and escaped punctuation, \p{Lu} \P{L} for general categories of
// Unicode. \d, \w and \s are ASCII, and what \D, \W and \S or a negated class leaves has none of Unicode's digits, word
// characters or spaces: the texts match whatever a validator takes the classes for. So it is with \r, U+2028 and U+2029
// for
// `.`; \ud83d\ude00 is one character. The whole text has to match, so anchors change nothing: ^ at the beginning and $
// at the end of the expression or of an alternative are read over. There is no backtracking, and bounded repetitions
// are counted, not unrolled: nested ones cost linear time.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/characters.h"
#include "grammar/program.h"

namespace braid::grammar {

class Regex {
 public:
  // Error, beginning with `where`, for what is not in the subset, nested too deeply or too long.
  static Regex parse(std::string_view pattern, std::string_view where);
  // The same for texts that have a match somewhere, as validators look for it: but for its anchors, anything may stand
  // around it.
  static Regex parse_search(std::string_view pattern, std::string_view where);
  // Any text of so many characters.
  static Regex any_text(int64_t min, int64_t max);
  // A text of the expression, then `next`.
  StateId compile(Builder& b, Spelling spelling, StateId next) const;

  // Whether a text is one of them. Counts down `steps`; at none the answer is false and means nothing.
  bool matches(std::string_view text, int64_t& steps) const;

  // Of its texts, in characters; max kUnbounded: without an end.
  struct Lengths {
    int64_t min = 0, max = 0;
  };
  Lengths lengths() const;
  // If its texts are any of some number of characters out of one set: that expression with the length within further
  // bounds. Otherwise an expression without nodes.
  Regex with_length(int64_t min, int64_t max) const;
  // Its texts that have none of some characters; without nodes: there are none.
  Regex without(const CharSet& characters) const;
  bool empty() const { return nodes_.empty(); }
  // Whether its texts are of printable ASCII alone, of which all validators say the same.
  bool is_plain() const;
  // Whether they are written the same way, but for anchors: those that are have the same texts.
  bool operator==(const Regex&) const = default;

 private:
  friend class RegexParser;
  friend class Unrolled;
  struct Node {
    enum class Kind : uint8_t { set, sequence, choice, repeat } kind;
    CharSet set{};
    std::vector<int32_t> children{};
    int64_t min = 0, max = kUnbounded;  // of a repetition

    bool operator==(const Node&) const = default;
  };
  StateId compile(Builder& b, Spelling spelling, int32_t node, StateId next) const;
  using Offsets = std::vector<size_t>;  // ascending
  Offsets ends_after(std::string_view text, int32_t node, const Offsets& begins, int64_t& steps) const;
  Offsets ends_after_repeat(std::string_view text, const Node& node, Offsets at, int64_t& steps) const;

  std::vector<Node> nodes_;  // children before their parents; the last is the whole
};

}  // namespace braid::grammar
