// Blocks of GGUF types to FP32, bit-identical to llama.cpp's conversion: each formula in FP32, in its order.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#pragma once
#include <cstddef>
#include <span>

#include "core/ggml_type.h"
#include "core/weight.h"

namespace braid {

// Whole blocks: values.size() is a multiple of the block's, and `blocks` has as many bytes as that takes.
void decode_ggml(GgmlType type, const std::byte* blocks, std::span<float> values);

// Values of a weight as decode_row gives them (codec/codec.h), by vectors where codes have a reader for this CPU
// (codec/codes.h); begin is any column.
void decode_ggml_row(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values);
void decode_ggml_row(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values);

}  // namespace braid
