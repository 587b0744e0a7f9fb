// One character out of a set, as bytes: UTF-8, or what stands for it inside a JSON string.
#pragma once
#include <vector>

#include "grammar/program.h"

namespace braid::grammar {

struct CharRange {
  char32_t first = 0, last = 0;  // inclusive

  bool operator==(const CharRange&) const = default;
};
// Sorted, without overlaps; surrogates do not count.
using CharSet = std::vector<CharRange>;

constexpr char32_t kCharMax = 0x10ffff;

CharSet normalized(CharSet set);
CharSet complement(const CharSet& set);
CharSet intersection(const CharSet& a, const CharSet& b);

enum class Spelling {
  plain,  // UTF-8
  json    // in a JSON string: quotes, backslashes and control characters are escaped, others are not
};

// A character of the set, then `next`.
StateId character(Builder& b, const CharSet& set, Spelling spelling, StateId next);

// The same for all of them as models write them in a JSON string: with every escape that JSON has. Half surrogates are
// not allowed.
StateId json_character(Builder& b, StateId next);

}  // namespace braid::grammar
