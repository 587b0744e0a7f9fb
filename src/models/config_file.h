// config.json as text to write: cut to its first layers, and spelled as transformers does today or as the released
// Nemotron-H files do (docs/internals/families.md, Hybrids), which is what llama.cpp's converter reads.
#pragma once
#include <cstdint>
#include <string>

#include "core/weight.h"
#include "io/json.h"
#include "models/config.h"

namespace braid::models {

enum class Spelling : uint8_t { transformers, released };

// The same model with its first `layers` layers only, embedding, head and prediction block kept. Error when it has
// fewer.
io::Json first_layers(const io::Json& config, int64_t layers);

// Any config, with infinities as transformers spells them.
std::string config_text(nlohmann::json config);
// For weights that are made anew: without the quantization_config of others.
std::string config_text(const io::Json& config, Spelling spelling);
// The same config for weights of another type, F32 or BF16. Like the one above without `quantization_config`.
std::string config_text(const io::Json& config, DType weights);
// The same config with `quantization_config`, in place of any it has.
std::string config_text(const io::Json& config, const nlohmann::json& quantisation);
std::string generation_config_text(const Config& config);
// hf_quant_config.json of files in ModelOpt's layout.
std::string quant_config_text(const Config& config, Format format);

}  // namespace braid::models
