// Weights in codes of 4 to 8 bits as integers: for a format and an instruction set, functions that read its codes as
// unsigned bytes u = value + zero, 64 along k at a time (NVFP4: u = 2 e2m1 + 12), with the scales of their blocks. A
// row can be multiplied with x in 16-bit integers (math/codes_dot.h), 16 rows can become units or be multiplied with x
// in 8-bit integers (math/codes_a8.h), and rows of blocks become numbers. All instruction sets give the same bits.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/weight.h"

namespace braid::codes {

// Rows of x that one pass over the weights serves.
inline constexpr int64_t kRowsMax = 4;

// A row of x as dots read it: 192 bytes for 64 values along k: 64 high, 64 low, 16 sums of q times `factor` as I32. A
// row whose largest value is below kSmallest counts as zeros.
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

// Rows of w, the first `count` of 16, at least one.
struct Columns {
  const uint8_t *codes, *scales;
  int64_t codes_stride, scales_stride;
  int64_t count, depth;
};
// Values [k, k + n), at most 512, as units (codec/units.h). Missing rows and values beyond the depth are
// unspecified.
using ColumnsLookUp = void(const Columns& w, int64_t k, int64_t n, std::byte* units);
// y [rows, kFewCols] for one block of rows <= Codes::few_rows (codec/units.h), and the first kFewCols
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
const Codes* ggml_codes_avx512(GgmlType type);              // null for other types
const Codes* codes_avx2(const QuantSpec& spec, bool vnni);  // the same
const Codes* codes_of(const QuantSpec& spec);               // of this machine; null where there are none

// Whether values [begin, begin + n) of a row of blocks were decoded: types and CPUs as above, begin a multiple of 64.
bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, Bf16* values);
bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, float* values);

}  // namespace braid::codes
