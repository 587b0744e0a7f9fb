// Llama, Qwen3 and Qwen3-MoE: attention with RoPE and a gated feed-forward in every layer. Qwen3 norms every head's
// query and key; Qwen3-MoE has experts in most layers, routed by a softmax over all of them.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/family.h"

namespace braid::models {
namespace {

nn::MoeSpec read_experts(const io::Json& json, int64_t hidden) {
  nn::MoeSpec m;
  m.hidden = hidden;
  m.experts = need_int(json, {"num_experts", "num_local_experts"}, Ranges::experts);
  m.top_k = need_int(json, {"num_experts_per_tok"}, {1, 1024});
  m.width = need_int(json, {"moe_intermediate_size"}, Ranges::width);
  m.gated = true;
  need_act(json, {"hidden_act"}, Act::silu, "silu");
  m.router = RouterKind::softmax;
  m.normalise = bool_or(json, {"norm_topk_prob"}, false);
  if (m.top_k > m.experts)
    json.need({"num_experts_per_tok"})
        .refuse("more experts per token than experts", fmt::format("at most {}", m.experts));
  return m;
}

// Attention that reads only the last positions. Qwen3's layer_types decide, or where they are absent
// use_sliding_window, for layers from max_window_layers on; Qwen3-MoE has no such list, nor Llama any windows
// (transformers' code of each).
void need_full_attention(const io::Json& json, bool qwen, bool sparse, int64_t layers) {
  const auto types = json.get({"layer_types"});
  if (types) {
    for (const io::Json& type : types->items()) {
      if (type.as_string() != "full_attention") type.refuse("is not supported", "full_attention");
    }
  }
  if (!qwen || !bool_or(json, {"use_sliding_window"}, false)) return;
  const bool none = json.raw().contains("sliding_window") && !json.get({"sliding_window"});
  constexpr int64_t kFirst = 28;  // in transformers, where the config does not say
  const bool outside =
      !sparse && (types || int_or(json, {"max_window_layers"}, {0, Ranges::layers.max}, kFirst) >= layers);
  if (!none && !outside)
    json.need({"use_sliding_window"})
        .refuse("is not supported", "false", "false, if no sequence is longer than sliding_window");
}

// Layers that stay dense in a mixture: those listed, and those between the sparse steps.
bool is_dense(const io::Json& json, int64_t layer) {
  if (const auto dense = json.get({"mlp_only_layers"})) {
    for (const io::Json& index : dense->items()) {
      if (index.as_int() == layer) return true;
    }
  }
  return (layer + 1) % int_or(json, {"decoder_sparse_step"}, Ranges::layers, 1) != 0;
}

}  // namespace

Config read_llama(const io::Json& json) {
  const std::string type = json.string_of({"model_type"}).value_or("llama");
  const bool qwen = type.starts_with("qwen3"), sparse = type == "qwen3_moe";
  Config c = read_common(json, sparse ? "qwen3_moe" : qwen ? "qwen3" : "llama");
  c.eps = static_cast<float>(number_or(json, {"rms_norm_eps"}, {0, 1}, 1e-6));
  nn::AttentionSpec attention = read_attention(json, c.hidden);
  attention.qk_norm = qwen;
  attention.eps = c.eps;
  c.rope = read_rope(json, attention.head_dim);
  const Act act = read_act(json, {"hidden_act"}, Act::silu);
  const int64_t layers = need_int(json, {"num_hidden_layers"}, Ranges::layers);
  need_full_attention(json, qwen, sparse, layers);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    LayerSpec layer;
    layer.parts.push_back({attention, prefix + "input_layernorm", prefix + "self_attn."});
    PartSpec feed{{}, prefix + "post_attention_layernorm", prefix + "mlp."};
    if (sparse && !is_dense(json, i)) {
      feed.block = read_experts(json, c.hidden);
    } else {
      feed.block = nn::MlpSpec{.hidden = c.hidden,
                               .width = need_int(json, {"intermediate_size"}, Ranges::width),
                               .act = act,
                               .gated = true,
                               .bias = bool_or(json, {"mlp_bias"}, false)};
    }
    layer.parts.push_back(std::move(feed));
    c.layers.push_back(std::move(layer));
  }
  name_like_llama(c);
  c.padding = read_padding(json, c.vocab);
  return c;
}

}  // namespace braid::models
