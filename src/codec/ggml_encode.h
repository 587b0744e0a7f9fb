// FP32 to blocks of GGUF types, byte-identical to llama.cpp's quantiser without an importance matrix: the same searches
// in FP32 and in the same order. Rounding is ggml's: halves away from zero for 4, 5 and 8 bits with one scale, to even
// in the K-quants.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-quants.c (quantize_row_*_ref)
#pragma once
#include <cstddef>
#include <span>

#include "core/ggml_type.h"

namespace braid {

bool encodes(GgmlType type);
// The largest magnitude that blocks of this type hold: scales are in half precision, except for F32, BF16 and MXFP4.
float largest_encoded(GgmlType type);
// Whole blocks of values up to that magnitude: values.size() is a multiple of the block's, and `blocks` has room for as
// many bytes as that takes.
void encode_ggml(GgmlType type, std::span<const float> values, std::byte* blocks);

}  // namespace braid
