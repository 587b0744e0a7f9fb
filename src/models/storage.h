// How the tensors of a config are stored in files: BF16, or ModelOpt's layout of FP8 and NVFP4
// (docs/internals/formats.md), in which the large products are quantised and embedding, head, router, attention, latent
// projections and the prediction block stay BF16.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/weight.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/inventory.h"

namespace braid::models {

// The format of one tensor in files of format `wanted` (bf16, f8_e4m3 or nvfp4). bf16 also covers what is not a matrix.
Format stored_format(const TensorSpec& tensor, Format wanted);

// What the files hold for one tensor: the values or codes first, scales after them.
std::vector<io::TensorSpec> stored_tensors(const TensorSpec& tensor, Format wanted);
std::vector<io::TensorSpec> stored_tensors(const std::vector<TensorSpec>& tensors, Format wanted);
// All files together, without their headers.
int64_t stored_bytes(const Config& config, Format wanted);

// Bytes of existing files, by the format's common name (BF16, FP8, NVFP4, ...): scales count with their codes.
std::map<std::string, int64_t> bytes_by_format(const io::Safetensors& files);

}  // namespace braid::models
