// A model, independent of its family: a stack of layers, each a few blocks with their shapes and the names of their
// tensors. A family file (families/*.cc) turns its config.json into this; everything after reads only this.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nn/attention.h"
#include "nn/mamba2.h"
#include "nn/mlp.h"
#include "nn/moe.h"

namespace braid::models {

struct LinearSpec {
  int64_t hidden = 0;
  ParamRole role = ParamRole::none;
};

using BlockSpec = std::variant<nn::Mamba2Spec, nn::AttentionSpec, nn::MlpSpec, nn::MoeSpec, LinearSpec>;
char letter_of(const BlockSpec& spec);  // M * - E, and L for a plain linear map

enum class NormKind : uint8_t { rms, layer, layer_plus_one };

// One block with its norm and residual.
struct PartSpec {
  BlockSpec block;
  std::string norm;    // tensor name without ".weight"
  std::string prefix;  // before the block's own names
};

struct LayerSpec {
  std::vector<PartSpec> parts;  // none: a layer that does nothing (Llama-Nemotron)
};

// Multi-token prediction (docs/internals/layers.md, Prediction block): one step, applied repeatedly.
struct MtpSpec {
  std::string prefix;
  std::vector<LayerSpec> layers;
  std::string final_norm;
  int64_t steps = 1;  // times that training runs the block, each on the previous output; up to kMtpSteps
};
inline constexpr int64_t kMtpSteps = 4;

// Dropout rates in training, where transformers applies them: GPT-2's embd_pdrop and resid_pdrop. The rate of attention
// probabilities is read only to refuse it.
struct DropoutSpec {
  float embedding = 0, residual = 0, attention = 0;
};

struct Config {
  std::string architecture, family;
  int64_t vocab = 0, hidden = 0, positions_max = 0;
  int64_t learned_positions = 0;  // GPT-2: rows of its position table
  float eps = 1e-5f;
  NormKind norm = NormKind::rms;
  const nn::Spelling* spelling = nullptr;  // of its blocks' parameters
  bool tied = false;
  std::vector<LayerSpec> layers;
  std::optional<MtpSpec> mtp;
  std::optional<nn::RopeSpec> rope;
  DropoutSpec dropout;
  std::string embedding, position_embedding, final_norm, head;  // tensor names; norms without ".weight"
  std::vector<int64_t> eos;
  std::optional<int64_t> bos;
  // Row of the embedding that lookups never train: the padding_idx of the family's nn.Embedding.
  std::optional<int64_t> padding;

  // The longest sequence that the model can take, 0 for any: without encoded positions `positions_max` is only what it
  // was trained with.
  int64_t positions_limit() const { return learned_positions > 0 || rope ? positions_max : 0; }
  std::string pattern() const;  // one letter per block; a layer that does nothing is "."
};

}  // namespace braid::models
