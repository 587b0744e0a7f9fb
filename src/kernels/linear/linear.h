// The product with a weight: y = x W^T + b. Backward in two parts, so that the gradient of the data and that of the
// weight are separate nodes: dx = dy W, and dW += dy^T x, db += sum over rows of dy. Parameter gradients accumulate
// over the token grid of math/pieces.h.
#pragma once
#include "core/numerics.h"
#include "core/op.h"
#include "core/seq_map.h"
#include "math/thresholds.h"

namespace braid {

namespace packed {
struct Blocking;
}

struct LinearFwd {
  View x{};            // [T, K] F32 or BF16; its dtype names the numerics class (math/panel.h)
  Weight w{};          // [N, K] any format
  View bias{};         // [N] F32 or empty
  MutView y{};         // [T, N] F32 or BF16
  bool train = false;  // many rows, weights used for this step only: packed operands, their own class (math/packed.h)
  CodeDots codes = CodeDots::none;             // the class allowed for quantised weights
  bool wide_sums = false;                      // sums of F32 operands in FP64: for results that are ranked
  const Thresholds* thresholds = nullptr;      // null: those of the process; no value changes a bit
  const packed::Blocking* blocking = nullptr;  // of a product with `train`; null: blocking_of (linear_blocking.h)
  static constexpr const char* name = "linear_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &LinearFwd::x, "T K"), in("w", &LinearFwd::w, "N K"),
                      maybe("bias", &LinearFwd::bias, "N"), out("y", &LinearFwd::y, "T N")};
  }
  const Thresholds& limits() const { return thresholds ? *thresholds : braid::thresholds(); }
  double flops() const {
    return 2.0 * static_cast<double>(x.dim(0)) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
  }
  static std::span<const Row<LinearFwd>> rows();
};

struct LinearBwdData {
  View dy{};          // [T, N] F32 or BF16; rounded to BF16 unless w is F32 or the product is wide
  Weight w{};         // [N, K] any format
  MutView dx{};       // [T, K] F32 or BF16
  bool wide = false;  // F32 operands, as in a forward with F32 x; an F32 weight implies it
  const packed::Blocking* blocking = nullptr;  // as above
  static constexpr const char* name = "linear_bwd_data";
  static constexpr auto fields() {
    return std::tuple{in("dy", &LinearBwdData::dy, "T N"), in("w", &LinearBwdData::w, "N K"),
                      out("dx", &LinearBwdData::dx, "T K")};
  }
  double flops() const {
    return 2.0 * static_cast<double>(dy.dim(0)) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
  }
  static std::span<const Row<LinearBwdData>> rows();
};

struct LinearBwdWeight {
  View dy{};                                   // [T, N] F32 or BF16; rounded to BF16 where x is BF16
  View x{};                                    // [T, K] F32 or BF16
  MutView dw{};                                // [N, K] F32, accumulates
  MutView dbias{};                             // [N] F32, accumulates; or empty
  const SeqMap* seqs = nullptr;                // null: all rows are one sequence
  const packed::Blocking* blocking = nullptr;  // as above
  static constexpr const char* name = "linear_bwd_weight";
  static constexpr auto fields() {
    return std::tuple{in("dy", &LinearBwdWeight::dy, "T N"), in("x", &LinearBwdWeight::x, "T K"),
                      inout("dw", &LinearBwdWeight::dw, "N K"), maybe_inout("dbias", &LinearBwdWeight::dbias, "N")};
  }
  double flops() const { return 2.0 * static_cast<double>(dy.dim(0)) * static_cast<double>(dw.count()); }
  static std::span<const Row<LinearBwdWeight>> rows();
};

}  // namespace braid
