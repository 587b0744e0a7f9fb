// LayerNorm: y = (x - mean) * rstd * w + bias, rstd = 1 / sqrt(mean((x - mean)^2) + eps), over the D channels of a
// token. LayerNorm1p (docs/internals/families.md, Nemotron-4 and Minitron) is the same with 1 + w, which the loader
// adds. Statistics in FP32, in two passes (mean, then squares), y in its own dtype. Backward, with
// xhat = (x - mean) * rstd and g = dy * w:
//   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),   dw += sum_t dy * xhat,   dbias += sum_t dy
// Sums over tokens go sequence by sequence, in blocks that start with their sequence, so cutting a batch between
// sequences changes no bit.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

struct LayerNormFwd {
  View x{};        // [T, D] F32 or BF16
  View w{};        // [D] F32
  View bias{};     // [D] F32 or empty
  MutView y{};     // [T, D] F32 or BF16
  MutView mean{};  // [T] F32 or empty
  MutView rstd{};  // [T] F32 or empty
  float eps = 1e-5f;
  static constexpr const char* name = "layer_norm_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &LayerNormFwd::x, "T D"),
                      in("w", &LayerNormFwd::w, "D"),
                      maybe("bias", &LayerNormFwd::bias, "D"),
                      out("y", &LayerNormFwd::y, "T D"),
                      optional_out("mean", &LayerNormFwd::mean, "T"),
                      optional_out("rstd", &LayerNormFwd::rstd, "T")};
  }
  double flops() const { return 7.0 * static_cast<double>(x.count()); }
  static std::span<const Row<LayerNormFwd>> rows();
};

struct LayerNormBwd {
  View dy{};                     // [T, D] F32 or BF16
  View x{};                      // [T, D] F32 or BF16
  View w{};                      // [D] F32
  View mean{};                   // [T] F32; empty, like rstd: recomputed from x
  View rstd{};                   // [T] F32
  MutView dx{};                  // [T, D] F32 or BF16
  MutView dw{};                  // [D] F32, accumulates
  MutView dbias{};               // [D] F32, accumulates; or empty
  const SeqMap* seqs = nullptr;  // null: one sequence; else its sequences cover every row
  float eps = 1e-5f;
  static constexpr const char* name = "layer_norm_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &LayerNormBwd::dy, "T D"),      in("x", &LayerNormBwd::x, "T D"),
                      in("w", &LayerNormBwd::w, "D"),          maybe("mean", &LayerNormBwd::mean, "T"),
                      maybe("rstd", &LayerNormBwd::rstd, "T"), out("dx", &LayerNormBwd::dx, "T D"),
                      inout("dw", &LayerNormBwd::dw, "D"),     maybe_inout("dbias", &LayerNormBwd::dbias, "D")};
  }
  double flops() const { return 14.0 * static_cast<double>(x.count()); }
  static std::span<const Row<LayerNormBwd>> rows();
};

}  // namespace braid
