#include "models/presets.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/folder_config.h"
#include "models/gguf.h"
#include "sys/error.h"
#include "sys/nearest.h"

namespace braid::models {
namespace {

constexpr const char* kNemotronHKeysOfPreset = R"({
  "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "dtype": "bfloat16", "vocab_size": 131072,
  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": false,
  "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
  "chunk_size": 128, "expand": 2, "use_conv_bias": true, "use_bias": false, "mamba_proj_bias": false,
  "mamba_hidden_act": "silu", "mamba_ssm_cache_dtype": "float32", "mlp_hidden_act": "relu2", "mlp_bias": false,
  "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 0.0001, "layer_norm_epsilon": 1e-5,
  "initializer_range": 0.02, "rescale_prenorm_residual": true, "residual_in_fp32": false,
  "max_position_embeddings": 8192, "tie_word_embeddings": false,
  "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})";

constexpr const char* kMoeKeys = R"({
  "n_shared_experts": 1, "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "num_key_value_heads": 2,
  "max_position_embeddings": 262144})";

constexpr const char* kNano30b = R"({
  "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "hidden_size": 2688,
  "mamba_num_heads": 64, "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
  "moe_shared_expert_intermediate_size": 3712, "routed_scaling_factor": 2.5})";

constexpr const char* kMtp = R"({"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"})";
constexpr const char* kNone = "{}";

// Later parts override earlier ones.
struct Preset {
  const char* name;
  std::array<const char*, 4> parts;
};

constexpr Preset kPresets[] = {
    {"nemotron-h-8b", {kNemotronHKeysOfPreset, kNone, kNone, R"({
       "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
       "hidden_size": 4096, "intermediate_size": 21504})"}},
    {"nemotron-h-47b", {kNemotronHKeysOfPreset, kNone, kNone, R"({"hybrid_override_pattern":
       "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-",
       "hidden_size": 8192, "num_attention_heads": 64, "mamba_num_heads": 256, "ssm_state_size": 256,
       "intermediate_size": 30720})"}},
    {"nemotron-nano-12b-v2", {kNemotronHKeysOfPreset, kNone, kNone, R"({
       "hybrid_override_pattern": "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
       "hidden_size": 5120, "num_attention_heads": 40, "mamba_head_dim": 80, "intermediate_size": 20480,
       "max_position_embeddings": 131072})"}},
    {"nemotron-nano-9b-v2", {kNemotronHKeysOfPreset, kNone, kNone, R"({
       "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
       "hidden_size": 4480, "num_attention_heads": 40, "mamba_head_dim": 80, "intermediate_size": 15680,
       "max_position_embeddings": 131072})"}},
    {"nemotron-3-nano-4b", {kNemotronHKeysOfPreset, kNone, kNone, R"({
       "hybrid_override_pattern": "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-",
       "hidden_size": 3136, "num_attention_heads": 40, "mamba_num_heads": 96, "mamba_head_dim": 80,
       "chunk_size": 256, "intermediate_size": 12544, "max_position_embeddings": 262144})"}},
    {"nemotron-3-nano-30b-a3b", {kNemotronHKeysOfPreset, kMoeKeys, kNano30b, kNone}},
    {"nemotron-3.5-lightning-30b-a3b", {kNemotronHKeysOfPreset, kMoeKeys, kNano30b, kMtp}},
    {"nemotron-3-super-120b-a12b", {kNemotronHKeysOfPreset, kMoeKeys, kMtp, R"({"hybrid_override_pattern":
       "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
       "hidden_size": 4096, "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688,
       "moe_latent_size": 1024, "moe_shared_expert_intermediate_size": 5376, "routed_scaling_factor": 5.0})"}},
    {"nemotron-3-ultra-550b-a55b", {kNemotronHKeysOfPreset, kMoeKeys, kMtp, R"({"hybrid_override_pattern":
       "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
       "hidden_size": 8192, "num_attention_heads": 64, "mamba_num_heads": 256, "n_routed_experts": 512,
       "num_experts_per_tok": 22, "moe_intermediate_size": 5120, "moe_latent_size": 2048,
       "moe_shared_expert_intermediate_size": 10240, "routed_scaling_factor": 5.0,
       "max_position_embeddings": 1048576})"}},
    {"hybrid-8.5m", {kNemotronHKeysOfPreset, kMoeKeys, kNone, R"({
       "hybrid_override_pattern": "MEM*EMEM*E", "hidden_size": 256, "vocab_size": 4096, "num_attention_heads": 8,
       "head_dim": 32, "mamba_num_heads": 8, "ssm_state_size": 64, "n_groups": 2, "chunk_size": 64,
       "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 192, "moe_latent_size": 128,
       "moe_shared_expert_intermediate_size": 384, "routed_scaling_factor": 2.5, "max_position_embeddings": 4096})"}},
    {"hybrid-1b", {kNemotronHKeysOfPreset, kMoeKeys, kNone, R"({
       "hybrid_override_pattern": "MEMEM*EMEM*EMEMEM*EMEME", "hidden_size": 1536, "vocab_size": 32768,
       "num_attention_heads": 12, "mamba_num_heads": 48, "n_routed_experts": 80, "num_experts_per_tok": 4,
       "moe_intermediate_size": 768, "moe_latent_size": 512, "moe_shared_expert_intermediate_size": 1536,
       "routed_scaling_factor": 2.5, "max_position_embeddings": 32768})"}},
    {"gpt2-124m", {kNone, kNone, kNone, R"({
       "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "dtype": "bfloat16", "vocab_size": 50257,
       "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "n_ctx": 1024, "n_inner": null,
       "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
       "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
       "tie_word_embeddings": true, "bos_token_id": 50256, "eos_token_id": 50256})"}},
    {"qwen3-30b-a3b", {kNone, kNone, kNone, R"({
       "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "dtype": "bfloat16",
       "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
       "num_key_value_heads": 4, "head_dim": 128, "attention_bias": false, "intermediate_size": 6144,
       "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
       "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu", "rms_norm_eps": 1e-6,
       "rope_theta": 1000000.0, "rope_scaling": null, "max_position_embeddings": 40960, "initializer_range": 0.02,
       "tie_word_embeddings": false, "bos_token_id": 151643, "eos_token_id": 151645})"}},
    {"llama-3.1-8b", {kNone, kNone, kNone, R"({
       "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "vocab_size": 128256,
       "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
       "head_dim": 128, "attention_bias": false, "mlp_bias": false, "intermediate_size": 14336,
       "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
       "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
       "max_position_embeddings": 131072, "initializer_range": 0.02, "tie_word_embeddings": false,
       "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]})"}},
};

bool is_json_file(const std::filesystem::path& path) {
  std::error_code none;
  return path.extension() == ".json" && std::filesystem::is_regular_file(path, none);
}

// A single word is more likely a mistyped shape than a repository that was not downloaded.
io::ModelPath find_or_name_shapes(std::string_view argument) {
  try {
    return io::find_model(argument);
  } catch (const Error&) {
    std::error_code none;
    if (argument == "tiny" || argument.find('/') != argument.npos || io::names_a_file(argument) ||
        std::filesystem::exists(argument, none))
      throw;
  }
  const std::vector<std::string> names = preset_names();
  const std::string near = sys::nearest(argument, names);
  fail(printable(argument), {.what = "is neither a shape nor a model here",
                             .expected = near.empty() ? fmt::format("a folder, or {}", fmt::join(names, ", ")) : "",
                             .hint = near.empty() ? "hf download ORG/NAME" : near});
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

std::optional<io::Json> find_preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    auto config = nlohmann::json::object();
    for (const char* part : p.parts) config.update(nlohmann::json::parse(part));
    return io::Json::parse(config.dump(), p.name);
  }
  return std::nullopt;
}

io::ModelPath find_weights(std::string_view argument) {
  try {
    return io::find_model(argument);
  } catch (const Error&) {
    if (!find_preset(argument)) throw;
  }
  fail(printable(argument),
       {.what = "is a shape without weights",
        .expected = "a model",
        .hint = fmt::format("braid new {} FOLDER, which writes random ones", printable(argument))});
}

ConfigSource find_config(std::string_view argument) {
  const std::filesystem::path path(argument);
  if (is_json_file(path)) {
    const auto folder = std::filesystem::absolute(path).parent_path().filename();
    return {path.filename() == "config.json" ? folder.string() : path.stem().string(), io::Json::read(path), {}};
  }
  std::error_code none;
  if (!std::filesystem::exists(path, none)) {
    if (path.extension() == ".json") fail(printable(argument), {.what = "no such file", .expected = "a config.json"});
    if (auto preset = find_preset(argument)) return {std::string(argument), std::move(*preset), {}};
  }
  const io::ModelPath found = find_or_name_shapes(argument);
  if (found.is_gguf()) return {found.name, gguf_config(io::Gguf(found.weights)), found};
  return {found.name, folder_config(found), found};
}

}  // namespace braid::models
