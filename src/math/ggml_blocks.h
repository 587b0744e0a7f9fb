// Blocks of GGUF types to FP32, bit-identical to llama.cpp's conversion: each formula in FP32, in its order.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#pragma once
#include <cstddef>
#include <span>

#include "core/ggml_type.h"

namespace braid {

// Whole blocks: values.size() is a multiple of the block's, and `blocks` has as many bytes as that takes.
void decode_ggml(GgmlType type, const std::byte* blocks, std::span<float> values);

}  // namespace braid
