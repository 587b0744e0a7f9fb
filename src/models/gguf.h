// GGUF files of llama.cpp as models: their metadata as a config.json, their tensors under the names of the released
// files. Matrices stay mapped as they are, blocks of every type; queries and keys of `llama` and `deci` are copied into
// the order of the released files, vectors to FP32.
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
#include "models/config.h"
#include "nn/param_source.h"

namespace braid::models {

// As llama.cpp calls it: nemotron_h, nemotron_h_moe, llama, deci, qwen3 or qwen3moe. Error for another.
std::string gguf_architecture(const io::Gguf& file);

// The model's config.json. Error for a key that is missing or wrong.
io::Json gguf_config(const io::Gguf& file);

// Layers of the model: those of the file without the prediction blocks, which come last. Error for an impossible
// number.
int64_t gguf_layers(const io::Gguf& file);
// Whether it has the one prediction block that llama.cpp reads: attention, then experts.
bool gguf_predicts(const io::Gguf& file);

struct GgufStored {
  int64_t bytes = 0, values = 0;
  double bits() const { return values > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(values) : 0.0; }
};
// Bytes and values of the tensors, by llama.cpp's name of their type.
std::map<std::string, GgufStored> gguf_types(const io::Gguf& file);

// Factors of a matrix's decoded values: NVFP4 stores one more scale in its own tensor, one per matrix or one per expert
// of a stack. Empty if there is none.
std::vector<float> gguf_factors(const io::Gguf& file, const io::GgufTensor& tensor);

// llama.cpp's RoPE rotates adjacent pairs where Hugging Face rotates halves of a head: its files of `llama` and `deci`
// have rows 0, P/2, 1, P/2 + 1, ... of each head of queries and keys, and their biases likewise. Returns the position
// of a released row.
int64_t gguf_row(int64_t row, int64_t head_rows);

// Where a parameter is in the file: a whole tensor, or one expert's part of a stack.
struct GgufPart {
  const io::GgufTensor* tensor = nullptr;
  std::span<const std::byte> bytes{};
  float factor = 1;       // of gguf_factors
  int64_t head_rows = 0;  // P of queries and keys in llama.cpp's order; 0: rows are in the released order
};
// Error where there is none, or one of another shape.
GgufPart gguf_part(const io::Gguf& file, const nn::ParamRequest& request);

// Error: the tensor holds numbers that a parameter of this role cannot have.
[[noreturn]] void fail_damaged(const io::Gguf& file, const io::GgufTensor& tensor, ParamRole role);

// Error for a tensor of a layer that no part of the model reads: the model would lack it. Scales and RoPE frequencies
// are read with others or as keys, and layers beyond the model's are prediction blocks that are left out.
void check_gguf_tensors(const io::Gguf& file, const Config& config);

// `file` outlives the source, and what the source gives. Error for a vector that is not finite.
std::unique_ptr<nn::ParamSource> gguf_source(WeightStore& store, const io::Gguf& file);

}  // namespace braid::models
