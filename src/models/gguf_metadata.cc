#include "models/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "sys/error.h"

namespace braid::models {
namespace {

uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

// The blocks of one kind, in order.
template <class Spec>
std::vector<const Spec*> blocks_of(const Config& config) {
  std::vector<const Spec*> list;
  for (const LayerSpec& layer : config.layers) {
    for (const PartSpec& part : layer.parts) {
      if (const auto* spec = std::get_if<Spec>(&part.block)) list.push_back(spec);
    }
  }
  return list;
}

// The block of a layer of the prediction block; null: there is none, or one of another kind.
template <class Spec>
const Spec* predicts(const Config& config, size_t layer) {
  const auto& layers = config.mtp->layers;
  return layer < layers.size() ? std::get_if<Spec>(&layers[layer].parts.at(0).block) : nullptr;
}

class MetadataWriter {
 public:
  MetadataWriter(const Config& config, const std::string& where)
      : config_(config),
        where_(where),
        mambas_(blocks_of<nn::Mamba2Spec>(config)),
        attentions_(blocks_of<nn::AttentionSpec>(config)),
        mlps_(blocks_of<nn::MlpSpec>(config)),
        moes_(blocks_of<nn::MoeSpec>(config)) {
    if (!moes_.empty() && !mlps_.empty()) refuse("experts in some layers and a dense feed-forward in others");
    if (hybrid())
      check_hybrid();
    else
      check_transformer();
  }

  bool hybrid() const { return config_.family == "nemotron_h"; }
  const char* architecture() const {
    if (hybrid()) return moes_.empty() ? "nemotron_h" : "nemotron_h_moe";
    for (const auto& [family, name] :
         {std::pair{"llama", "llama"}, {"nemotron-nas", "deci"}, {"qwen3", "qwen3"}, {"qwen3_moe", "qwen3moe"}}) {
      if (config_.family == family) return name;
    }
    fail(where_, {.what = "this family cannot be written as GGUF",
                  .got = config_.family,
                  .expected = "nemotron_h, llama, nemotron-nas, qwen3 or qwen3_moe"});
  }

  io::GgufFields fields(const std::string& name) && {
    fields_ = {{"general.architecture", std::string(architecture())},
               {"general.type", std::string("model")},
               {"general.name", name}};
    add("block_count", u32(std::ssize(config_.layers) + (config_.mtp ? 1 : 0)));
    add("context_length", u32(config_.positions_max > 0 ? config_.positions_max : 1 << 20));
    add("embedding_length", u32(config_.hidden));
    add("vocab_size", u32(config_.vocab));
    add("attention.layer_norm_rms_epsilon", config_.eps);
    add("attention.layer_norm_epsilon", config_.eps);
    if (hybrid()) {
      add_layers();
      add_attention();
      add_mamba();
      if (!moes_.empty()) add_experts();
      if (config_.mtp) add("nextn_predict_layers", 1u);
    } else {
      add_transformer();
      add_rope();
    }
    return std::move(fields_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(where_, {.what = "llama.cpp cannot run this model: it has " + what});
  }
  void add(const char* key, io::GgufField value) {
    fields_.emplace_back(fmt::format("{}.{}", architecture(), key), std::move(value));
  }
  void check_hybrid() const {
    if (attentions_.empty()) refuse("no attention layers");
    for (const nn::Mamba2Spec* m : mambas_) {
      if (m->dt_min > 0 || m->dt_max > 0) refuse("time_step_limit, a clamp that it does not apply");
    }
    for (const nn::MoeSpec* m : moes_) {
      if (m->shared_width == 0) refuse("experts without a shared one");
    }
    for (const nn::MlpSpec* m : mlps_) {
      if (m->gated || m->act != Act::relu2) refuse("a feed-forward that is not relu2");
    }
  }
  void check_transformer() const {
    architecture();
    if (!config_.rope || attentions_.empty()) refuse("no attention");
    const bool qwen = config_.family == "qwen3" || config_.family == "qwen3_moe";
    if (qwen && attentions_[0]->out_bias) refuse("a bias on the output of attention (attention_bias)");
    if (config_.rope->dim != attentions_[0]->head_dim) refuse("a part of each head without rotation");
    const RopeOptions& rope = config_.rope->options;
    const bool llama3 = rope.scaling == RopeScaling::llama3;
    if (llama3 && architecture() != std::string_view("llama") && architecture() != std::string_view("deci"))
      refuse("RoPE scaled as Llama 3 does");
    const double original = rope.original_max_position_embeddings;
    if (rope.scaling == RopeScaling::yarn && (!rope.truncate || rope.factor < 1))
      refuse(rope.truncate ? "YaRN with a factor below 1" : "YaRN without truncate");
    if (rope.scaling == RopeScaling::yarn && (original != std::floor(original) || original > 1e9))
      refuse("YaRN of a length that is not a whole number");
    if (llama3 && rope.low_freq_factor >= rope.high_freq_factor) refuse("a low_freq_factor above high_freq_factor");
    if (!blocks_of<LinearSpec>(config_).empty() && config_.family != "nemotron-nas") refuse("linear layers");
    for (const nn::MlpSpec* m : mlps_) {
      if (!m->gated || m->act != Act::silu) refuse("a feed-forward that is not SwiGLU");
    }
    for (const nn::MoeSpec* m : moes_) {
      if (!m->normalise) refuse("weights of experts that do not sum to one");
    }
  }
  // A value that the file has once and all blocks must share.
  template <class Spec, class Get>
  auto same(const std::vector<const Spec*>& specs, const char* what, Get&& get) const {
    for (const Spec* spec : specs) {
      if (get(*spec) != get(*specs[0])) refuse(fmt::format("layers of different {}", what));
    }
    return get(*specs[0]);
  }

  // A layer has attention where it has KV heads, a feed-forward part where that has a width, else it is a Mamba block.
  void add_layers() {
    std::vector<int32_t> kv_heads, widths;
    for (const LayerSpec& layer : config_.layers) {
      const BlockSpec& block = layer.parts.at(0).block;
      const auto* attention = std::get_if<nn::AttentionSpec>(&block);
      const auto* mlp = std::get_if<nn::MlpSpec>(&block);
      const auto* moe = std::get_if<nn::MoeSpec>(&block);
      kv_heads.push_back(attention ? static_cast<int32_t>(attention->kv_heads) : 0);
      widths.push_back(static_cast<int32_t>(mlp ? mlp->width : moe ? moe->width : 0));
    }
    if (config_.mtp) {  // one block with both
      kv_heads.push_back(static_cast<int32_t>(predicts<nn::AttentionSpec>(config_, 0)->kv_heads));
      widths.push_back(static_cast<int32_t>(predicts<nn::MoeSpec>(config_, 1)->width));
    }
    add("attention.head_count_kv", std::move(kv_heads));
    add("feed_forward_length", std::move(widths));
  }

  void add_attention() {
    using Spec = nn::AttentionSpec;
    const auto get = [&](const char* what, auto&& field) { return same(attentions_, what, field); };
    const int64_t width = get("head widths", [](const Spec& a) { return a.head_dim; });
    add("attention.head_count", u32(get("head counts", [](const Spec& a) { return a.heads; })));
    add("attention.key_length", u32(width));
    add("attention.value_length", u32(width));
  }

  // Llama-Nemotron has head counts per layer: no KV heads where attention is a linear map, no heads where there is
  // none.
  void add_transformer() {
    using Spec = nn::AttentionSpec;
    const int64_t width = same(attentions_, "head widths", [](const Spec& a) { return a.head_dim; });
    const int64_t heads = same(attentions_, "head counts", [](const Spec& a) { return a.heads; });
    add("attention.key_length", u32(width));
    add("attention.value_length", u32(width));
    if (config_.family == "nemotron-nas") {
      std::vector<int32_t> counts, kv_counts, widths;
      for (const LayerSpec& layer : config_.layers) {
        int64_t count = 0, kv = 0, wide = 0;
        for (const PartSpec& part : layer.parts) {
          if (const auto* a = std::get_if<Spec>(&part.block)) count = heads, kv = a->kv_heads;
          if (const auto* m = std::get_if<nn::MlpSpec>(&part.block)) wide = m->width;
          const auto* linear = std::get_if<LinearSpec>(&part.block);
          if (linear && linear->role != ParamRole::linear_attention) refuse("a linear map in place of a feed-forward");
          if (linear) count = heads;
        }
        if (count > 0 && wide == 0) refuse("attention in a layer without a feed-forward, which it leaves out");
        counts.push_back(static_cast<int32_t>(count));
        kv_counts.push_back(static_cast<int32_t>(kv));
        widths.push_back(static_cast<int32_t>(wide));
      }
      add("attention.head_count", std::move(counts));
      add("attention.head_count_kv", std::move(kv_counts));
      add("feed_forward_length", std::move(widths));
      return;
    }
    add("attention.head_count", u32(heads));
    add("attention.head_count_kv", u32(same(attentions_, "KV head counts", [](const Spec& a) { return a.kv_heads; })));
    if (moes_.empty()) {
      add("feed_forward_length", u32(same(mlps_, "widths", [](const nn::MlpSpec& m) { return m.width; })));
      return;
    }
    const auto get = [&](const char* what, auto&& field) { return u32(same(moes_, what, field)); };
    const uint32_t wide = get("expert widths", [](const nn::MoeSpec& m) { return m.width; });
    add("feed_forward_length", wide);
    add("expert_feed_forward_length", wide);
    add("expert_count", get("expert counts", [](const nn::MoeSpec& m) { return m.experts; }));
    add("expert_used_count", get("numbers of active experts", [](const nn::MoeSpec& m) { return m.top_k; }));
  }

  void add_rope() {
    const nn::RopeSpec& rope = *config_.rope;
    add("rope.dimension_count", u32(rope.dim));
    add("rope.freq_base", static_cast<float>(rope.options.theta));
    const RopeOptions& o = rope.options;
    if (o.scaling == RopeScaling::none) return;
    const auto number = [](double value) { return static_cast<float>(value); };
    if (o.scaling == RopeScaling::llama3) {  // llama.cpp reads a tensor; what it was made of is for our own reader
      fields_.emplace_back(kLlama3Factor, number(o.factor));
      fields_.emplace_back(kLlama3Low, number(o.low_freq_factor));
      fields_.emplace_back(kLlama3High, number(o.high_freq_factor));
      fields_.emplace_back(kLlama3Original, number(o.original_max_position_embeddings));
      return;
    }
    const bool yarn = o.scaling == RopeScaling::yarn;
    add("rope.scaling.type", std::string(yarn ? "yarn" : "linear"));
    add("rope.scaling.factor", number(o.factor));
    if (!yarn) return;
    add("rope.scaling.original_context_length", u32(std::llround(o.original_max_position_embeddings)));
    // It multiplies its own factor, which grows with the logarithm, by this one.
    add("rope.scaling.attn_factor", number(o.attention_factor / (1 + 0.1 * std::log(o.factor))));
    add("rope.scaling.yarn_beta_fast", number(o.beta_fast));
    add("rope.scaling.yarn_beta_slow", number(o.beta_slow));
  }

  void add_mamba() {
    using Spec = nn::Mamba2Spec;
    if (mambas_.empty()) refuse("no Mamba layers");
    add("ssm.conv_kernel", u32(same(mambas_, "convolutions", [](const Spec& m) { return m.conv_width; })));
    add("ssm.inner_size", u32(same(mambas_, "Mamba widths", [](const Spec& m) { return m.inner(); })));
    add("ssm.state_size", u32(same(mambas_, "state sizes", [](const Spec& m) { return m.state; })));
    add("ssm.time_step_rank", u32(same(mambas_, "Mamba head counts", [](const Spec& m) { return m.heads; })));
    add("ssm.group_count", u32(same(mambas_, "group counts", [](const Spec& m) { return m.groups; })));
  }

  void add_experts() {
    using Spec = nn::MoeSpec;
    const auto get = [&](const char* what, auto&& field) { return same(moes_, what, field); };
    const int64_t latent = get("latent widths", [](const Spec& m) { return m.latent; });
    add("expert_count", u32(get("expert counts", [](const Spec& m) { return m.experts; })));
    add("expert_used_count", u32(get("numbers of active experts", [](const Spec& m) { return m.top_k; })));
    add("expert_feed_forward_length", u32(get("expert widths", [](const Spec& m) { return m.width; })));
    add("expert_shared_feed_forward_length", u32(get("shared widths", [](const Spec& m) { return m.shared_width; })));
    add("expert_shared_count", 1u);
    add("expert_weights_norm", get("routers", [](const Spec& m) { return m.normalise; }));
    add("expert_weights_scale", get("router scales", [](const Spec& m) { return m.scale; }));
    add("expert_group_count", u32(get("expert groups", [](const Spec& m) { return m.n_group; })));
    add("expert_group_used_count", u32(get("expert groups", [](const Spec& m) { return m.topk_group; })));
    if (latent > 0) add("moe_latent_size", u32(latent));
  }

  const Config& config_;
  const std::string& where_;
  std::vector<const nn::Mamba2Spec*> mambas_;
  std::vector<const nn::AttentionSpec*> attentions_;
  std::vector<const nn::MlpSpec*> mlps_;
  std::vector<const nn::MoeSpec*> moes_;
  io::GgufFields fields_;
};

}  // namespace

std::string gguf_architecture(const Config& config, const std::string& where) {
  return MetadataWriter(config, where).architecture();
}

std::string prediction_misfit(const Config& config) {
  if (!config.mtp) return {};
  const auto* attention = predicts<nn::AttentionSpec>(config, 0);
  const auto* moe = predicts<nn::MoeSpec>(config, 1);
  if (!attention || !moe || config.mtp->layers.size() != 2) return "other layers than attention and experts";
  const auto attentions = blocks_of<nn::AttentionSpec>(config);
  const auto moes = blocks_of<nn::MoeSpec>(config);
  if (moes.empty()) return "experts, and the layers have none";
  const auto heads = [](const nn::AttentionSpec& a) { return std::pair(a.heads, a.head_dim); };
  const auto shape = [](const nn::MoeSpec& m) {
    return std::tuple(m.experts, m.top_k, m.width, m.latent, m.shared_width, m.n_group, m.topk_group, m.normalise,
                      m.scale);
  };
  if (!attentions.empty() && heads(*attention) != heads(*attentions[0])) return "other heads than the layers";
  if (shape(*moe) != shape(*moes[0])) return "other experts than the layers";
  return {};
}

std::vector<float> rope_divisors(const nn::RopeSpec& rope) {
  const RopeOptions& o = rope.options;
  if (o.scaling != RopeScaling::llama3) return {};
  std::vector<float> divisors;
  for (int64_t i = 0; i < rope.dim / 2; ++i) {
    const RopeOptions unscaled{.theta = o.theta};
    divisors.push_back(
        static_cast<float>(rope_frequency(unscaled, i, rope.dim / 2) / rope_frequency(o, i, rope.dim / 2)));
  }
  return divisors;
}

io::GgufFields gguf_metadata(const Config& config, const std::string& name, const std::string& where) {
  return MetadataWriter(config, where).fields(name);
}

}  // namespace braid::models
