// The product with a weight whose zeros are in groups of rows: y = x W^T + b as linear.h, forward only, reading the
// groups (math/grouped_rows.h) in place of W. Its rows on a CPU have classes of dense products in training, f32 and the
// BF16 one of CPUs without BF16 dot or tiles, and agree with these bit for bit where x is finite. The one on a GPU has
// a class of its own: FP32 sums over 16 columns at a time (pipelined_cuda.cuh).
#pragma once
#include "core/grouped_rows.h"
#include "core/op.h"

namespace braid {

struct LinearGroupedFwd {
  View x{};              // [T, K] F32 or BF16; its type names the class
  Weight w{};            // [N, K] F32 or BF16, or empty: only the reference reads it
  GroupedView groups{};  // of the same weight
  View bias{};           // [N] F32 or empty
  MutView y{};           // [T, N] F32 or BF16
  static constexpr const char* name = "linear_grouped_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &LinearGroupedFwd::x, "T K"), maybe("w", &LinearGroupedFwd::w, "N K"),
                      maybe("bias", &LinearGroupedFwd::bias, "N"), out("y", &LinearGroupedFwd::y, "T N")};
  }
  double flops() const { return 2.0 * static_cast<double>(x.dim(0)) * static_cast<double>(groups.values.count()); }
  static std::span<const Row<LinearGroupedFwd>> rows();
};

}  // namespace braid
