// What ldtilecfg reads: all eight tiles, 16 rows of 64 bytes; sums (0-3) and the second operand (6, 7) may be narrower.
#pragma once
#include <cstdint>
#include <initializer_list>

namespace braid::tiles {

struct alignas(64) Config {
  constexpr Config() = default;
  // Tiles of `columns` 32-bit values, 1 to 16.
  constexpr explicit Config(int64_t columns) {
    for (const int tile : {0, 1, 2, 3, 6, 7}) row_bytes[tile] = static_cast<uint16_t>(4 * columns);
  }
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace braid::tiles
