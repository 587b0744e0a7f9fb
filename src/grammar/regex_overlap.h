// Whether several regular expressions have a text in common. Each becomes an automaton, once, and a search goes through
// the tuples of states that their automata reach with the same characters: from the beginning of the texts, and from
// their end, where a suffix may tell them apart at once.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "grammar/regex.h"

namespace braid::grammar {

class Unrolled;

class CommonTexts {
 public:
  static constexpr size_t kExpressionsMax = 5;  // of one question: a tuple of their states has 64 bits

  // Work is counted in steps, which bound memory as well: about 20 bytes for each state of an automaton, kept for the
  // lifetime of this object, and about 50 for each tuple, kept during one call of `of`. A call may take `each` steps
  // besides making its automata; all calls together may take `left`, which must outlive this object.
  CommonTexts(int64_t each, int64_t& left) : each_(each), left_(left) {}

  // Expressions in any order, which outlive this and are known by their addresses; asked again, it takes no work.
  // nullopt: more expressions, repetitions that are too many to be unrolled, or no steps left.
  std::optional<bool> of(std::vector<const Regex*> all);

 private:
  // nullptr: too large.
  const Unrolled* automaton(const Regex* regex, bool backward);
  std::optional<bool> search(const std::vector<const Regex*>& all, bool backward, int64_t most);

  int64_t each_;
  int64_t& left_;
  std::map<std::pair<const Regex*, bool>, std::shared_ptr<const Unrolled>> automata_;
  std::map<std::set<const Regex*>, std::optional<bool>> answers_;
};

}  // namespace braid::grammar
