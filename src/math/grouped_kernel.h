// What grouped_rows.cc requires of an instruction set. Plain data: files for one instruction set include it.
#pragma once
#include <cstdint>

namespace braid::grouped {

// sums [width][height] = the values [n][height] of a group times the rows `columns` of a panel [cols][width].
struct Strip {
  const void* values = nullptr;
  bool bf16 = false;   // else F32
  int64_t height = 0;  // a multiple of 16
  const int32_t* columns = nullptr;
  int64_t n = 0;
  const float* panel = nullptr;
  int64_t width = 0;  // one of those of panel_width
  float* sums = nullptr;
};

// Tokens as panels have them: the next width that a kernel is compiled for.
constexpr int64_t panel_width(int64_t tokens) { return tokens <= 2 ? tokens : tokens <= 8 ? (tokens + 1) / 2 * 2 : 12; }

void wide(const Strip& s);

}  // namespace braid::grouped
