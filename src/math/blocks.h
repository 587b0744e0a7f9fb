// Weight formats, one row at a time: codes in, numbers out, and back. Every product of a format that has no kernel of
// its own goes through here, so this is the one place that knows how bits are packed (core/weight.h has the table).
#pragma once
#include <span>
#include <vector>

#include "core/weight.h"

namespace braid {

// Values of row r, columns [begin, begin + n), without `global` (a product applies it once, to the sum). begin must be
// a multiple of the block. Every value of every format but F32 and F16 is exact in BF16.
void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values);
void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values);

// The whole matrix with `global` applied, for references.
std::vector<double> decode(const Weight& w);

// Encoders as ModelOpt writes them (nemotron.md 5.1, 5.2). `values` is [rows, cols] row-major, cols a multiple of 16
// for NVFP4. `global` is amax / (6 * 448) for NVFP4, amax / 448 for FP8, of the whole tensor.
float nvfp4_global(float amax);
void encode_nvfp4_row(std::span<const float> values, float global, uint8_t* codes, F8E4M3* scales);
float fp8_global(float amax);
void encode_fp8_row(std::span<const float> values, float global, F8E4M3* codes);

// Code 0..15 of E2M1: sign, two exponent bits, one fraction bit; nearest, ties to the even code.
float e2m1_value(int code);
int e2m1_code(float value);

}  // namespace braid
