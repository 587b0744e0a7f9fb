// A few rows of x times weights in codes of 4 to 8 bits, as integer sums: class "codes_a16". For steps, which are bound
// by reading the weights: codes are looked up 64 at a time and never become floating point. They are NVFP4, or blocks
// of a GGUF file of the types that codes_ggml_avx512.cc lists.
//
// A row of x is rounded to 16-bit integers q, x = s q with |q| <= 32,639, and split into bytes, q = 256 high + low. A
// code is looked up as an unsigned byte u = value + zero (NVFP4: u = 2 e2m1 + 12). For four values along k at a time,
// one byte dot product each for high and low gives sum(u q); the one of low starts at -zero sum(q). AVX2 without VNNI
// multiplies words, q whole and u widened; the sum is the same. It is multiplied by the scale of its block and added to
// FP32 sums, 16 of them in parallel, which are reduced at the end of the row; types with a minimum per block add that
// times sum(q). A result depends on x's row and w's row alone. Against the product in BF16 the rounding of x adds 3e-5
// of the result's size (docs/internals/cpu.md, Weights in codes, 8-bit activations; math_test has the bound).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weight.h"

namespace braid::codes {

// Rows of x that one pass over the weights serves.
inline constexpr int64_t kRowsMax = 4;

// Null if w has such codes and this CPU has the instructions (AVX2, or AVX-512 with VBMI and VNNI).
const char* refusal(const Weight& w);

int64_t packed_bytes(int64_t rows, int64_t depth);
// Rounds x [M, K] BF16, M <= kRowsMax, for weights of that format.
void pack(const View& x, const QuantSpec& weights, std::byte* packed);

// y [M, N] F32 or BF16, on the calling thread; w [N, K], rows contiguous.
void product(const std::byte* packed, const Weight& w, const MutView& y);

// Whether values [begin, begin + n) of a row of blocks were decoded: types and CPUs as above, begin a multiple of 64.
bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, Bf16* values);
bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, float* values);

// The rows of codes_dot_avx512.cc and codes_dot_avx2.cc, which are bit-identical. 192 bytes for 64 values along k: 64
// high, 64 low, 16 sums of q times `factor` as I32. A row whose largest value is below kSmallest counts as zeros.
inline constexpr float kSmallest = 1e-30f;
inline constexpr int64_t kStep = 64, kStepBytes = 192;
float pack_row_avx512(const Bf16* x, int64_t depth, int factor, std::byte* packed);  // -> s, NaN where x is not finite
float pack_row_avx2(const Bf16* x, int64_t depth, int factor, std::byte* packed);    // the same, and zeros with NaN
// Without VNNI x is not split: the 16 even and the 16 odd ones of 32 values as I16, then of 32 more, then the sums.
float pack_row_avx2_words(const Bf16* x, int64_t depth, int factor, std::byte* packed);
struct Row {
  const uint8_t *codes, *scales;
  int64_t depth;
  const std::byte* packed[kRowsMax];
};
// sums[m] = sum_k value * q / worth
using RowDot = void(const Row& row, int64_t rows, float* sums);
void nvfp4_row_avx512(const Row& row, int64_t rows, float* sums);  // q 2 e2m1 * scale 2^-8

// Values [begin, begin + n) of a row of blocks; begin is a multiple of 64.
template <class Num>
using RowDecode = void(const uint8_t* row, int64_t begin, int64_t n, Num* values);

// Rows of w for math/codes_a8.h, the first `count` of 16, at least one.
struct Columns {
  const uint8_t *codes, *scales;
  int64_t codes_stride, scales_stride;
  int64_t count, depth;
};
// Values [k, k + n), at most 512, as units of math/codes_a8_kernel.h. Missing rows and values beyond the depth are
// unspecified.
using ColumnsLookUp = void(const Columns& w, int64_t k, int64_t n, std::byte* units);
// y [rows, kFewCols] for one block of rows <= Codes::few_rows as math/codes_a8.h packs them, and the first kFewCols
// rows of w at most.
inline constexpr int64_t kFewCols = 16;
using ColumnsFew = void(const Columns& w, const std::byte* x, int64_t rows, float* y);
void nvfp4_columns_avx512(const Columns& w, int64_t k, int64_t n, std::byte* units);
void nvfp4_few_avx512(const Columns& w, const std::byte* x, int64_t rows, float* y);

// How codes of a format are multiplied with x: the factor that sums of four q are packed with, minus the zero of the
// codes or, if blocks have minima, 1; the value of one unit of a sum; and how many values share a scale.
struct Codes {
  int factor = 0;
  float worth = 1;
  int64_t grain = 32;
  int top = 255;       // the largest code, for AVX2
  bool pairs = false;  // units have the even ones of eight values along k before the odd ones
  ColumnsLookUp* columns = nullptr;
  ColumnsFew* few = nullptr;
  int64_t few_rows = 2;  // for more, units are faster
  RowDot* dot = nullptr;
  RowDecode<Bf16>* bf16 = nullptr;       // rounded
  RowDecode<Bf16>* bf16_unit = nullptr;  // the same with AVX-512 BF16, but subnormals become zeros
  RowDecode<float>* f32 = nullptr;       // bit-identical to decode_ggml
};
const Codes* ggml_codes_avx512(GgmlType type);              // codes_ggml_avx512.cc; null for other types
const Codes* codes_avx2(const QuantSpec& spec, bool vnni);  // codes_dot_avx2.cc
const Codes* codes_of(const QuantSpec& spec);               // of this machine; null where there are none

}  // namespace braid::codes
