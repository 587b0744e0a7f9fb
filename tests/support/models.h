// Models for tests: small configs, a description of what was read, and folders with random weights.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "io/safetensors_write.h"
#include "models/family.h"
#include "models/inventory.h"
#include "models/load.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::models {

// A hybrid as transformers writes it, with every layer letter; no two widths are equal.
inline nlohmann::json hybrid() {
  return {{"architectures", {"NemotronHForCausalLM"}},
          {"model_type", "nemotron_h"},
          {"vocab_size", 50},
          {"hidden_size", 32},
          {"layers_block_type", {"mamba", "moe", "attention", "mlp"}},
          {"num_hidden_layers", 4},
          {"expand", 2},
          {"mamba_num_heads", 6},
          {"mamba_head_dim", 10},
          {"n_groups", 2},
          {"ssm_state_size", 24},
          {"conv_kernel", 4},
          {"chunk_size", 64},
          {"use_conv_bias", true},
          {"time_step_limit", {0.0, {{"__float__", "Infinity"}}}},
          {"time_step_min", 0.001},
          {"time_step_max", 0.1},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 12},
          {"rope_theta", 10000},
          {"partial_rotary_factor", 1.0},
          {"intermediate_size", 44},
          {"n_routed_experts", 8},
          {"num_experts_per_tok", 3},
          {"n_shared_experts", 2},
          {"moe_intermediate_size", 20},
          {"moe_shared_expert_intermediate_size", 28},
          {"n_group", 4},
          {"topk_group", 2},
          {"layer_norm_epsilon", 1e-6},
          {"max_position_embeddings", 128},
          {"tie_word_embeddings", false}};
}

inline nlohmann::json dense(const std::string& type) {
  return {{"model_type", type},          {"vocab_size", 50},
          {"hidden_size", 32},           {"num_hidden_layers", 2},
          {"num_attention_heads", 4},    {"num_key_value_heads", 2},
          {"intermediate_size", 44},     {"max_position_embeddings", 128},
          {"tie_word_embeddings", false}};
}

inline Config read(const nlohmann::json& config) { return read_config(io::Json::parse(config.dump(), "config.json")); }

using support::error_of;
inline std::string refusal(const nlohmann::json& config) {
  return error_of([&] { read(config); });
}

// The tensors a config implies: two configs that mean the same model have the same.
inline std::string describe(const Config& config) {
  std::string text = fmt::format("{} {} {}\n", config.pattern(), config.eps, config.positions_max);
  for (const TensorSpec& t : inventory(config)) text += fmt::format("{} {}\n", t.name, to_string(t.shape));
  return text;
}

// A temporary folder with a config and random BF16 weights, which a test may damage before it writes them.
class FolderTest : public support::FolderTest {
 protected:
  using support::FolderTest::write;
  static std::vector<io::TensorSpec> tensors_of(const nlohmann::json& config) {
    std::vector<io::TensorSpec> specs;
    for (const TensorSpec& t : inventory(read(config))) specs.push_back({t.name, DType::bf16, t.shape});
    return specs;
  }
  void write(const nlohmann::json& config, const std::vector<io::TensorSpec>& specs) const {
    write("config.json", config.dump());
    io::SafetensorsWriter file(folder_ / "model.safetensors", specs);
    std::mt19937 random(1);
    for (const io::TensorSpec& spec : file.order()) {
      std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
      const MutView values(bytes.data(), spec.dtype, spec.shape);
      if (spec.dtype == DType::bf16 || spec.dtype == DType::f32) {
        for (int64_t i = 0; i < values.count(); ++i) set_element(values, i, static_cast<double>(random() % 64) / 512);
      }
      file.write(spec.name, bytes);
    }
    file.finish();
  }
  std::unique_ptr<Model> load() const { return load_model(io::find_model(folder_.string())); }
};

}  // namespace braid::models
