#include "models/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/family.h"
#include "models/pattern.h"
#include "models/storage.h"
#include "sys/error.h"

namespace braid::models {
namespace {

using Value = nlohmann::json;

constexpr std::pair<const char*, const char*> kReleasedKeys[] = {
    {"n_groups", "mamba_n_groups"},     {"conv_kernel", "mamba_d_conv"},    {"expand", "mamba_expand"},
    {"chunk_size", "mamba_chunk_size"}, {"head_dim", "attention_head_dim"}, {"dtype", "torch_dtype"}};

// JSON has no infinity; transformers 5 spells one like this.
void spell_infinities(Value& value) {
  if (value.is_structured()) {
    for (Value& child : value) spell_infinities(child);
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    value = {{"__float__", std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity"}};
  }
}

void rename(Value& config, const char* from, const char* to) {
  if (!config.contains(from)) return;
  Value value = std::move(config[from]);
  config.erase(from);
  config[to] = std::move(value);
}

Value names_of(const std::string& pattern) {
  Value names = Value::array();
  for (char letter : pattern)
    names.push_back(letter == 'M' ? "mamba" : letter == '*' ? "attention" : letter == 'E' ? "moe" : "mlp");
  return names;
}

// The pattern under `string_key` as letters or under `list_key` as names, as the spelling requires.
void spell_pattern(Value& config, const std::optional<std::string>& pattern, const char* string_key,
                   const char* list_key, Spelling spelling) {
  if (!pattern) return;
  config.erase(string_key);
  config.erase(list_key);
  if (spelling == Spelling::released)
    config[string_key] = *pattern;
  else
    config[list_key] = names_of(*pattern);
}

std::string text_of(const Value& value) { return value.dump(2) + "\n"; }

void cut(Value& config, const char* key, size_t size) {
  const auto entry = config.find(key);
  if (entry == config.end() || entry->is_null()) return;
  if (entry->is_string()) {
    *entry = entry->get<std::string>().substr(0, size);
  } else if (entry->is_array() && entry->size() > size) {
    entry->erase(entry->begin() + static_cast<ptrdiff_t>(size), entry->end());
  }
}

}  // namespace

io::Json first_layers(const io::Json& json, int64_t layers) {
  const Config config = read_config(json);
  const auto all = std::ssize(config.layers);
  if (layers < 1 || layers > all) {
    fail("--layers", {.what = "not a part of the model's layers",
                      .got = std::to_string(layers),
                      .expected = fmt::format("1 to {}", all)});
  }
  if (config.loop) fail("--layers", {.what = "layers of a loop cannot be cut", .got = config.family});
  const auto n = static_cast<size_t>(layers);
  Value value = json.raw();
  for (const char* key : {"hybrid_override_pattern", "layers_block_type", "block_configs", "layer_types"})
    cut(value, key, n);
  // There may be one width per layer, or one per dense layer.
  if (const auto widths = json.get({"intermediate_size"}); widths && widths->is_array()) {
    const std::string pattern = config.pattern().substr(0, n);
    const bool by_layer = std::ssize(widths->items()) == all;
    cut(value, "intermediate_size",
        by_layer ? n : static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '-')));
  }
  for (const char* key : {"num_hidden_layers", "n_layer"}) {
    if (value.contains(key) && !value[key].is_null()) value[key] = layers;
  }
  spell_infinities(value);
  return io::Json::parse(value.dump(), json.document());
}

// Of the weights that the config came with.
void drop_quantisation(Value& config) {
  for (const char* key : {"quantization_config", "compression_config"}) config.erase(key);
}

std::string config_text(Value config) {
  spell_infinities(config);
  return text_of(config);
}

std::string config_text(const io::Json& json, Spelling spelling) {
  Value value = json.raw();
  spell_infinities(value);
  drop_quantisation(value);
  // A list of blocks has no older spelling, and no other family has two.
  if (!read_config(json).family.starts_with("nemotron_h") || json.get({"block_configs"})) return text_of(value);
  const auto pattern = read_layer_pattern(json);
  value.erase("layer_types");  // the same list by its other name
  spell_pattern(value, pattern, "hybrid_override_pattern", "layers_block_type", spelling);
  spell_pattern(value,
                read_pattern(json, {"mtp_layers_block_type", "mtp_hybrid_override_pattern"}, "mtp_block_configs"),
                "mtp_hybrid_override_pattern", "mtp_layers_block_type", spelling);
  for (const auto& [today, released] : kReleasedKeys) {
    if (spelling == Spelling::released)
      rename(value, today, released);
    else
      rename(value, released, today);
  }
  if (json.get({"n_routed_experts"})) value.erase("num_local_experts");  // the first name counts
  rename(value, "num_local_experts", "n_routed_experts");
  value.erase("num_hidden_layers");  // today the list implies it
  if (spelling == Spelling::released) value["num_hidden_layers"] = pattern->size();
  // llama.cpp's converter reads the epsilon under a second name only.
  if (value.contains("layer_norm_epsilon")) {
    value.erase("norm_eps");
    if (spelling == Spelling::released) value["norm_eps"] = value["layer_norm_epsilon"];
  }
  return text_of(value);
}

std::string config_text(const io::Json& json, DType weights) {
  Value value = json.raw();
  spell_infinities(value);
  drop_quantisation(value);
  value[value.contains("torch_dtype") ? "torch_dtype" : "dtype"] = weights == DType::f32 ? "float32" : "bfloat16";
  return text_of(value);
}

std::string config_text(const io::Json& json, const nlohmann::json& quantisation) {
  Value value = json.raw();
  spell_infinities(value);
  value["quantization_config"] = quantisation;
  return text_of(value);
}

std::string generation_config_text(const Config& config) {
  Value value = {{"_from_model_config", true}};
  if (config.bos) value["bos_token_id"] = *config.bos;
  if (config.eos.size() == 1) value["eos_token_id"] = config.eos[0];
  if (config.eos.size() > 1) value["eos_token_id"] = config.eos;
  return text_of(value);
}

std::string quant_config_text(const Config& config, Format format) {
  Value excluded = Value::array();
  for (const TensorSpec& tensor : inventory(config)) {
    if (is_matrix(tensor.role) && stored_format(tensor, format) == Format::bf16)
      excluded.push_back(tensor.name.substr(0, tensor.name.rfind('.')));
  }
  Value quantisation = {{"quant_algo", format == Format::nvfp4 ? "NVFP4" : "FP8"},
                        {"kv_cache_quant_algo", nullptr},
                        {"exclude_modules", std::move(excluded)}};
  if (format == Format::nvfp4) quantisation["group_size"] = 16;
  return text_of({{"producer", {{"name", "braid"}}}, {"quantization", std::move(quantisation)}});
}

}  // namespace braid::models
