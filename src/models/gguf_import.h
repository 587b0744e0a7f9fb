// A GGUF file as a Hugging Face folder: config.json, generation_config.json and the weights under the names of the
// released files, in BF16 or F32. Blocks are decoded on the fly, one piece at a time.
#pragma once
#include <cstdint>
#include <filesystem>

#include "core/dtype.h"
#include "io/gguf.h"
#include "sys/function_ref.h"

namespace braid::models {

struct FolderOptions {
  DType type = DType::bf16;  // or F32; small tensors that BF16 would round, and routers' corrections, stay F32
  int threads = 1;
};

// Total number of values in the folder's weights: what `progress` counts up to.
int64_t values_in(const io::Gguf& file);

// `progress` gets the values written so far; returning false stops. Returns whether all was written. Error for a file
// that is not a model that Braid reads.
bool write_folder(const io::Gguf& file, const std::filesystem::path& folder, const FolderOptions& options,
                  const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::models
