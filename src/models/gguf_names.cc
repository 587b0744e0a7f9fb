#include "models/gguf_names.h"

#include <fmt/format.h>

#include <charconv>
#include <span>
#include <system_error>

namespace braid::models {
namespace {

struct Name {
  const char* released;  // after "backbone.layers.N." or "model.layers.N."
  const char* gguf;      // after "blk.N."
};
constexpr Name kNemotronHNames[] = {{"norm.weight", "attn_norm.weight"},
                                    {"mixer.in_proj.weight", "ssm_in.weight"},
                                    {"mixer.conv1d.weight", "ssm_conv1d.weight"},
                                    {"mixer.conv1d.bias", "ssm_conv1d.bias"},
                                    {"mixer.A_log", "ssm_a"},
                                    {"mixer.D", "ssm_d"},
                                    {"mixer.dt_bias", "ssm_dt.bias"},
                                    {"mixer.norm.weight", "ssm_norm.weight"},
                                    {"mixer.out_proj.weight", "ssm_out.weight"},
                                    {"mixer.q_proj.weight", "attn_q.weight"},
                                    {"mixer.k_proj.weight", "attn_k.weight"},
                                    {"mixer.v_proj.weight", "attn_v.weight"},
                                    {"mixer.o_proj.weight", "attn_output.weight"},
                                    {"mixer.up_proj.weight", "ffn_up.weight"},
                                    {"mixer.down_proj.weight", "ffn_down.weight"},
                                    {"mixer.gate.weight", "ffn_gate_inp.weight"},
                                    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                    {"mixer.experts.up_proj", "ffn_up_exps.weight"},
                                    {"mixer.experts.down_proj", "ffn_down_exps.weight"},
                                    {"mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
                                    {"mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
                                    {"mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"},
                                    {"mixer.fc2_latent_proj.weight", "ffn_latent_up.weight"}};
constexpr Name kTransformerNames[] = {{"input_layernorm.weight", "attn_norm.weight"},
                                      {"self_attn.q_proj.weight", "attn_q.weight"},
                                      {"self_attn.q_proj.bias", "attn_q.bias"},
                                      {"self_attn.k_proj.weight", "attn_k.weight"},
                                      {"self_attn.k_proj.bias", "attn_k.bias"},
                                      {"self_attn.v_proj.weight", "attn_v.weight"},
                                      {"self_attn.v_proj.bias", "attn_v.bias"},
                                      {"self_attn.o_proj.weight", "attn_output.weight"},
                                      {"self_attn.o_proj.bias", "attn_output.bias"},
                                      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                                      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                      {"self_attn.linear_attn.weight", "attn_output.weight"},
                                      {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                      {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                      {"mlp.gate_proj.bias", "ffn_gate.bias"},
                                      {"mlp.up_proj.weight", "ffn_up.weight"},
                                      {"mlp.up_proj.bias", "ffn_up.bias"},
                                      {"mlp.down_proj.weight", "ffn_down.weight"},
                                      {"mlp.down_proj.bias", "ffn_down.bias"},
                                      {"mlp.gate.weight", "ffn_gate_inp.weight"},
                                      {"mlp.experts.gate_proj", "ffn_gate_exps.weight"},
                                      {"mlp.experts.up_proj", "ffn_up_exps.weight"},
                                      {"mlp.experts.down_proj", "ffn_down_exps.weight"}};
constexpr Name kWhole[] = {
    {"backbone.embeddings.weight", "token_embd.weight"},
    {"backbone.norm_f.weight", "output_norm.weight"},
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

struct Layers {
  std::string_view prefix;
  std::span<const Name> names;
};
constexpr Layers kLayers[] = {{"backbone.layers.", kNemotronHNames}, {"model.layers.", kTransformerNames}};

// What the prediction block spells otherwise than a layer, after "mtp.layers.".
constexpr Name kPredictionNames[] = {{"0.enorm.weight", "nextn.enorm.weight"},
                                     {"0.hnorm.weight", "nextn.hnorm.weight"},
                                     {"0.eh_proj.weight", "nextn.eh_proj.weight"},
                                     {"1.norm.weight", "post_attention_norm.weight"},
                                     {"1.final_layernorm.weight", "nextn.shared_head_norm.weight"}};

const char* find(std::span<const Name> names, std::string_view released) {
  for (const Name& name : names) {
    if (released == name.released) return name.gguf;
  }
  return nullptr;
}

// `rest` after "mtp.layers."
const char* prediction_name(std::string_view rest) {
  if (const char* name = find(kPredictionNames, rest)) return name;
  return rest.starts_with("0.") || rest.starts_with("1.") ? find(kNemotronHNames, rest.substr(2)) : nullptr;
}

}  // namespace

std::string gguf_name(std::string_view released, int64_t layers) {
  constexpr std::string_view kPrediction = "mtp.layers.";
  if (released.starts_with(kPrediction)) {
    const char* name = prediction_name(released.substr(kPrediction.size()));
    return name ? fmt::format("blk.{}.{}", layers, name) : std::string();
  }
  if (const char* name = find(kWhole, released)) return name;
  for (const Layers& spelled : kLayers) {
    if (!released.starts_with(spelled.prefix)) continue;
    const std::string_view rest = released.substr(spelled.prefix.size());
    const size_t dot = rest.find('.');
    if (dot == rest.npos) return {};
    const char* name = find(spelled.names, rest.substr(dot + 1));
    return name ? fmt::format("blk.{}.{}", rest.substr(0, dot), name) : std::string();
  }
  return {};
}

bool gguf_needs_place(std::string_view name, int64_t layers) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock) || name.ends_with("scale") || name.ends_with(".rope_freqs.weight")) return false;
  int64_t layer = 0;
  const auto read = std::from_chars(name.data() + kBlock.size(), name.data() + name.size(), layer);
  return read.ec == std::errc() && layer < layers;
}

}  // namespace braid::models
