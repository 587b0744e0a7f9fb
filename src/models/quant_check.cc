#include "models/quant_check.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "codec/nvfp4.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// In any case; NVFP4_W4A16 is ModelOpt's own word, W4A16_NVFP4 that of released files.
void check_algorithm(const io::Json& owner) {
  constexpr std::array<std::string_view, 5> kKnown = {"FP8", "NVFP4", "W4A16_NVFP4", "NVFP4_W4A16", "MIXED_PRECISION"};
  auto algorithm = owner.string_of({"quant_algo"});
  if (!algorithm) return;
  std::transform(algorithm->begin(), algorithm->end(), algorithm->begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (std::find(kKnown.begin(), kKnown.end(), *algorithm) != kKnown.end()) return;
  owner.need({"quant_algo"}).refuse("unknown quantisation", "FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION");
}

// Refuses what changes the meaning of compressed weights and is not supported.
void check_compressed(const io::Json& quantisation) {
  if (const auto rotation = quantisation.get({"transform_config"})) {
    const auto groups = rotation->get({"config_groups"});
    if (groups && !groups->members().empty()) rotation->refuse("is not supported", "weights that are not rotated");
  }
  if (const auto sparsity = quantisation.get({"sparsity_config"})) {
    if (!sparsity->members().empty() && sparsity->string_of({"format"}) != "dense")
      sparsity->refuse("is not supported", "weights that are not sparse");
  }
  for (const auto& group : quantisation.need({"config_groups"}).members()) {
    const auto weights = group.second.get({"weights"});
    if (weights && !weights->bool_of({"symmetric"}).value_or(true))
      weights->need({"symmetric"}).refuse("is not supported", "true");
  }
}

// ModelOpt's groups: numbers that one of the formats above has.
void check_groups(const io::Json& quantisation) {
  const auto groups = quantisation.get({"config_groups"});
  if (!groups) return;
  for (const auto& group : groups->members()) {
    check_algorithm(group.second);
    const auto weights = group.second.get({"weights"});
    if (!weights || !weights->is_object()) continue;
    const auto bits = weights->int_of({"num_bits"}), size = weights->int_of({"group_size"});
    const bool fp8 = bits == 8 && !size, nvfp4 = bits == 4 && size.value_or(kNvfp4Block) == kNvfp4Block;
    if (weights->string_of({"type"}).value_or("float") != "float" || (bits && !fp8 && !nvfp4))
      weights->refuse("is not supported", "floats of 8 bits, or of 4 in groups of 16");
  }
}

}  // namespace

void check_quantisation(const io::Json& quantisation) {
  const auto method = quantisation.string_of({"quant_method"});
  if (method == "compressed-tensors") return check_compressed(quantisation);
  if (method && !method->starts_with("modelopt"))
    quantisation.need({"quant_method"})
        .refuse("is not supported", "modelopt or compressed-tensors", "the same model in BF16, or as a GGUF file");
  check_algorithm(quantisation);
  check_groups(quantisation);
  if (const auto layers = quantisation.get({"quantized_layers"})) {
    for (const auto& layer : layers->members()) check_algorithm(layer.second);
  }
}

}  // namespace braid::models
