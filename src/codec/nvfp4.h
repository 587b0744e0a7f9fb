// NVFP4: codes in E2M1, a scale in E4M3 for every 16 of them and one in FP32 for the matrix, as ModelOpt's files hold
// it (docs/internals/formats.md).
#pragma once
#include <cstdint>
#include <span>

#include "codec/scale_search.h"
#include "core/weight.h"

namespace braid {

inline constexpr int64_t kNvfp4Block = 16;  // values that share a scale
inline constexpr QuantSpec kNvfp4{.format = Format::nvfp4, .block = kNvfp4Block};

// Values as decode_row gives them (codec/codec.h); begin is a multiple of the block.
void decode_nvfp4(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values);
void decode_nvfp4(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values);

// The scale of a matrix whose largest magnitude is amax: amax / (6 * 448); four over six leaves its blocks room for
// scales 1.5 times as large, by 256 in place of 448.
float nvfp4_global(float amax, ScaleSearch search = ScaleSearch::max);
// A row, whole blocks of values.
void encode_nvfp4_row(std::span<const float> values, float global, uint8_t* codes, F8E4M3* scales,
                      ScaleSearch search = ScaleSearch::max);

// Code 0..15 of E2M1: sign, two exponent bits, one fraction bit; nearest, ties to the even code.
float e2m1_value(int code);
int e2m1_code(float value);

}  // namespace braid
