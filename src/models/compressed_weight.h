// A matrix as compressed-tensors packs it: NAME_packed and NAME_scale, optionally NAME_shape, NAME_global_scale or
// NAME_zero_point. Integers and MXFP4 become blocks of GGUF with the same values (a copy in the store); NVFP4 is read
// in place.
//   https://github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors
#pragma once
#include <string>

#include "core/param.h"
#include "core/weight.h"
#include "core/weight_store.h"
#include "io/safetensors.h"

namespace braid::models {

// `name` as the files spell it, without _packed. Errors, naming `where` and the tensor, for types, shapes or scales
// that do not fit [rows, cols], and for what Braid does not read: zero points, columns in another order.
Weight compressed_weight(WeightStore& store, const io::Safetensors& files, const std::string& where,
                         const std::string& name, int64_t rows, int64_t cols);

// Error for scales that are NaN: of E4M3 codes, [rows, blocks].
void check_scales(const std::string& where, const std::string& name, const View& scales);

}  // namespace braid::models
