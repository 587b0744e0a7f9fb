// The older dense line, Nemotron-4 and Minitron (docs/internals/families.md): LayerNorm with 1 + w, half rotary, relu2
// without a gate.
#include <fmt/format.h>

#include "models/family.h"

namespace braid::models {

Config read_nemotron(const io::Json& json) {
  Config c = read_common(json, "nemotron");
  c.eps = static_cast<float>(number_or(json, {"norm_eps"}, {0, 1}, 1e-5));
  c.norm = NormKind::layer_plus_one;
  const nn::AttentionSpec attention = read_attention(json, c.hidden);
  c.rope = read_rope(json, attention.head_dim, 0.5);
  const nn::MlpSpec mlp{.hidden = c.hidden,
                        .width = need_int(json, {"intermediate_size"}, Ranges::width),
                        .act = read_act(json, {"hidden_act"}, Act::relu2),
                        .bias = bool_or(json, {"mlp_bias"}, false)};
  const int64_t layers = need_int(json, {"num_hidden_layers"}, Ranges::layers);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    c.layers.push_back({{{attention, prefix + "input_layernorm", prefix + "self_attn."},
                         {mlp, prefix + "post_attention_layernorm", prefix + "mlp."}}});
  }
  name_like_llama(c);
  c.padding = read_padding(json, c.vocab);
  return c;
}

}  // namespace braid::models
