// What ldtilecfg reads: all eight tiles, 16 rows of 64 bytes. Sums and the second operand may be narrower: two blocks
// of rows of x, in tiles 0, 2 and 6 and in 1, 3 and 7.
#pragma once
#include <cstdint>
#include <initializer_list>

namespace braid::tiles {

struct alignas(64) Config {
  constexpr Config() = default;
  // Blocks of so many rows of x, 1 to 16.
  constexpr Config(int64_t first, int64_t second) {
    for (const int tile : {0, 2, 6}) row_bytes[tile] = static_cast<uint16_t>(4 * first);
    for (const int tile : {1, 3, 7}) row_bytes[tile] = static_cast<uint16_t>(4 * second);
  }
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace braid::tiles
