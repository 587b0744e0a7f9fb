// Is what quantization_config says of a model's weights among what is read?
#pragma once
#include "io/json.h"

namespace braid::models {

// Error for others (GPTQ, AWQ, FP8 by blocks, ...): they name and pack their tensors in ways that are not read.
// `quantisation`: of a config.json its quantization_config, of hf_quant_config.json its quantization.
void check_quantisation(const io::Json& quantisation);

}  // namespace braid::models
