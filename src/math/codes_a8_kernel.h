// What codes_a8.cc requires of an instruction set. Plain data, no containers; codec/units.h has the layout of operands.
#pragma once
#include <cstddef>
#include <cstdint>

#include "codec/codes.h"
#include "codec/units.h"
#include "core/dtype.h"

namespace braid::codes::a8 {

// y[r, 0..32) (+)= x times two units of w per step, for `steps` steps from the start of a group.
struct Strip {
  const std::byte* x = nullptr;
  const std::byte* w = nullptr;  // units of the first 16 rows of w; those of the others from w + w_half on
  int64_t w_half = 0;
  int64_t rows = 0, steps = 0;
  float* y = nullptr;  // 32 values per row
  bool add = false;
  const std::byte* ahead = nullptr;  // weights of the next rows, whose lines of 64 bytes are prefetched meanwhile
  int64_t ahead_lines = 0;
};
void strip_avx512(const Strip& s, const Codes& codes);
void strip_avx2_vnni(const Strip& s, const Codes& codes);
void strip_avx2(const Strip& s, const Codes& codes);

// One row of x: row `r` in a block of `rows`.
void pack_row_avx512(const Bf16* x, int64_t depth, const Codes& codes, int64_t rows, int64_t r, std::byte* packed);
void pack_row_avx2(const Bf16* x, int64_t depth, const Codes& codes, int64_t rows, int64_t r, std::byte* packed);

}  // namespace braid::codes::a8
