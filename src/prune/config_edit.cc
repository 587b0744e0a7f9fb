#include "prune/config_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "models/config_file.h"
#include "models/family.h"
#include "models/inventory.h"
#include "sys/error.h"

namespace braid::prune {
namespace {

using models::Config;
using models::LayerSpec;
using Value = nlohmann::json;

bool present(const Value& config, const char* key) { return config.contains(key) && !config[key].is_null(); }

// Under every spelling that the file has.
void set(Value& config, std::initializer_list<const char*> keys, int64_t value) {
  for (const char* key : keys) {
    if (present(config, key)) config[key] = value;
  }
}

template <class Spec>
const Spec* find(const LayerSpec& layer) {
  for (const models::PartSpec& part : layer.parts) {
    if (const auto* spec = std::get_if<Spec>(&part.block)) return spec;
  }
  return nullptr;
}

const models::LinearSpec* find(const LayerSpec& layer, ParamRole role) {
  for (const models::PartSpec& part : layer.parts) {
    if (const auto* spec = std::get_if<models::LinearSpec>(&part.block); spec && spec->role == role) return spec;
  }
  return nullptr;
}

template <class Spec>
const Spec* first(const Config& config) {
  for (const LayerSpec& layer : config.layers) {
    if (const Spec* spec = find<Spec>(layer)) return spec;
  }
  if (!config.mtp) return nullptr;
  for (const LayerSpec& layer : config.mtp->layers) {
    if (const Spec* spec = find<Spec>(layer)) return spec;
  }
  return nullptr;
}

auto sizes_of(const nn::Mamba2Spec& m) { return std::tuple(m.heads, m.head_dim); }
auto sizes_of(const nn::AttentionSpec& a) { return std::tuple(a.heads, a.kv_heads); }
auto sizes_of(const nn::MlpSpec& f) { return std::tuple(f.width); }
auto sizes_of(const nn::MoeSpec& e) { return std::tuple(e.experts, e.top_k, e.width, e.latent, e.shared_width); }

// Whether all blocks of a kind have the same sizes.
template <class Spec>
bool alike(const Config& config) {
  const Spec* any = first<Spec>(config);
  bool same = true;
  models::each_part(config, [&](const models::PartSpec& part) {
    if (const auto* own = std::get_if<Spec>(&part.block)) same = same && sizes_of(*own) == sizes_of(*any);
  });
  return same;
}

// The entries of a list or string with one for each layer.
void keep_entries(Value& config, const char* key, std::span<const int64_t> layers) {
  if (!present(config, key)) return;
  Value& list = config[key];
  if (list.is_string()) {
    const auto letters = list.get<std::string>();
    std::string kept;
    for (const int64_t l : layers) kept += letters[static_cast<size_t>(l)];
    list = kept;
  } else if (list.is_array()) {
    Value kept = Value::array();
    for (const int64_t l : layers) kept.push_back(list[static_cast<size_t>(l)]);
    list = std::move(kept);
  }
}

// Qwen3-MoE lists its dense layers by number.
void renumber(Value& config, const char* key, std::span<const int64_t> layers) {
  if (!present(config, key)) return;
  Value kept = Value::array();
  for (size_t i = 0; i < layers.size(); ++i) {
    const Value& old = config[key];
    if (std::find(old.begin(), old.end(), Value(layers[i])) != old.end()) kept.push_back(i);
  }
  config[key] = std::move(kept);
}

void cut_layers(Value& config, std::span<const int64_t> layers) {
  for (const char* key : {"hybrid_override_pattern", "layers_block_type", "block_configs", "layer_types"})
    keep_entries(config, key, layers);
  renumber(config, "mlp_only_layers", layers);
  set(config, {"num_hidden_layers", "n_layer"}, std::ssize(layers));
}

void set_attention(Value& config, const Config& small) {
  const auto* a = first<nn::AttentionSpec>(small);
  if (!a) return;
  const auto head_dim = a->head_dim;
  if (!present(config, "head_dim") && !present(config, "attention_head_dim") && small.learned_positions == 0)
    config["head_dim"] = head_dim;  // otherwise derived from sizes that may have changed
  set(config, {"num_attention_heads", "n_head"}, a->heads);
  set(config, {"num_key_value_heads"}, a->kv_heads);
  if (!present(config, "num_key_value_heads") && a->kv_heads != a->heads && small.family != "nemotron-nas")
    config["num_key_value_heads"] = a->kv_heads;
}

// One width, or a list of one for each layer or for each dense one.
void set_widths(Value& config, const Config& small, size_t layers_before) {
  const auto* f = first<nn::MlpSpec>(small);
  if (!f) return;
  if (small.learned_positions > 0) {
    config["n_inner"] = f->width;
    return;
  }
  if (!present(config, "intermediate_size")) return;
  Value& widths = config["intermediate_size"];
  if (!widths.is_array() && alike<nn::MlpSpec>(small)) {
    widths = f->width;
    return;
  }
  const bool by_layer = widths.is_array() && widths.size() == layers_before;
  Value list = Value::array();
  for (const LayerSpec& layer : small.layers) {
    const auto* own = find<nn::MlpSpec>(layer);
    if (own || by_layer) list.push_back(own ? own->width : f->width);
  }
  widths = std::move(list);
}

void set_experts(Value& config, const nn::MoeSpec& e) {
  set(config, {"n_routed_experts", "num_experts", "num_local_experts"}, e.experts);
  set(config, {"moe_intermediate_size"}, e.width);
  if (e.latent > 0) set(config, {"moe_latent_size"}, e.latent);
  if (e.shared_width > 0) {
    const int64_t shared = present(config, "n_shared_experts") ? config["n_shared_experts"].get<int64_t>() : 1;
    set(config, {"moe_shared_expert_intermediate_size"}, e.shared_width / std::max<int64_t>(1, shared));
  }
}

// A part of a block of Llama-Nemotron: what it was before, with other sizes, a plain map, or nothing.
void set_part(Value& part, ParamRole linear, const LayerSpec& layer, bool full) {
  if (full) return;
  const bool is_linear = find(layer, linear) != nullptr;
  part = {{"no_op", !is_linear}, {"replace_with_linear", is_linear}};
}

// Puzzle's blocks have their own experts, Llama-Nemotron's their own heads and widths.
void set_blocks(Value& config, const char* key, const std::vector<LayerSpec>& layers) {
  if (!present(config, key)) return;
  Value& blocks = config[key];
  for (size_t i = 0; i < layers.size(); ++i) {
    Value& block = blocks[i];
    if (const auto* e = find<nn::MoeSpec>(layers[i])) set_experts(block, *e);
    if (const auto* m = find<nn::Mamba2Spec>(layers[i])) {
      set(block, {"mamba_num_heads"}, m->heads);
      set(block, {"mamba_head_dim"}, m->head_dim);
    }
    if (const auto* own = find<nn::AttentionSpec>(layers[i])) {
      set(block, {"num_attention_heads"}, own->heads);
      set(block, {"num_key_value_heads"}, own->kv_heads);
    }
    if (!block.contains("attention") || !block.contains("ffn")) continue;
    const auto* a = find<nn::AttentionSpec>(layers[i]);
    set_part(block["attention"], ParamRole::linear_attention, layers[i], a != nullptr);
    if (a) block["attention"]["n_heads_in_group"] = a->heads / a->kv_heads;
    const auto* f = find<nn::MlpSpec>(layers[i]);
    set_part(block["ffn"], ParamRole::linear_mlp, layers[i], f != nullptr);
    if (f) {
      block["ffn"].erase("ffn_mult");  // of the old width of the model
      block["ffn"]["intermediate_size"] = f->width;
    }
  }
}

// A list of blocks in place of the names of their kinds; each with all of its sizes. transformers reads no such list,
// so the model is named as the family's models that have one.
void write_blocks(Value& config, const char* key, const std::vector<LayerSpec>& layers) {
  Value& blocks = config[key];
  if (!blocks.is_array()) blocks = Value::array();
  for (size_t i = 0; i < layers.size(); ++i) {
    Value& block = blocks[i];
    const LayerSpec& layer = layers[i];
    block["block_type"] = "mlp";
    if (const auto* m = find<nn::Mamba2Spec>(layer)) {
      block["block_type"] = "mamba";
      block["mamba_num_heads"] = m->heads;
      block["mamba_head_dim"] = m->head_dim;
    } else if (const auto* a = find<nn::AttentionSpec>(layer)) {
      block["block_type"] = "attention";
      block["num_attention_heads"] = a->heads;
      block["num_key_value_heads"] = a->kv_heads;
    } else if (const auto* e = find<nn::MoeSpec>(layer)) {
      block["block_type"] = "moe";
      block["n_routed_experts"] = e->experts;
      block["num_experts_per_tok"] = e->top_k;
      block["moe_intermediate_size"] = e->width;
      if (e->latent > 0) block["moe_latent_size"] = e->latent;
      const int64_t shared = present(config, "n_shared_experts") ? config["n_shared_experts"].get<int64_t>() : 1;
      if (e->shared_width > 0)
        block["moe_shared_expert_intermediate_size"] = e->shared_width / std::max<int64_t>(1, shared);
    }
  }
}

// Blocks of one kind that differ.
bool write_own_sizes(Value& config, const Config& small) {
  if (small.family != "nemotron_h") return false;
  if (alike<nn::Mamba2Spec>(small) && alike<nn::AttentionSpec>(small) && alike<nn::MoeSpec>(small)) return false;
  write_blocks(config, "block_configs", small.layers);
  if (small.mtp) write_blocks(config, "mtp_block_configs", small.mtp->layers);
  config["architectures"] = {"NemotronHPuzzleForCausalLM"};
  config["model_type"] = "nemotron_h_puzzle";
  return true;
}

bool same_tensors(const Config& a, const Config& b) {
  const std::vector<models::TensorSpec> of_a = inventory(a), of_b = inventory(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [](const auto& x, const auto& y) {
    return x.role == y.role && x.shape == y.shape && x.mtp == y.mtp;
  });
}

}  // namespace

std::string small_config_text(const io::Json& json, const Config& small, std::span<const int64_t> layers) {
  const Config whole = models::read_config(json);
  Value config = json.raw();
  if (layers.size() < whole.layers.size()) cut_layers(config, layers);
  set(config, {"hidden_size", "n_embd"}, small.hidden);
  set_widths(config, small, whole.layers.size());
  if (!write_own_sizes(config, small)) {
    set_attention(config, small);
    if (const auto* m = first<nn::Mamba2Spec>(small)) {
      set(config, {"mamba_num_heads"}, m->heads);
      set(config, {"mamba_head_dim"}, m->head_dim);
    }
    if (const auto* e = first<nn::MoeSpec>(small)) set_experts(config, *e);
    set_blocks(config, "block_configs", small.layers);
    if (small.mtp) set_blocks(config, "mtp_block_configs", small.mtp->layers);
  }
  std::string text = models::config_text(std::move(config));
  const Config again = models::read_config(io::Json::parse(text, json.document()));
  if (!same_tensors(again, small))
    fail(printable(json.document()), {.what = fmt::format("{} has no config with these sizes", small.family),
                                      .hint = "fewer axes: --axes ffn,hidden"});
  return text;
}

}  // namespace braid::prune
