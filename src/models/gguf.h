// GGUF files of llama.cpp as models: their metadata as a config.json, their tensors under the names of the released
// files. Quantised blocks are decoded to FP32 when a model loads, and the queries and keys of `llama` and `deci` are
// put back into the order of the released files; other tensors stay mapped.
//   https://github.com/ggml-org/llama.cpp, src/llama-arch.cpp (keys and names)
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/weight_store.h"
#include "io/gguf.h"
#include "io/json.h"
#include "nn/param_source.h"

namespace braid::models {

// As llama.cpp calls it: nemotron_h, nemotron_h_moe, llama, deci, qwen3 or qwen3moe. Error for another.
std::string gguf_architecture(const io::Gguf& file);

// What config.json of the model says. Error for a key that is missing or wrong.
io::Json gguf_config(const io::Gguf& file);

struct GgufStored {
  int64_t bytes = 0, values = 0;
  double bits() const { return values > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(values) : 0.0; }
};
// What the tensors take, by type as llama.cpp names it.
std::map<std::string, GgufStored> gguf_types(const io::Gguf& file);

// What values of a matrix are multiplied by after decoding: NVFP4 stores one more scale in a tensor of its own, one per
// matrix or one per expert of a stack. Empty where there is none.
std::vector<float> gguf_factors(const io::Gguf& file, const io::GgufTensor& tensor);

// llama.cpp turns neighbours where Hugging Face turns halves of a head: its files of `llama` and `deci` have rows 0,
// P/2, 1, P/2 + 1, ... of each head of queries and keys, and their biases likewise. gguf_head_rows is the P of a
// parameter, 0 where the file has it as it was released; gguf_row says where one of its rows lies. Error for a
// parameter that is not made of heads.
int64_t gguf_head_rows(const io::Gguf& file, const nn::ParamRequest& request);
int64_t gguf_row(int64_t row, int64_t head_rows);

// `file` outlives the source, and what the source gives.
std::unique_ptr<nn::ParamSource> gguf_source(WeightStore& store, const io::Gguf& file);

}  // namespace braid::models
