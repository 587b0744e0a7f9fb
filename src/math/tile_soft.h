// Software tiles: what the AMX instructions do to eight tiles of 16 rows of 64 bytes, so that packing, edges and tile
// order of the real kernels are tested on any machine (design: x_amx-inl.h is compiled over both). Intel's definition
// of TDPBF16PS: even and odd products are summed separately, then both are added to the destination.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace braid::tiles {

struct SoftTile {
  uint8_t row[16][64];
};

class SoftTiles {
 public:
  // As tile_config.h: blocks of so many rows of x.
  void configure(int64_t first, int64_t second) {
    for (const int tile : {0, 2, 6}) row_bytes_[tile] = static_cast<size_t>(4 * first);
    for (const int tile : {1, 3, 7}) row_bytes_[tile] = static_cast<size_t>(4 * second);
  }
  void zero(int t) { std::memset(&tile_[t], 0, sizeof tile_[t]); }
  void load(int t, const void* p, int64_t stride) {
    zero(t);
    for (int r = 0; r < 16; ++r)
      std::memcpy(tile_[t].row[r], static_cast<const uint8_t*>(p) + r * stride, row_bytes_[t]);
  }
  void store(int t, void* p, int64_t stride) const {
    for (int r = 0; r < 16; ++r) std::memcpy(static_cast<uint8_t*>(p) + r * stride, tile_[t].row[r], row_bytes_[t]);
  }
  void dot_bf16(int c, int a, int b) {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          even += bf16(a, m, 2 * k) * bf16(b, k, 2 * n);
          odd += bf16(a, m, 2 * k + 1) * bf16(b, k, 2 * n + 1);
        }
        float sum = 0;
        std::memcpy(&sum, &tile_[c].row[m][4 * n], sizeof sum);
        sum += even + odd;
        std::memcpy(&tile_[c].row[m][4 * n], &sum, sizeof sum);
      }
    }
  }

 private:
  float bf16(int t, int r, int i) const {
    uint16_t bits = 0;
    std::memcpy(&bits, &tile_[t].row[r][2 * i], sizeof bits);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  SoftTile tile_[8] = {};
  size_t row_bytes_[8] = {64, 64, 64, 64, 64, 64, 64, 64};
};

}  // namespace braid::tiles
