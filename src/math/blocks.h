// Weight formats, one row at a time: codes in, numbers out, and back. Every product of a format without its own kernel
// goes through here, so this is the one place that knows how bits are packed (core/weight.h has the table).
#pragma once
#include <span>
#include <vector>

#include "core/weight.h"

namespace braid {

inline constexpr int64_t kNvfp4Block = 16;  // values that share a scale

// Values of row r, columns [begin, begin + n), without `global` (a product applies it once, to the sum). begin must be
// a multiple of the block, except for Format::ggml. What is not exact in BF16 (exact_in_bf16) is rounded to it.
void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values);
void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values);

// The whole matrix with `global` applied, for references.
std::vector<double> decode(const Weight& w);

// How the scale of an NVFP4 block is chosen: max maps its largest value to 6; four_over_six is the better, by squared
// error, of that and mapping it to 4 (arXiv 2512.02010; the codes between 4 and 6 are far apart); mse is the best of
// all from half to twice the first.
enum class ScaleSearch : uint8_t { max, four_over_six, mse };

// Encoders in ModelOpt's format (docs/internals/formats.md, FP8 and NVFP4). `values` is [rows, cols] row-major, cols a
// multiple of 16 for NVFP4. `global` is amax / (6 * 448) for NVFP4, of the whole tensor; four over six leaves its
// blocks room for scales 1.5 times as large, by 256 in place of 448. For FP8 it is amax / 448.
float nvfp4_global(float amax, ScaleSearch search = ScaleSearch::max);
void encode_nvfp4_row(std::span<const float> values, float global, uint8_t* codes, F8E4M3* scales,
                      ScaleSearch search = ScaleSearch::max);
float fp8_global(float amax);
void encode_fp8_row(std::span<const float> values, float global, F8E4M3* codes);

// Code 0..15 of E2M1: sign, two exponent bits, one fraction bit; nearest, ties to the even code.
float e2m1_value(int code);
int e2m1_code(float value);

}  // namespace braid
