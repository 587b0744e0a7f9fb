// GPT-2: LayerNorm, learned positions, q, k and v in one matrix, matrices stored transposed, head tied to the
// embedding.
#include <fmt/format.h>

#include "models/family.h"

namespace braid::models {

Config read_gpt2(const io::Json& json) {
  Config c = read_common(json, "gpt2");
  c.eps = static_cast<float>(number_or(json, {"layer_norm_epsilon"}, {0, 1}, 1e-5));
  c.norm = NormKind::layer;
  need_usual(
      json, {{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}});
  static constexpr nn::Spelling::Name kNames[] = {{ParamRole::qkv, "c_attn.weight", "n_embd"},
                                                  {ParamRole::attention_out, "c_proj.weight", "n_embd"},
                                                  {ParamRole::up, "c_fc.weight", "n_inner, n_embd"},
                                                  {ParamRole::down, "c_proj.weight", "n_embd, n_inner"}};
  static constexpr nn::Spelling kSpelling{.names = kNames, .transposed = true};
  c.spelling = &kSpelling;
  // A missing rate is 0.1 in transformers.
  const auto rate = [&](const char* key) { return static_cast<float>(number_or(json, {key}, {0, 0.99}, 0.1)); };
  c.dropout = {.embedding = rate("embd_pdrop"), .residual = rate("resid_pdrop"), .attention = rate("attn_pdrop")};
  c.tied = bool_or(json, {"tie_word_embeddings"}, true);
  c.learned_positions = need_int(json, {"n_positions", "n_ctx"}, {1, int64_t{1} << 24});
  c.positions_max = c.learned_positions;
  nn::AttentionSpec attention{.hidden = c.hidden, .bias = true, .out_bias = true};
  attention.heads = attention.kv_heads = need_int(json, {"n_head"}, Ranges::heads);
  if (c.hidden % attention.heads != 0)
    json.need({"n_head"}).refuse("does not divide n_embd", fmt::format("a divisor of {}", c.hidden));
  attention.head_dim = c.hidden / attention.heads;
  const nn::MlpSpec mlp{.hidden = c.hidden,
                        .width = int_or(json, {"n_inner"}, Ranges::width, 4 * c.hidden),
                        .act = read_act(json, {"activation_function"}, Act::gelu_tanh),
                        .bias = true};
  const int64_t layers = need_int(json, {"n_layer"}, Ranges::layers);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = fmt::format("transformer.h.{}.", i);
    c.layers.push_back({{{attention, prefix + "ln_1", prefix + "attn."}, {mlp, prefix + "ln_2", prefix + "mlp."}}});
  }
  c.embedding = "transformer.wte.weight";
  c.position_embedding = "transformer.wpe.weight";
  c.final_norm = "transformer.ln_f";
  c.head = "lm_head.weight";
  return c;
}

}  // namespace braid::models
