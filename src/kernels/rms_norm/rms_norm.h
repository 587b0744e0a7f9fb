// RMSNorm, whole or in groups, with an optional gate (docs/internals/layers.md, Stack and Gated norm):
//   t = x                              or  t = x * silu(z)   when a gate z is given (gate first, then norm)
//   y = t * rsqrt(mean(t^2) + eps) * w     the mean over each of G equal groups of D consecutive channels
// Rows may be some channels of longer ones, whose statistics the caller has then summed (`scale`, `mean`).
// Statistics and products in FP32; y in its own dtype. dx and dz overwrite; dw accumulates sequence by sequence, each
// from its own first row, so splitting the sequences over two calls is bit-identical to one call.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

struct RmsNormFwd {
  View x{};        // [T, D] F32 or BF16
  View w{};        // [D] F32
  View z{};        // [T, D] F32 or BF16, the gate; may be empty
  MutView y{};     // [T, D] F32 or BF16
  MutView rstd{};  // [T, G] F32, for backward; may be empty
  View scale{};    // [T, G] F32: instead of rsqrt(mean(t^2) + eps); may be empty
  int64_t groups = 1;
  float eps = 1e-5f;
  static constexpr const char* name = "rms_norm_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &RmsNormFwd::x, "T D"),
                      in("w", &RmsNormFwd::w, "D"),
                      maybe("z", &RmsNormFwd::z, "T D"),
                      out("y", &RmsNormFwd::y, "T D"),
                      optional_out("rstd", &RmsNormFwd::rstd, "T G"),
                      maybe("scale", &RmsNormFwd::scale, "T G")};
  }
  double flops() const { return static_cast<double>(x.count()) * (z ? 8 : 4); }
  static std::span<const Row<RmsNormFwd>> rows();
};

struct RmsNormBwd {
  View dy{};                     // [T, D] F32 or BF16
  View x{};                      // [T, D] F32 or BF16
  View w{};                      // [D] F32
  View z{};                      // [T, D] or empty
  View rstd{};                   // [T, G] F32; empty: recomputed from a row that is read anyway
  View mean{};                   // [T, G] F32: instead of mean(dy t w rstd); may be empty
  MutView dx{};                  // [T, D] F32 or BF16
  MutView dz{};                  // [T, D] F32 or BF16, when there is a gate
  MutView dw{};                  // [D] F32, accumulates
  const SeqMap* seqs = nullptr;  // null: all rows are one sequence
  int64_t rows_per_token = 1;    // rows of x per token of seqs: its heads, where each is normed separately
  int64_t groups = 1;
  float eps = 1e-5f;  // unless rstd is given
  static constexpr const char* name = "rms_norm_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &RmsNormBwd::dy, "T D"),
                      in("x", &RmsNormBwd::x, "T D"),
                      in("w", &RmsNormBwd::w, "D"),
                      maybe("z", &RmsNormBwd::z, "T D"),
                      maybe("rstd", &RmsNormBwd::rstd, "T G"),
                      maybe("mean", &RmsNormBwd::mean, "T G"),
                      out("dx", &RmsNormBwd::dx, "T D"),
                      optional_out("dz", &RmsNormBwd::dz, "T D"),
                      inout("dw", &RmsNormBwd::dw, "D")};
  }
  double flops() const { return static_cast<double>(x.count()) * (z ? 20 : 9); }
  static std::span<const Row<RmsNormBwd>> rows();
};

}  // namespace braid
