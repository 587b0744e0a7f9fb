#include "models/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
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

class Metadata {
 public:
  Metadata(const Config& config, const std::string& where)
      : config_(config),
        where_(where),
        mambas_(blocks_of<nn::Mamba2Spec>(config)),
        attentions_(blocks_of<nn::AttentionSpec>(config)),
        mlps_(blocks_of<nn::MlpSpec>(config)),
        moes_(blocks_of<nn::MoeSpec>(config)) {
    if (config.family != "nemotron_h")
      fail(where, {.what = "no GGUF is written of this family", .got = config.family, .expected = "nemotron_h"});
    if (!moes_.empty() && !mlps_.empty()) refuse("experts in some layers and a dense feed-forward in others");
    for (const nn::Mamba2Spec* m : mambas_) {
      if (m->dt_min > 0 || m->dt_max > 0) refuse("time_step_limit, a clamp that it does not do");
    }
    for (const nn::MoeSpec* m : moes_) {
      if (m->shared_width == 0) refuse("experts without a shared one");
    }
  }

  const char* architecture() const { return moes_.empty() ? "nemotron_h" : "nemotron_h_moe"; }

  io::GgufFields fields(const std::string& name) && {
    fields_ = {{"general.architecture", std::string(architecture())},
               {"general.type", std::string("model")},
               {"general.name", name}};
    add("block_count", u32(std::ssize(config_.layers)));
    add("context_length", u32(config_.positions_max > 0 ? config_.positions_max : 1 << 20));
    add("embedding_length", u32(config_.hidden));
    add("vocab_size", u32(config_.vocab));
    add("attention.layer_norm_rms_epsilon", config_.eps);
    add("attention.layer_norm_epsilon", config_.eps);
    add_layers();
    add_attention();
    add_mamba();
    if (!moes_.empty()) add_experts();
    return std::move(fields_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(where_, {.what = "llama.cpp cannot run this model: it has " + what});
  }
  void add(const char* key, io::GgufField value) {
    fields_.emplace_back(fmt::format("{}.{}", architecture(), key), std::move(value));
  }
  // What is one number in the file and must be the same in all blocks.
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
    add("attention.head_count_kv", std::move(kv_heads));
    add("feed_forward_length", std::move(widths));
  }

  void add_attention() {
    using Spec = nn::AttentionSpec;
    const auto get = [&](const char* what, auto&& field) {
      return attentions_.empty() ? int64_t{1} : same(attentions_, what, field);
    };
    const int64_t width = get("head widths", [](const Spec& a) { return a.head_dim; });
    add("attention.head_count", u32(get("head counts", [](const Spec& a) { return a.heads; })));
    add("attention.key_length", u32(width));
    add("attention.value_length", u32(width));
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
  return Metadata(config, where).architecture();
}

io::GgufFields gguf_metadata(const Config& config, const std::string& name, const std::string& where) {
  return Metadata(config, where).fields(name);
}

}  // namespace braid::models
