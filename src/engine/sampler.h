// From logits to a token: repeat penalty and bias, then top-k, min-p and top-p over the softmax at `temperature`, then
// a draw that is a function of seed and position (core/philox.h), so that the same call gives the same text.
// Temperature 0 is greedy. Only as much of the vocabulary is sorted as the cuts and the draw look at.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace braid::engine {

struct SamplingOptions {
  double temperature = 0;     // 0: greedy
  int64_t top_k = 0;          // 0: off
  double top_p = 1;           // 1: off
  double min_p = 0;           // 0: off; relative to the most likely token
  double repeat_penalty = 1;  // 1: off; logits of tokens seen before are divided (if positive) or multiplied by it
  // Subtracted from the logits of tokens of the answer: once, and for every time that they occur in it (OpenAI's API).
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> bias{};  // added to the logits of these tokens, after the penalties
  uint64_t seed = 0;
};

// `seen`: tokens of the sequence so far, for the penalty; `position`: of the token that is drawn, in its whole stream.
// Ties: lowest id.
// Error (a failed run) when a logit is NaN or infinity, or all are -infinity.
// The last `answer_tokens` of `seen` are the answer.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::span<const int32_t> seen,
               uint64_t position, size_t answer_tokens = 0);

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};
// Log-probabilities of `id` and then of the `top` most likely tokens, before penalties and cuts, at this temperature.
std::vector<TokenLogprob> logprobs_of(std::span<const float> logits, int32_t id, int64_t top, double temperature = 1);

}  // namespace braid::engine
