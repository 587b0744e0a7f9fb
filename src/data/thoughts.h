// Conversations with less thinking, so that a model learns to answer without (the switch of its template) and after a
// thought that a budget ended. Which conversations lose what follows from their bytes alone.
//   Nemotron 3: thoughts removed from 10% of the samples and cut short in 3%, to teach budgets
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace braid::data {

// Shares of the conversations, in [0, 1], together at most 1.
struct ThoughtRules {
  double strip = 0;  // without thoughts, and with `enable_thinking` false
  double cut = 0;    // the last thought ends early; the thought itself is not trained, what follows it is
};

enum class Thoughts : uint8_t { whole, stripped, cut };

// What happens to a conversation. `hash`: of its bytes.
Thoughts drawn_thoughts(const ThoughtRules& rules, uint64_t hash);
// Removes the thoughts of all the assistant's messages, and switches thinking off in `variables`, of which `messages`
// is a member.
void strip_thoughts(nlohmann::ordered_json& variables);
// Ends the thought of the last message, if it is the assistant's and has one, at a random point: before the last line
// end or space there, as a budget ends one. False: there is none, or nothing of it would be left, which templates write
// like no thinking.
bool cut_last_thought(nlohmann::ordered_json& messages, uint64_t hash);

}  // namespace braid::data
