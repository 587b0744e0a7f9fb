// The metadata of a GGUF file of a model: what llama.cpp needs to know to build it, in its keys and types.
//   https://github.com/ggml-org/llama.cpp, src/llama-arch.cpp
#pragma once
#include <string>
#include <vector>

#include "io/gguf_write.h"
#include "models/config.h"

namespace braid::models {

// "nemotron_h", "nemotron_h_moe", "llama", "deci", "qwen3" or "qwen3moe". Error, with the reason and starting with
// `where`, for a model that llama.cpp cannot run.
std::string gguf_architecture(const Config& config, const std::string& where);

// Why llama.cpp cannot read the model's prediction block, to follow "it has"; empty if it can, or if there is none.
std::string prediction_misfit(const Config& config);

// Our own keys: the numbers of llama3's scaling from which the divisors of rope_freqs.weight were made.
inline constexpr const char *kLlama3Factor = "braid.rope.llama3.factor",
                            *kLlama3Low = "braid.rope.llama3.low_freq_factor",
                            *kLlama3High = "braid.rope.llama3.high_freq_factor",
                            *kLlama3Original = "braid.rope.llama3.original_context_length";

// Frequency divisors of llama3's RoPE scaling: files have the numbers, not the rule. Else empty.
std::vector<float> rope_divisors(const nn::RopeSpec& rope);

// general.* and those of the architecture. Without prediction_misfit: the prediction block is one more block.
io::GgufFields gguf_metadata(const Config& config, const std::string& name, const std::string& where);

}  // namespace braid::models
