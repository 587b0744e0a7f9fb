// Log-probabilities of generated tokens as JSON, in the form of OpenAI's choices[].logprobs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "text/tokenizer.h"

namespace braid::engine {

// {"content": [{id, token, bytes, logprob, top_logprobs: [...]}, ...]}: of each generated token its own, then the
// alternatives. `token` is what it adds to a text and `bytes` the same, exactly: a character may need several tokens.
// Without a tokenizer: ids and log-probabilities alone.
nlohmann::ordered_json logprobs_json(const text::Tokenizer* tokenizer,
                                     std::span<const std::vector<TokenLogprob>> logprobs);

}  // namespace braid::engine
