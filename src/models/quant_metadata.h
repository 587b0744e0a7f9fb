// quantization_config of quantised folders, in the two spellings that their readers expect.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/quant_format.h"

namespace braid::models {

struct QuantModules {
  std::map<std::string, QuantFormat> quantised;  // module (the tensor's name without .weight) and format
  std::set<std::string> scaled;                  // of these, the ones with an input_scale
  std::vector<std::string> kept;                 // the other modules that have a matrix
  std::string cache{};                           // kv_cache_quant_algo of the folder that was quantised
  std::set<std::string> tables{};                // of the quantised ones, embeddings: no linear layers
};

// `quant_method: modelopt` (docs/internals/formats.md, Metadata) or `compressed-tensors`; all formats are of one of the
// two. The former has what newer readers look for (config_groups, kv_cache_scheme) beside the older keys.
nlohmann::json quantization_config(const QuantModules& modules);
// hf_quant_config.json, which ModelOpt's layout also has.
std::string hf_quant_config(const QuantModules& modules);

}  // namespace braid::models
