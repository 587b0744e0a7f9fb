// The variants behind the table of experts.cc.
#pragma once
#include "kernels/experts/experts.h"
#include "math/codes_a8.h"
#include "math/codes_dot.h"
#include "math/packed_kernel.h"
#include "math/panel.h"
#include "math/tile.h"

namespace braid {

// y [rows, cols] (+)= a times columns [0, cols) of w, on the calling thread: with the depth in blocks of math/packed.h,
// one chain over all of them, kTileRows rows at a time.
inline constexpr int64_t kTileRows = 256;
struct TileProduct {
  packed::Source a{};  // along
  packed::Source w{};
  int64_t rows = 0, cols = 0, depth = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
};
int64_t tile_product_bytes(const packed::Kernel& kernel, int64_t cols, int64_t depth);
void tile_product(const packed::Kernel& kernel, const TileProduct& p, std::byte* space);

// How products are computed: the last of these that is given.
struct ExpertProducts {
  PanelClass panel = PanelClass::bf16;
  const packed::Kernel* packed = nullptr;
  const tiles::Walk* walk = nullptr;
  bool codes =
      false;        // groups of at most codes::kRowsMax rows as whole numbers (math/codes_dot.h), larger ones as above
  bool a8 = false;  // whole numbers of 8 bits (math/codes_a8.h)
};
int64_t experts_fwd_workspace(const ExpertProducts& c, const ExpertsFwd& op, int threads);
void experts_fwd_grouped(const ExpertProducts& c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace);

// With `tiles` the products run on that kernel, but those of u and g where forward was not so (train).
int64_t experts_bwd_workspace(PanelClass c, const packed::Kernel* tiles, const ExpertsBwd& op, int threads);
void experts_bwd_grouped(PanelClass c, const packed::Kernel* tiles, Ctx& ctx, const ExpertsBwd& op,
                         std::span<std::byte> workspace);

}  // namespace braid
