// Raven (Huginn, arXiv 2502.05171): recurrent depth. A prelude of layers, a core that is run several times with the
// prelude's output injected into each step, and a coda. Every layer has four norms: before and after each of its
// blocks.
#include <fmt/format.h>

#include <cmath>

#include "models/family.h"

namespace braid::models {
namespace {

constexpr nn::Spelling::Name kNames[] = {{ParamRole::qkv, "Wqkv.weight", "n_embd"},
                                         {ParamRole::bias, "qk_bias", "n_heads, n_embd / n_heads"},
                                         {ParamRole::attention_out, "proj.weight", "n_embd"},
                                         {ParamRole::gate_up, "fc.weight", "2 * intermediate_size, n_embd"},
                                         {ParamRole::down, "proj.weight", "n_embd, intermediate_size"},
                                         {ParamRole::loop_in, "adapter.weight", "n_embd, 2 * n_embd"}};
constexpr nn::Spelling kSpelling{.names = kNames};

}  // namespace

Config read_raven(const io::Json& json) {
  // What the public code can be configured to but no published model is.
  need_usual(json, {{"block_class_name", "SandwichBlock"},
                    {"norm_class_name", "RMSNorm_llama"},
                    {"mlp_class_name", "GatedMLP"},
                    {"nonlin_name", "SiLU"},
                    {"injection_type", "linear"},
                    {"state_init", "like-init"},
                    {"bias", false},
                    {"test_time_noise", 0.0}});
  Config c = read_common(json, "raven");
  c.spelling = &kSpelling;
  c.eps = static_cast<float>(number_or(json, {"norm_eps"}, {0, 1}, 1e-6));
  c.vocab = int_or(json, {"padded_vocab_size"}, Ranges::vocab, c.vocab);
  c.positions_max = need_int(json, {"block_size"}, Ranges::positions);
  c.tied = bool_or(json, {"tie_embeddings"}, true);
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden));
  nn::AttentionSpec attention{.hidden = c.hidden, .qk_bias = bool_or(json, {"qk_bias"}, true)};
  attention.heads = need_int(json, {"n_heads", "num_attention_heads"}, Ranges::heads);
  attention.kv_heads = int_or(json, {"num_key_value_heads"}, Ranges::heads, attention.heads);
  if (attention.kv_heads != attention.heads)
    json.need({"num_key_value_heads"}).refuse("is not supported", fmt::format("as many as heads, {}", attention.heads));
  if (c.hidden % (2 * attention.heads) != 0)
    json.need({"n_embd"})
        .refuse("heads have no whole pairs of channels", fmt::format("a multiple of {}", 2 * attention.heads));
  attention.head_dim = c.hidden / attention.heads;
  c.rope = {.dim = attention.head_dim, .adjacent = true};
  c.rope->options.theta = number_or(json, {"rope_base"}, {1e-6, 1e12}, 50000);
  const nn::MlpSpec mlp{.hidden = c.hidden,
                        .width = need_int(json, {"intermediate_size"}, Ranges::width),
                        .act = Act::silu,
                        .gated = true};
  const auto add = [&](const char* part, io::Keys key) {
    const int64_t layers = need_int(json, key, Ranges::layers);
    for (int64_t i = 0; i < layers; ++i) {
      const std::string p = fmt::format("transformer.{}.{}.", part, i);
      c.layers.push_back({{{attention, p + "norm_1", p + "attn.", p + "norm_2"},  //
                           {mlp, p + "norm_3", p + "mlp.", p + "norm_4"}}});
    }
    return c.layers.size();
  };
  LoopSpec loop{.prefix = "transformer.", .norm = "transformer.ln_f"};
  loop.begin = add("prelude", {"n_layers_in_prelude"});
  loop.end = add("core_block", {"n_layers_in_recurrent_block"});
  add("coda", {"n_layers_in_coda"});
  loop.steps = need_int(json, {"mean_recurrence"}, {1, kLoopSteps});
  loop.backward_steps = int_or(json, {"mean_backprop_depth"}, {1, kLoopSteps}, loop.steps);
  loop.start_std = std::sqrt(2.0f / 5);  // of the weights, sqrt(2 / (5 n_embd)), times the scale of the embedding
  c.loop = std::move(loop);
  c.embedding = "transformer.wte.weight";
  c.final_norm = "transformer.ln_f";
  c.head = "lm_head.weight";
  return c;
}

}  // namespace braid::models
