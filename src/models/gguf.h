// GGUF files of llama.cpp as models: their metadata as a config.json, their tensors under the names of the released
// files (nemotron_h and nemotron_h_moe). Quantised blocks are decoded to FP32 when a model loads; other tensors stay
// mapped.
//   https://github.com/ggml-org/llama.cpp, src/llama-arch.cpp (keys and names)
#pragma once
#include <memory>
#include <string>

#include "core/weight_store.h"
#include "io/gguf.h"
#include "io/json.h"
#include "nn/param_source.h"

namespace braid::models {

// What config.json of the model says. Error for another architecture, or a key that is missing or wrong.
io::Json gguf_config(const io::Gguf& file);

// `file` outlives the source, and what the source gives.
std::unique_ptr<nn::ParamSource> gguf_source(WeightStore& store, const io::Gguf& file);

}  // namespace braid::models
