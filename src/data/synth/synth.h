// The text that models/tiny learns from, and the tasks it is judged by: small sums with the steps of the schoolbook,
// puzzles on words, calculator calls, questions about Braid, and one honest answer to everything else. Made, not
// collected: every fact in it can be checked, and what the tests ask is kept out by a hash of the problem.
#pragma once
#include <cstdint>
#include <filesystem>

#include "sys/function_ref.h"

namespace braid::synth {

struct Options {
  uint64_t seed = 0;
  int64_t train = 300000;  // conversations
  int64_t valid = 1000;
  int64_t tasks = 125;  // held-out problems of each kind
};

// Writes into `folder`, which is made where it is missing:
//   train.jsonl, valid.jsonl     {"messages", "tools"?, "chat_template_kwargs": {"enable_thinking"}} a line
//   vocabulary.txt               prose for the tokenizer: no digits to speak of, so that merges go to words
//   arithmetic.jsonl, strings.jsonl, calculator.jsonl   tasks for braid eval: {"task", "messages", "tools"?, "answers"}
// The same options give the same bytes. `progress` is told the conversations written; false stops, and then no file
// that was unfinished appears. Returns whether all of it was written.
bool write(const std::filesystem::path& folder, const Options& options,
           const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::synth
