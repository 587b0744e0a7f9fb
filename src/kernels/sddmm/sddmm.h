// Sampled dense-dense product: a value per edge from the rows of its two ends. Edge e = (i <- j = col[e]):
//   dot     y[e,w] = scale u_scale[i] sum over the D/W channels c of part w of u[i,c] v[j,c]
//   square  the same over edge[e,w]^2: what the gradient of a quotient needs
//   add, sub, mul, div, copy_u, copy_v   y[e,c] = u[i,c] op v[j,c], W = D
// Without v a dot sums u alone. Products and sums in FP32. Its gradients are SpmmFwd with op mul (or copy_e): du over
// the graph with y's gradient as values of edges, dv over the transpose.
#pragma once
#include "core/op.h"

namespace braid {

enum class PairOp : uint8_t { dot, square, add, sub, mul, div, copy_u, copy_v };

struct SddmmFwd {
  View rowptr{};    // [R + 1] I64
  View col{};       // [E] I32
  View u{};         // [R, D] F32 or BF16, of the destinations; empty for copy_v
  View u_scale{};   // [R] F32 or empty; with dot and square
  View v{};         // [S, D] F32 or BF16, of the sources; empty for copy_u
  View edge{};      // [E, W] F32, with square
  MutView y{};      // [E, W] F32
  float scale = 1;  // of dot and square
  PairOp op = PairOp::dot;
  static constexpr const char* name = "sddmm_fwd";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &SddmmFwd::rowptr, "R1"), in("col", &SddmmFwd::col, "E"),
                      maybe("u", &SddmmFwd::u, "R D"),       maybe("u_scale", &SddmmFwd::u_scale, "R"),
                      maybe("v", &SddmmFwd::v, "S D"),       maybe("edge", &SddmmFwd::edge, "E W"),
                      out("y", &SddmmFwd::y, "E W")};
  }
  double flops() const { return 2.0 * static_cast<double>(col.count()) * static_cast<double>((u ? u : v).dim(1)); }
  static std::span<const Row<SddmmFwd>> rows();
};

}  // namespace braid
