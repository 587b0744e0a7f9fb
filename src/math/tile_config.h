// What ldtilecfg reads: all eight tiles, 16 rows of 64 bytes.
#pragma once
#include <cstdint>

namespace braid::tiles {

struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace braid::tiles
