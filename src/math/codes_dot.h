// A few rows of x times weights in codes of 4 to 8 bits, as integer sums: class "codes_a16". For steps, which are bound
// by reading the weights: codes are looked up 64 at a time and never become floating point. They are NVFP4, or blocks
// of a GGUF file of the types that codec/codes_ggml_avx512.cc lists.
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

#include "codec/codes.h"
#include "core/weight.h"

namespace braid::codes {

// Null if w has such codes and this CPU has the instructions (AVX2, or AVX-512 with VBMI and VNNI).
const char* refusal(const Weight& w);

// Whether rows packed for one also suit the other.
bool same_packing(const QuantSpec& a, const QuantSpec& b);

int64_t packed_bytes(int64_t rows, int64_t depth);
// Rounds x [M, K] BF16, M <= kRowsMax, for weights of that format.
void pack(const View& x, const QuantSpec& weights, std::byte* packed);

// y [M, N] F32 or BF16, on the calling thread; w [N, K], rows contiguous.
void product(const std::byte* packed, const Weight& w, const MutView& y);

}  // namespace braid::codes
