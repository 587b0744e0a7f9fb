// Generation without HTTP: tokens from a Runner until an end token, a length, the context or the caller stops it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/reasoning_budget.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "grammar/constraint.h"
#include "sys/function_ref.h"

namespace braid::engine {

struct GenerateOptions {
  int64_t tokens_max = -1;  // -1: until the context is full
  SamplingOptions sampling{};
  bool ignore_eos = false;
  int64_t logprobs = -1;     // alternatives whose log-probabilities are returned; -1: no log-probabilities at all
  ReasoningBudget budget{};  // for a prompt that ends inside <think>
  // What the answer may say; null: anything. It holds after the thinking, which the prompt has opened if `thinking`. An
  // answer to which nothing may be added ends with Finish::stop, without an end token.
  std::shared_ptr<const grammar::Constraint> constraint{};
  bool thinking = false;
  int64_t position = 0;  // of the first draw, if the stream is longer than the sequence; see generate
};

enum class Finish { stop, length, cancelled };
const char* name_of(Finish f);  // "stop", "length", "cancelled": OpenAI's words

struct Timings {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // accepted ones are generated without a pass of their own
  double prompt_seconds = 0, generate_seconds = 0;
};

struct Generated {
  std::vector<int32_t> ids{};                         // the end token included
  std::vector<std::vector<TokenLogprob>> logprobs{};  // of every id, if asked for: its own, then the alternatives
  std::vector<std::vector<TokenLogprob>> prompt_logprobs{};  // of every token of the prompt but the first, if asked for
  Finish finish = Finish::length;
  std::string error{};  // why this answer alone failed; empty: it did not
  Timings timings{};
};

// Reads `prompt` into the sequence (after what is in it already) and generates. `history` is every token of the
// sequence so far, for the repeat penalty. Draws are numbered by the length of the sequence before them, or from
// `position` if that is more, so that two answers of one conversation never share random numbers. `on_token` sees each
// token but the end token; false stops.
Generated generate(Runner& runner, int64_t sequence, std::span<const int32_t> history, std::span<const int32_t> prompt,
                   const GenerateOptions& options, const sys::FunctionRef<bool(int32_t)>& on_token,
                   const sys::FunctionRef<void(const Tensor&)>& on_prefill, nn::Probe* probe = nullptr);

}  // namespace braid::engine
