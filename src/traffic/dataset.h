// The prompts of a load test: random ones of given lengths, or those of a file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace braid::traffic {

// What one request asks: a text, or the messages of a chat.
struct Prompt {
  nlohmann::ordered_json content{};  // a string, or an array of {role, content}
  int64_t output_tokens = 0;         // to generate; 0: what the server does by itself
};

struct RandomPrompts {
  int64_t count = 100, input_tokens = 512, output_tokens = 128;
  double range_ratio = 0;     // lengths are uniform in [n (1 - ratio), n (1 + ratio)]
  int64_t prefix_tokens = 0;  // that all prompts share, before their own
  uint64_t seed = 0;
};

// Texts of random tokens of the vocabulary. Their lengths are those of the text, encoded again, up to a token or two;
// what the server counted is in its usage.
std::vector<Prompt> random_prompts(const text::Tokenizer& tokenizer, const RandomPrompts& options);

// Lines of {"prompt": text} or {"messages": [...]}, each with an optional "output_tokens": vLLM's custom dataset. Up to
// `count` of them, again from the first where there are fewer. Error names the line that is neither.
std::vector<Prompt> file_prompts(const std::filesystem::path& file, int64_t count, int64_t output_tokens);

}  // namespace braid::traffic
