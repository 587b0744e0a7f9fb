// LayerNorm: y = (x - mean) * rstd * w + bias, rstd = 1 / sqrt(mean((x - mean)^2) + eps), over the D channels of a
// token. LayerNorm1p (nemotron.md 1.4) is the same with 1 + w, which the loader adds. Statistics in FP32, in two passes
// (mean, then squares), y in its own dtype. Inference only: backward comes with training, which is what mean and rstd
// are for.
#pragma once
#include "core/op.h"

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
    return std::tuple{in("x", &LayerNormFwd::x, "T D"),        in("w", &LayerNormFwd::w, "D"),
                      maybe("bias", &LayerNormFwd::bias, "D"), out("y", &LayerNormFwd::y, "T D"),
                      saved("mean", &LayerNormFwd::mean, "T"), saved("rstd", &LayerNormFwd::rstd, "T")};
  }
  double flops() const { return 7.0 * static_cast<double>(x.count()); }
  static std::span<const Row<LayerNormFwd>> rows();
};

}  // namespace braid
