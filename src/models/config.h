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
  std::string norm;     // tensor name without ".weight"
  std::string prefix;   // before the block's own names
  std::string after{};  // norm of the residual stream after the block, or empty
  bool cut = false;     // has a part of the block's parameters (Config::cut)
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

// Recurrent depth (arXiv 2502.05171, section 3): layers [begin, end) of Config::layers are run r times. The layers
// before them give their input e, in every step the same; those after them read the normed state of the last step.
//   s_i = layers(W [s_{i-1} | e]),  i = 1 ... r;   s_0 is random
struct LoopSpec {
  size_t begin = 0, end = 0;
  std::string prefix;  // before the name of W
  std::string norm;
  int64_t steps = 1;           // r without another choice, and its mean in training
  int64_t backward_steps = 1;  // of training: the last ones, whose gradients are computed
  float start_std = 1;         // of s_0: normal, truncated at three standard deviations
};
inline constexpr int64_t kLoopSteps = 1024;  // at most

// What a rank of a pipeline has of a model: runs of its layers. The rank with the first layer does the embedding
// look-up, the one with the last has the head.
struct Stage {
  std::vector<Range> runs;  // in order; none: all layers
  bool first = true, last = true;
  bool shares_table = false;  // first and last stage both read the embedding: each has it, and gradients add up

  bool has_table() const { return first || (last && shares_table); }
};

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
  float embedding_scale = 1;  // of the rows that are looked up
  NormKind norm = NormKind::rms;
  const nn::Spelling* spelling = nullptr;  // of its blocks' parameters
  bool tied = false;
  std::vector<LayerSpec> layers;
  std::optional<LoopSpec> loop;
  std::optional<MtpSpec> mtp;
  std::optional<nn::RopeSpec> rope;
  DropoutSpec dropout;
  std::string embedding, position_embedding, final_norm, head;  // tensor names; norms without ".weight"
  std::vector<int64_t> eos;
  std::optional<int64_t> bos;
  // Row of the embedding that lookups never train: the padding_idx of the family's nn.Embedding.
  std::optional<int64_t> padding;
  // The type of keys and values between passes that a quantised checkpoint was made for.
  std::optional<DType> kv_cache;
  // Which part of the blocks that divide, and of the vocabulary, a model of this config has (models/cut.h).
  Cut cut;
  ExpertCut expert_cut;
  // Which layers it has: those of other ranks are there, but do nothing.
  Stage stage;

  // The longest sequence that the model can take, 0 for any: without encoded positions `positions_max` is only what it
  // was trained with.
  int64_t positions_limit() const { return learned_positions > 0 || rope ? positions_max : 0; }
  // Times that a pass runs a layer, by its index.
  int64_t runs_of(size_t layer) const { return loop && layer >= loop->begin && layer < loop->end ? loop->steps : 1; }
  std::string pattern() const;  // one letter per block; a layer that does nothing is "."
};

// The block that a parameter of a model of `config` is part of; null: of none, or of a layer of another stage.
const PartSpec* block_of(const Config& config, const ParamInfo& info);

// Calls of(part) for every part of every layer, then of those of the prediction block.
template <class AnyConfig, class Of>
void each_part(AnyConfig& config, Of&& of) {
  const auto all = [&](auto& layers) {
    for (auto& layer : layers) {
      for (auto& part : layer.parts) of(part);
    }
  };
  all(config.layers);
  if (config.mtp) all(config.mtp->layers);
}

}  // namespace braid::models
