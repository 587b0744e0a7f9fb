// The text that models/tiny learns from, and the tasks it is judged by: small sums with schoolbook steps, puzzles on
// words, calculator calls, questions about Braid, and honest answers to everything else. Generated, not collected:
// every fact in it can be checked, and test problems are kept out by a hash (holdout.h).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sys/function_ref.h"

namespace braid::synth {

struct Options {
  uint64_t seed = 0;
  int64_t train = 110000;  // conversations
  int64_t valid = 1000;
  int64_t tasks = 125;               // held-out problems of each kind
  std::vector<std::string> avoid{};  // prompts of other tests: nothing trained resembles them (near.h, kNear)
};

// Turns of the conversations that tasks come last in: a folder of tasks each.
constexpr int64_t kTaskTurns[] = {1, 4, 8, 12};

// Writes into `folder`, which is created if missing:
//   train.jsonl, valid.jsonl     {"messages", "tools"?, "chat_template_kwargs": {"enable_thinking"}} a line
//   vocabulary.txt               prose for the tokenizer: hardly any digits, so that merges go to words
//   arithmetic.jsonl, strings.jsonl, calculator.jsonl, follow_up.jsonl
//                                tasks for braid eval: {"task", "messages", "tools"?, "answers"}
//   turn-4/, turn-8/, turn-12/   arithmetic, strings and calculator again, at that turn of a conversation
// Every other conversation is a single turn, the others 2 to 16, one in seventy up to 56. Every turn that thinks
// shows its thinking: tiny's template keeps it. The same options give the same bytes. `progress` receives the number of
// conversations written; if it returns false, writing stops, and no folder appears. Returns whether everything
// was written.
bool write(const std::filesystem::path& folder, const Options& options,
           const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::synth
