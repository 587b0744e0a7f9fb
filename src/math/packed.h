// Products of packed operands, for training: y[m, n] (+)= sum_k a[m, k] * b[n, k] where either operand may be stored
// along k or across it, as F32 or BF16. Both are first copied into panels (packed_kernel.h), converted and transposed
// on the way, and each sum is then one chain along k from zero, or from y: a result depends on its row of a and its row
// of b alone, not on where the depth is cut (at multiples of Kernel::step).
// Classes:
//   f32_chain       operands widened exactly, FP32 products and sums
//   bf16_chain      operands rounded to BF16 and widened, FP32 products and sums
//   bf16_dot_chain  operands rounded to BF16, vdpbf16ps on pairs along k
//   bf16_tile_chain the same on tiles
#pragma once
#include <algorithm>
#include <cstddef>

#include "core/view.h"
#include "math/packed_kernel.h"

namespace braid::packed {

enum class Class : uint8_t { f32, bf16, bf16_dot, bf16_tile };

// Null when the class is worth using on this machine, else why not.
const char* refusal(Class c);
Kernel kernel_of(Class c);
// The same bits from panels of 32 columns, which divide a block of 64: of attention and scans.
Kernel block_kernel_of(Class c);

// A matrix [n, depth] whose rows run along k, or its transpose [depth, n].
Source along(const View& v);
Source across(const View& v);
// The same from element (i, k) on.
Source from(const Source& s, int64_t i, int64_t k);

// The depth of a block: on tiles, 32 rows of it fill L1, and the other operand streams past them.
inline constexpr int64_t kDepthMax = 768;
// Equal blocks of at most that, whose number depends on the depth alone.
int64_t block_depth(int64_t depth, int64_t most = kDepthMax);

enum class Side { rows, cols };  // of y: which operand
int64_t packed_bytes(const Kernel& kernel, Side side, int64_t n, int64_t depth);
void pack(const Kernel& kernel, Side side, const Source& source, int64_t n, int64_t depth, std::byte* out);

// y [m, n] F32 with rows y_stride apart, from packed operands of one depth, on the calling thread.
struct Product {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  int64_t m = 0, n = 0, depth = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
  int64_t ahead = 0;  // Tile::ahead
};
void product(const Kernel& kernel, const Product& p);

// An operand that is packed whole, depth block after depth block, by several threads: each packs its own rows i.
struct Whole {
  Kernel kernel{};
  Side side = Side::rows;
  int64_t n = 0, depth = 0, block = 0;
  std::byte* data = nullptr;

  int64_t width() const { return side == Side::rows ? kernel.rows : kernel.cols; }
  int64_t panels() const { return (n + width() - 1) / width(); }
  int64_t depth_at(int64_t k) const { return std::min(block, depth - k); }
  int64_t bytes() const { return (depth + block - 1) / block * packed_bytes(kernel, side, n, block); }
  // Panels from i on of the block that starts at k; i is a multiple of the width, k of the block.
  std::byte* at(int64_t i, int64_t k) const {
    return data + k / block * packed_bytes(kernel, side, n, block) + packed_bytes(kernel, side, i, depth_at(k));
  }
  void pack_panels(const Source& source, int64_t begin, int64_t end) const;
};

// y = sums + bias, n values; bias may be null, and y may alias sums.
void finish(const float* sums, const float* bias, int64_t n, float* y);
void finish(const float* sums, const float* bias, int64_t n, Bf16* y);

// sums[i] += value (i, k) of a source stored across the depth, in order of k.
void add_depths(const Source& source, int64_t n, int64_t depth, float* sums);

}  // namespace braid::packed
