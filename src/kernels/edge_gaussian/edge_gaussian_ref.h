// The formula of edge_gaussian.h.
#pragma once
#include <complex>
#include <vector>

#include "kernels/edge_gaussian/edge_gaussian.h"

namespace braid {

// `dims` is P, `kernels` K.
template <class Num>
void edge_gaussian_ref(int64_t dims, int64_t kernels, const std::vector<double>& u, const std::vector<Num>& mu,
                       const std::vector<Num>& sigma, std::vector<Num>& w) {
  for (size_t at = 0; at < w.size(); ++at) {
    const auto k = static_cast<int64_t>(at) % kernels, e = static_cast<int64_t>(at) / kernels;
    Num sum(0);
    for (int64_t p = 0; p < dims; ++p) {
      const auto i = static_cast<size_t>(k * dims + p);
      const Num d = u[static_cast<size_t>(e * dims + p)] - mu[i];
      sum += d * d / (static_cast<double>(kGaussianEps) + sigma[i] * sigma[i]);
    }
    w[at] = std::exp(-0.5 * sum);
  }
}

}  // namespace braid
