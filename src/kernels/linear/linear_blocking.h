// The blocking (math/packed_blocking.h) of the products of training: the default, computed from sizes; what else may be
// chosen; and an analytic model that ranks it, after ALCOP (arXiv 2210.16691, section 4): a phase takes as long as the
// slowest of its arithmetic and of what it moves through each level of memory,
//   seconds = max(operations / peak, bytes_l / rate_l for l in L1, L2, L3, memory)
// with bytes counted from the loops (linear_packed.cc) as Goto does. Phases of one thread do not overlap, so that of
// packing what all tasks share, of packing what each task has of its own and of the products add up.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "math/packed_blocking.h"

namespace braid {

// One product on packed operands, y [rows, cols] += a b^T over `depth`. y = x w^T and dx = dy w share the packed a
// (tokens) among tasks and pack their own part of b; dw += dy^T x shares b (x) and packs a.
struct PackedProduct {
  packed::Class c = packed::Class::f32;
  packed::Way way = packed::Way::fwd;
  int threads = 1;
  int64_t tokens = 0, w_rows = 0, w_cols = 0;
  int64_t a_bytes = 4, b_bytes = 4, y_bytes = 4;  // of a value as it is stored

  int64_t rows() const { return way == packed::Way::weight ? w_rows : tokens; }
  int64_t cols() const { return way == packed::Way::fwd ? w_rows : w_cols; }
  int64_t depth() const { return way == packed::Way::weight ? tokens : way == packed::Way::fwd ? w_cols : w_rows; }
  packed::ProductKey key() const { return packed::key_of(c, way, threads, tokens, w_rows, w_cols); }
  double flops() const { return 2.0 * static_cast<double>(tokens) * static_cast<double>(w_rows * w_cols); }
};

// Tokens of y and dx that are packed at a time.
inline constexpr int64_t kPackedTokens = 2048;

packed::Blocking default_blocking(const PackedProduct& p);
// The one that a profile or the environment names, else the default.
packed::Blocking blocking_of(const PackedProduct& p);
// What differs for this product, in the order of a grid: depth, columns, rows, bytes ahead. The default is not in it
// where its sizes are not in the grid.
std::vector<packed::Blocking> blocking_space(const PackedProduct& p);

// What a thread of this machine can do and hold. Fitted ones: `pack_gbs` and below, on a Granite Rapids with tiles.
struct PackedLimits {
  double gflops = 100;  // of the class
  double l1_bytes = 48 << 10, l2_bytes = 2 << 20, l3_bytes = 32 << 20;
  double l1_gbs = 200, l2_gbs = 80, l3_gbs = 20, memory_gbs = 12;
  double pack_gbs = 10;   // of source values: converting and transposing
  double tile_ns = 10;    // to begin and end the sums of a tile
  double exposed = 0.05;  // of what is not the slowest: among equals, the point that moves least is first
};
// Rates of the class measured here (sys/roofs.h), in half a second on the first call.
PackedLimits packed_limits(packed::Class c, int threads);

// Bytes and operations of all threads together, counted from the loops.
struct PackedTraffic {
  double shared_read = 0, shared_written = 0;  // packing what tasks share
  double own_read = 0, own_written = 0;        // packing what each task has of its own
  double flops = 0, tiles = 0;                 // with the padding of tiles and steps
  double registers = 0;                        // from L1
  double panels_a = 0, panels_b = 0;           // read into L1: a panel of a once a task, one of b for every panel of a
  double sums = 0;                             // of y, read and written
};
PackedTraffic packed_traffic(const packed::Kernel& kernel, const PackedProduct& p, const packed::Blocking& b);

double packed_seconds(const packed::Kernel& kernel, const PackedProduct& p, const packed::Blocking& b,
                      const PackedLimits& limits);
// Indices into `space`, the fastest first; of equal ones the first.
std::vector<int> ranked_blockings(const PackedProduct& p, std::span<const packed::Blocking> space,
                                  const PackedLimits& limits);

}  // namespace braid
