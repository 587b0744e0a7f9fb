// The formula of edge_softmax.h.
#pragma once
#include <complex>
#include <vector>

#include "kernels/edge_softmax/edge_softmax.h"

namespace braid {

template <class Num>
void edge_softmax_ref(const View& rowptr, int64_t heads, float slope, const std::vector<Num>& x, std::vector<Num>& y) {
  const auto* begin = rowptr.as<int64_t>();
  for (int64_t i = 0; i + 1 < rowptr.dim(0); ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = [&](int64_t e) { return static_cast<size_t>(e * heads + h); };
      Num sum(0);
      for (int64_t e = begin[i]; e < begin[i + 1]; ++e) {
        const Num v = x[at(e)];
        y[at(e)] = std::exp(std::real(v) > 0 ? v : v * static_cast<double>(slope));
        sum += y[at(e)];
      }
      for (int64_t e = begin[i]; e < begin[i + 1]; ++e) y[at(e)] /= sum;
    }
  }
}

}  // namespace braid
