// Nemotron-H, Nano 2, Nemotron 3 Nano / Super / Ultra, 3.5 Lightning and Puzzle (docs/internals/families.md, Hybrids):
// one mixer per layer, given by a list or a pattern string of M * - E. Both vocabularies of block names and the older
// spellings are read.
#include <fmt/format.h>

#include "models/family.h"
#include "models/pattern.h"

namespace braid::models {
namespace {

nn::Mamba2Spec read_mamba(const io::Json& json, int64_t hidden, float eps) {
  nn::Mamba2Spec m;
  m.hidden = hidden;
  m.heads = need_int(json, {"mamba_num_heads"}, Ranges::heads);
  m.head_dim = need_int(json, {"mamba_head_dim"}, Ranges::head_dim);
  m.state = need_int(json, {"ssm_state_size", "mamba_state_dim"}, {1, 1 << 14});
  m.groups = int_or(json, {"n_groups", "mamba_n_groups"}, Ranges::heads, 8);
  m.conv_width = int_or(json, {"conv_kernel", "mamba_d_conv"}, {2, 64}, 4);
  m.chunk = int_or(json, {"chunk_size", "mamba_chunk_size"}, {1, 4096}, 128);
  m.conv_bias = bool_or(json, {"use_conv_bias", "mamba_conv_bias"}, true);
  // In transformers and NVIDIA's code use_bias decides; the other key is only stored with it.
  m.proj_bias = bool_or(json, {"use_bias", "mamba_proj_bias"}, false);
  need_act(json, {"mamba_hidden_act"}, Act::silu, "silu");
  m.eps = eps;
  // The only clamp on dt at run time. time_step_min and _max are for initialisation (docs/internals/pitfalls.md, 1).
  if (const auto limit = json.get({"time_step_limit", "mamba_dt_limit"})) {
    if (limit->items().size() != 2) limit->refuse("is not a pair", "the least and the largest dt");
    m.dt_min = static_cast<float>(limit->items()[0].as_number({0, 1e30}));
    const double top = limit->items()[1].as_number();
    if (!(top > 0) || top < static_cast<double>(m.dt_min))
      limit->refuse("does not go up", "the least dt, then the largest, above 0");
    m.dt_max = top < 1e30 ? static_cast<float>(top) : 0.0f;
  }
  if (m.heads % m.groups != 0) {
    json.need({"n_groups", "mamba_n_groups"})
        .refuse("mamba_num_heads is not a multiple of n_groups", fmt::format("a divisor of {}", m.heads));
  }
  return m;
}

// A Puzzle block has its own experts, top-k and widths; what it omits is the model's.
nn::MoeSpec read_moe(const io::Json& json, const io::Json* block, int64_t hidden) {
  const auto pick = [&](io::Keys keys, io::IntRange range, int64_t otherwise) {
    const auto own = block ? block->int_of(keys, range) : std::nullopt;
    return own ? *own : int_or(json, keys, range, otherwise);
  };
  const auto pick_needed = [&](io::Keys keys, io::IntRange range) {
    const auto own = block ? block->int_of(keys, range) : std::nullopt;
    return own ? *own : need_int(json, keys, range);
  };
  nn::MoeSpec m;
  m.hidden = hidden;
  m.experts = pick_needed({"n_routed_experts", "num_local_experts"}, Ranges::experts);
  m.top_k = pick_needed({"num_experts_per_tok"}, {1, 1024});
  m.width = pick_needed({"moe_intermediate_size"}, Ranges::width);
  m.latent = pick({"moe_latent_size"}, {1, int64_t{1} << 20}, 0);
  m.shared_width =
      pick({"n_shared_experts"}, {0, 1024}, 1) * pick({"moe_shared_expert_intermediate_size"}, Ranges::width, 0);
  m.n_group = pick({"n_group"}, Ranges::experts, 1);
  m.topk_group = pick({"topk_group"}, Ranges::experts, 1);
  need_act(json, {"mlp_hidden_act"}, Act::relu2, "relu2");
  need_usual(json, {{"mlp_bias", false}});  // of shared experts and latent projections
  m.normalise = bool_or(json, {"norm_topk_prob"}, true);
  m.scale = static_cast<float>(number_or(json, {"routed_scaling_factor"}, {0, 1e6}, 1.0));
  const io::Json& where = block && block->int_of({"num_experts_per_tok"}) ? *block : json;
  if (m.top_k > m.experts)
    where.need({"num_experts_per_tok"})
        .refuse("more experts per token than experts", fmt::format("at most {}", m.experts));
  if (m.n_group > 1 && m.experts / m.n_group < 2)
    json.need({"n_group"}).refuse("groups of fewer than two experts", fmt::format("at most {}", m.experts / 2));
  if (m.experts % m.n_group != 0)
    json.need({"n_group"})
        .refuse("n_routed_experts is not a multiple of n_group", fmt::format("a divisor of {}", m.experts));
  if (m.topk_group > m.n_group)
    json.need({"topk_group"}).refuse("more expert groups kept than there are", fmt::format("at most {}", m.n_group));
  if (m.topk_group * (m.experts / m.n_group) < m.top_k) {
    json.need({"topk_group"})
        .refuse("the kept groups hold too few experts",
                fmt::format("at least num_experts_per_tok = {} experts in them", m.top_k));
  }
  return m;
}

// A block may have its own number of heads.
nn::Mamba2Spec with_own_heads(nn::Mamba2Spec m, const io::Json& own) {
  m.heads = int_or(own, {"mamba_num_heads"}, Ranges::heads, m.heads);
  m.head_dim = int_or(own, {"mamba_head_dim"}, Ranges::head_dim, m.head_dim);
  if (m.heads % m.groups != 0)
    own.need({"mamba_num_heads"}).refuse("is not a multiple of n_groups", fmt::format("a multiple of {}", m.groups));
  return m;
}

nn::AttentionSpec with_own_heads(nn::AttentionSpec a, const io::Json& own) {
  a.heads = int_or(own, {"num_attention_heads"}, Ranges::heads, a.heads);
  a.kv_heads = int_or(own, {"num_key_value_heads"}, Ranges::heads, a.kv_heads);
  if (a.heads % a.kv_heads != 0)
    own.refuse("heads are not a multiple of key heads",
               fmt::format("num_attention_heads a multiple of {}", a.kv_heads));
  return a;
}

// intermediate_size may be a list: one entry per dense layer, or one per layer.
int64_t mlp_width(const io::Json& json, size_t layer, size_t ordinal, size_t layers) {
  const io::Json value = json.need({"intermediate_size"});
  if (!value.is_array()) return value.as_int(Ranges::width);
  const auto list = value.items();
  const size_t index = list.size() == layers ? layer : ordinal;
  if (index >= list.size())
    value.refuse("too few entries", fmt::format("one per layer ({}) or one per dense layer", layers));
  return list[index].as_int(Ranges::width);
}

struct Reader {
  const io::Json& json;
  const Config& config;

  BlockSpec block(char letter, const io::Json* own, size_t layer, size_t ordinal, size_t layers) const {
    switch (letter) {
      case 'M':
        return own ? with_own_heads(read_mamba(json, config.hidden, config.eps), *own)
                   : read_mamba(json, config.hidden, config.eps);
      case '*':
        return own ? with_own_heads(read_attention(json, config.hidden), *own) : read_attention(json, config.hidden);
      case 'E':
        return read_moe(json, own, config.hidden);
      default:
        return nn::MlpSpec{.hidden = config.hidden,
                           .width = mlp_width(json, layer, ordinal, layers),
                           .act = read_act(json, {"mlp_hidden_act"}, Act::relu2),
                           .bias = bool_or(json, {"mlp_bias"}, false)};
    }
  }
};

MtpSpec read_mtp(const Reader& reader) {
  const std::string letters =
      read_pattern(reader.json, {"mtp_layers_block_type", "mtp_hybrid_override_pattern"}, "mtp_block_configs")
          .value_or("*E");
  const auto own = reader.json.get({"mtp_block_configs"});
  MtpSpec mtp;
  mtp.prefix = "mtp.layers.0.";
  for (size_t i = 0; i < letters.size(); ++i) {
    const auto item = own ? std::optional(own->items()[i]) : std::nullopt;
    const std::string prefix = fmt::format("mtp.layers.{}.", i);
    if (const auto width = reader.json.get({"intermediate_size"}); letters[i] == '-' && width && width->is_array())
      width->refuse("has no width for the prediction block", "one number");
    mtp.layers.push_back({{{reader.block(letters[i], item ? &*item : nullptr, i, 0, letters.size()), prefix + "norm",
                            prefix + "mixer."}}});
  }
  mtp.final_norm = fmt::format("mtp.layers.{}.final_layernorm", letters.size() - 1);
  return mtp;
}

}  // namespace

Config read_nemotron_h(const io::Json& json) {
  Config c = read_common(json, "nemotron_h");
  c.eps = static_cast<float>(number_or(json, {"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}, {0, 1}, 1e-5));
  const auto letters = read_layer_pattern(json);
  if (!letters) json.need({"layers_block_type", "hybrid_override_pattern", "block_configs"});
  const auto own = json.get({"block_configs"});
  need_absent(json, {"sliding_window"});
  const Reader reader{json, c};
  size_t ordinal = 0;
  for (size_t i = 0; i < letters->size(); ++i) {
    const auto item = own ? std::optional(own->items()[i]) : std::nullopt;
    const std::string prefix = fmt::format("backbone.layers.{}.", i);
    c.layers.push_back({{{reader.block((*letters)[i], item ? &*item : nullptr, i, ordinal, letters->size()),
                          prefix + "norm", prefix + "mixer."}}});
    if ((*letters)[i] == '-') ++ordinal;
  }
  if (int_or(json, {"num_nextn_predict_layers"}, {0, 64}, 0) > 0) c.mtp = read_mtp(reader);
  c.embedding = "backbone.embeddings.weight";
  c.final_norm = "backbone.norm_f";
  c.head = "lm_head.weight";
  return c;
}

}  // namespace braid::models
