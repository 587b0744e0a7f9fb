#include "models/quant_metadata.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace braid::models {
namespace {

using Object = nlohmann::json;

const char* algorithm_of(const QuantModules& modules, const std::string& module, QuantFormat format) {
  if (format != QuantFormat::nvfp4) return "FP8";
  return modules.scaled.contains(module) ? "NVFP4" : "W4A16_NVFP4";
}

bool has_nvfp4_table(const QuantModules& modules) {
  return std::ranges::any_of(
      modules.tables, [&](const std::string& table) { return modules.quantised.at(table) == QuantFormat::nvfp4; });
}

Object modelopt(const QuantModules& modules) {
  std::set<std::string> algorithms;
  Object layers = Object::object();
  for (const auto& [module, format] : modules.quantised) {
    const bool fp4 = format == QuantFormat::nvfp4;
    const char* algorithm = algorithm_of(modules, module, format);
    algorithms.insert(algorithm);
    layers[module] = {{"quant_algo", algorithm}};
    if (fp4) layers[module]["group_size"] = kNvfp4Block;
  }
  Object out = {{"kv_cache_quant_algo", modules.cache.empty() ? Object(nullptr) : Object(modules.cache)}};
  if (algorithms.size() > 1) {
    out["quant_algo"] = "MIXED_PRECISION";
    out["quantized_layers"] = std::move(layers);
  } else {
    out["quant_algo"] = *algorithms.begin();
    if (!algorithms.contains("FP8")) out["group_size"] = kNvfp4Block;
  }
  if (has_nvfp4_table(modules)) out["nvfp4_embed"] = true;  // vLLM's word for it
  return out;
}

// One group of modules for each algorithm; a single one targets classes of modules.
Object modelopt_groups(const QuantModules& modules) {
  struct Group {
    QuantFormat format = QuantFormat::fp8;
    bool scaled = true;  // all of its inputs
    Object targets = Object::array();
  };
  std::map<std::string, Group> groups;
  for (const auto& [module, format] : modules.quantised) {
    Group& group = groups[algorithm_of(modules, module, format)];
    group.format = format;
    group.scaled = group.scaled && modules.scaled.contains(module);
    group.targets.push_back(module);
  }
  Object out = Object::object();
  for (auto& [algorithm, group] : groups) {
    Object numbers = {{"dynamic", false}, {"num_bits", group.format == QuantFormat::nvfp4 ? 4 : 8}, {"type", "float"}};
    if (group.format == QuantFormat::nvfp4) numbers["group_size"] = kNvfp4Block;
    Object& written = out["group_" + std::to_string(out.size())];
    written = {{"weights", numbers}, {"targets", std::move(group.targets)}};
    if (group.scaled) written["input_activations"] = numbers;
    if (groups.size() > 1) continue;
    written["targets"] = Object::array({"Linear"});
    if (!modules.tables.empty()) written["targets"].push_back("Embedding");
  }
  return out;
}

// Readers call the body of a model by another name than its files: the rest of the name as a pattern.
std::string spelled(const std::string& module) {
  constexpr std::string_view kBody = "backbone.";
  if (!module.starts_with(kBody)) return module;
  std::string pattern = "re:.*";
  for (const char ch : module.substr(kBody.size())) pattern += ch == '.' ? "\\." : std::string(1, ch);
  return pattern + "$";
}

Object compressed_group(CompressedType type) {
  const bool floats = type == CompressedType::mxfp4;
  Object weights = {{"num_bits", bits_of(type)}, {"type", floats ? "float" : "int"}, {"symmetric", true},
                    {"strategy", "group"},       {"group_size", kCompressedGroup},   {"dynamic", false}};
  if (floats) weights["scale_dtype"] = "torch.uint8";
  return {{"format", floats ? "mxfp4-pack-quantized" : "pack-quantized"},
          {"weights", std::move(weights)},
          {"input_activations", nullptr},
          {"output_activations", nullptr}};
}

// One group of modules for each format; a single one targets every linear layer that is not ignored.
Object compressed(const QuantModules& modules) {
  std::map<QuantFormat, Object> targets;
  for (const auto& [module, format] : modules.quantised) {
    Object& list = targets.try_emplace(format, Object::array()).first->second;
    list.push_back(spelled(module));
  }
  Object groups = Object::object();
  std::set<std::string> layouts;
  for (const auto& [format, list] : targets) {
    Object group = compressed_group(*codec_of(format).compressed);
    group["targets"] = targets.size() == 1 && modules.tables.empty() ? Object::array({"Linear"}) : list;
    layouts.insert(group["format"]);
    groups["group_" + std::to_string(groups.size())] = std::move(group);
  }
  const Object cache = {
      {"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", "tensor"}, {"dynamic", false}};
  Object ignored = Object::array();
  for (const std::string& module : modules.kept) ignored.push_back(spelled(module));
  return {{"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"format", layouts.size() == 1 ? *layouts.begin() : "mixed-precision"},
          {"config_groups", std::move(groups)},
          {"kv_cache_scheme", modules.cache == "FP8" ? cache : Object(nullptr)},
          {"global_compression_ratio", nullptr},
          {"ignore", std::move(ignored)}};
}

}  // namespace

Object quantization_config(const QuantModules& modules) {
  if (codec_of(modules.quantised.begin()->second).compressed) return compressed(modules);
  Object out = modelopt(modules);
  out["quant_method"] = "modelopt";
  out["producer"] = {{"name", "braid"}};
  out["config_groups"] = modelopt_groups(modules);
  out["ignore"] = modules.kept;
  if (modules.cache == "FP8") out["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  return out;
}

std::string hf_quant_config(const QuantModules& modules) {
  Object quantization = modelopt(modules);
  quantization["exclude_modules"] = modules.kept;
  return Object{{"producer", {{"name", "braid"}}}, {"quantization", std::move(quantization)}}.dump(2) + "\n";
}

}  // namespace braid::models
