// What an answer is generated with, and what comes of it. How: scheduler.h.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "engine/reasoning_budget.h"
#include "engine/sampler.h"
#include "grammar/constraint.h"

namespace braid::engine {

struct GenerateOptions {
  int64_t tokens_max = -1;  // -1: until the context is full
  SamplingOptions sampling{};
  bool ignore_eos = false;
  std::vector<int32_t> stop_ids{};  // further end tokens, also with ignore_eos
  // Before so many tokens no end token is drawn, unless a constraint allows nothing else.
  int64_t tokens_min = 0;
  // The tokens <think> and </think>; -1: none. With tokens_min an answer has neither: a model that may not end would
  // think again, or end a thinking that is over, then and after.
  int32_t think_begin = -1, think_end = -1;
  int64_t logprobs = -1;        // alternatives whose log-probabilities are returned; -1: no log-probabilities at all
  bool drawn_logprobs = false;  // at the temperature that tokens are drawn with, instead of 1
  ReasoningBudget budget{};
  Thinking thinking = Thinking::none;  // where the answer begins: `budget` and `constraint` depend on it
  // What the answer may say after its thinking; null: anything. An answer to which nothing may be added ends with
  // Finish::stop, without an end token.
  std::shared_ptr<const grammar::Constraint> constraint{};
  // Of the first draw, if that is more than the length of the prompt: draws are numbered so that two answers of one
  // conversation never share random numbers.
  int64_t position = 0;
};

enum class Finish { stop, length, cancelled };
constexpr const char* name_of(Finish f) {  // OpenAI's words
  constexpr const char* kNames[] = {"stop", "length", "cancelled"};
  return kNames[static_cast<int>(f)];
}

struct Timings {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // accepted ones are generated without a pass of their own
  double prompt_seconds = 0, generate_seconds = 0;
};

struct Generated {
  std::vector<int32_t> ids{};  // the end token included
  // Of every id, if asked for: its own, then the alternatives. With Numerics::exact its own has the bits of training's.
  std::vector<std::vector<TokenLogprob>> logprobs{};
  std::vector<std::vector<TokenLogprob>> prompt_logprobs{};  // of every token of the prompt but the first, if asked for
  Finish finish = Finish::length;
  std::string error{};          // why this answer alone failed; empty: it did not
  std::exception_ptr thrown{};  // the same as an exception
  Timings timings{};
};

}  // namespace braid::engine
