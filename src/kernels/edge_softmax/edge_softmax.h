// Weights of attention over edges from their scores, head by head, as values in memory: what an attention layer
// computes edge by edge where it is not fused (kernels/gat; Velickovic et al., arXiv 1710.10903). With edges e of row i
//   s_e = leaky_relu(x_e),   y_e = exp(s_e - top_i) / sum over the row of exp(s - top_i)
//   dx_e = y_e (dy_e - sum over the row of y dy) leaky_relu'(x_e)
// In FP32, sums in the order of edges.
#pragma once
#include "core/op.h"

namespace braid {

struct EdgeSoftmaxFwd {
  View rowptr{};       // [R + 1] I64
  View x{};            // [E, H] F32
  MutView y{};         // [E, H] F32
  float slope = 0.2f;  // of leaky_relu below 0
  static constexpr const char* name = "edge_softmax_fwd";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &EdgeSoftmaxFwd::rowptr, "R1"), in("x", &EdgeSoftmaxFwd::x, "E H"),
                      out("y", &EdgeSoftmaxFwd::y, "E H")};
  }
  double flops() const { return 20.0 * static_cast<double>(x.count()); }
  static std::span<const Row<EdgeSoftmaxFwd>> rows();
};

struct EdgeSoftmaxBwd {
  View rowptr{};  // [R + 1] I64
  View x{};       // [E, H] F32
  View y{};       // [E, H] F32
  View dy{};      // [E, H] F32
  MutView dx{};   // [E, H] F32
  float slope = 0.2f;
  static constexpr const char* name = "edge_softmax_bwd";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &EdgeSoftmaxBwd::rowptr, "R1"), in("x", &EdgeSoftmaxBwd::x, "E H"),
                      in("y", &EdgeSoftmaxBwd::y, "E H"), in("dy", &EdgeSoftmaxBwd::dy, "E H"),
                      out("dx", &EdgeSoftmaxBwd::dx, "E H")};
  }
  double flops() const { return 5.0 * static_cast<double>(x.count()); }
  static std::span<const Row<EdgeSoftmaxBwd>> rows();
};

}  // namespace braid
