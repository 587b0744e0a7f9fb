// How far every state of a program is from the end of its rule: in tokens, which tells when a text must be brought to
// its end, and in calls, which bounds how deep it may nest.
#pragma once
#include <cstdint>
#include <vector>

#include "grammar/program.h"
#include "grammar/token_trie.h"

namespace braid::grammar {

constexpr int64_t kNever = int64_t{1} << 40;  // no text leads to the end

struct Costs {
  // At most so many tokens lead from a state to the end of its rule: a byte is a token, and where the program spells a
  // literal, tokens of several bytes count as one.
  std::vector<int64_t> tokens{}, rule_tokens{};
  // Calls that are open at once on the way, at least.
  std::vector<int64_t> depth{}, rule_depth{};
};
Costs costs_of(const Program& program, const TokenTrie& trie);

}  // namespace braid::grammar
