// FP8: codes in E4M3 and a scale in FP32 for the matrix, as ModelOpt's files hold it (docs/internals/formats.md).
#pragma once
#include <cstdint>
#include <span>

#include "core/weight.h"

namespace braid {

// Values as decode_row gives them (codec/codec.h).
void decode_fp8(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values);
void decode_fp8(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values);

// The scale of a matrix whose largest magnitude is amax: amax / 448.
float fp8_global(float amax);
void encode_fp8_row(std::span<const float> values, float global, F8E4M3* codes);

}  // namespace braid
