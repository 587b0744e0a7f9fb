// Llama-Nemotron (docs/internals/families.md): Llama layers whose attention and feed-forward are each full, a plain
// linear map, or absent, with their own widths. A layer may do nothing at all.
#include <fmt/format.h>

#include "models/family.h"

namespace braid::models {
namespace {

bool absent(const io::Json& part) { return bool_or(part, {"no_op"}, false); }
bool is_linear(const io::Json& part) { return bool_or(part, {"replace_with_linear"}, false); }

// Width from ffn_mult: two thirds of mult * 2 * hidden, up to a multiple of 256.
int64_t width_of(const io::Json& ffn, int64_t hidden) {
  if (const auto width = ffn.int_of({"intermediate_size"}, Ranges::width)) return *width;
  const double mult = ffn.need({"ffn_mult"}).as_number({1e-3, 64});
  const auto exact = static_cast<int64_t>(2 * mult * static_cast<double>(hidden) / 3);
  if (exact < 1) ffn.need({"ffn_mult"}).refuse("leaves no channel of this hidden_size", "a larger factor");
  return (exact + 255) / 256 * 256;
}

}  // namespace

Config read_nemotron_nas(const io::Json& json) {
  Config c = read_common(json, "nemotron-nas");
  c.eps = static_cast<float>(number_or(json, {"rms_norm_eps"}, {0, 1}, 1e-6));
  const int64_t heads = need_int(json, {"num_attention_heads"}, Ranges::heads);
  nn::AttentionSpec attention{.hidden = c.hidden, .heads = heads, .kv_heads = heads};
  attention.head_dim = int_or(json, {"head_dim"}, Ranges::head_dim, std::max<int64_t>(1, c.hidden / heads));
  attention.bias = attention.out_bias = bool_or(json, {"attention_bias"}, false);
  c.rope = read_rope(json, attention.head_dim);
  const auto blocks = json.need({"block_configs"}).items();
  if (blocks.empty() || blocks.size() > 1024)
    json.need({"block_configs"}).refuse("no usable number of layers", "1 to 1024");
  for (size_t i = 0; i < blocks.size(); ++i) {
    const io::Json part = blocks[i].need({"attention"}), ffn = blocks[i].need({"ffn"});
    const std::string prefix = fmt::format("model.layers.{}.", i);
    need_absent(part, {"window_length", "num_sink_tokens", "sparsify"});
    need_usual(part, {{"use_prefill_window_attention", false}, {"unshifted_sink", false}});
    need_absent(ffn, {"sparsify", "moe"});
    LayerSpec layer;
    const bool no_attention = absent(part) || (!is_linear(part) && !part.get({"n_heads_in_group"}));
    if (is_linear(part)) {
      layer.parts.push_back(
          {LinearSpec{c.hidden, ParamRole::linear_attention}, prefix + "input_layernorm", prefix + "self_attn."});
    } else if (!no_attention) {
      const int64_t group = need_int(part, {"n_heads_in_group"}, {1, heads});
      if (heads % group != 0)
        part.need({"n_heads_in_group"})
            .refuse("does not divide num_attention_heads", fmt::format("a divisor of {}", heads));
      attention.kv_heads = heads / group;
      layer.parts.push_back({attention, prefix + "input_layernorm", prefix + "self_attn."});
    }
    const bool no_ffn = absent(ffn) || (!is_linear(ffn) && !ffn.get({"intermediate_size", "ffn_mult"}));
    if (is_linear(ffn)) {
      layer.parts.push_back(
          {LinearSpec{c.hidden, ParamRole::linear_mlp}, prefix + "post_attention_layernorm", prefix + "mlp."});
    } else if (!no_ffn) {
      const Act act = read_act(ffn, {"hidden_act"}, read_act(json, {"hidden_act"}, Act::silu));
      layer.parts.push_back({nn::MlpSpec{.hidden = c.hidden,
                                         .width = width_of(ffn, c.hidden),
                                         .act = act,
                                         .gated = true,
                                         .bias = bool_or(json, {"mlp_bias"}, false)},
                             prefix + "post_attention_layernorm", prefix + "mlp."});
    }
    c.layers.push_back(std::move(layer));
  }
  name_like_llama(c);
  c.padding = read_padding(json, c.vocab);
  return c;
}

}  // namespace braid::models
