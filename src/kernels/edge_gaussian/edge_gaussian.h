// Gaussian weights of edges (MoNet: Monti et al., arXiv 1611.08402): with pseudo-coordinates u of an edge and K
// kernels,
//   w[e,k] = exp(-1/2 sum over p of (u[e,p] - mu[k,p])^2 / (1e-15 + sigma[k,p]^2))
// which SpmmFwd then takes as the values of edges. In FP32. The gradients of mu and sigma add up over blocks of
// kGaussianEdges edges in order, whatever the threads.
#pragma once
#include "core/op.h"

namespace braid {

// Added to sigma^2, as PyTorch Geometric does.
inline constexpr float kGaussianEps = 1e-15f;
// Edges of one partial sum: enough work to wake a thread for.
inline constexpr int64_t kGaussianEdges = 1024;

struct EdgeGaussianFwd {
  View u{};      // [E, P] F32
  View mu{};     // [K, P] F32
  View sigma{};  // [K, P] F32
  MutView w{};   // [E, K] F32
  static constexpr const char* name = "edge_gaussian_fwd";
  static constexpr auto fields() {
    return std::tuple{in("u", &EdgeGaussianFwd::u, "E P"), in("mu", &EdgeGaussianFwd::mu, "K P"),
                      in("sigma", &EdgeGaussianFwd::sigma, "K P"), out("w", &EdgeGaussianFwd::w, "E K")};
  }
  double flops() const { return static_cast<double>(w.count()) * (20 + 4 * static_cast<double>(u.dim(1))); }
  static std::span<const Row<EdgeGaussianFwd>> rows();
};

struct EdgeGaussianBwd {
  View dw{};         // [E, K] F32
  View w{};          // [E, K] F32
  View u{};          // [E, P] F32
  View mu{};         // [K, P] F32
  View sigma{};      // [K, P] F32
  MutView dmu{};     // [K, P] F32, accumulates
  MutView dsigma{};  // [K, P] F32, accumulates
  static constexpr const char* name = "edge_gaussian_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dw", &EdgeGaussianBwd::dw, "E K"),
                      in("w", &EdgeGaussianBwd::w, "E K"),
                      in("u", &EdgeGaussianBwd::u, "E P"),
                      in("mu", &EdgeGaussianBwd::mu, "K P"),
                      in("sigma", &EdgeGaussianBwd::sigma, "K P"),
                      inout("dmu", &EdgeGaussianBwd::dmu, "K P"),
                      inout("dsigma", &EdgeGaussianBwd::dsigma, "K P")};
  }
  double flops() const { return static_cast<double>(w.count()) * 8 * static_cast<double>(u.dim(1)); }
  static std::span<const Row<EdgeGaussianBwd>> rows();
};

}  // namespace braid
