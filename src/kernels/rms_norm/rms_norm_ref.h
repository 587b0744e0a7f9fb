// The formula of rms_norm.h, for double and complex<double>.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace braid {

template <class Num>
Num silu_ref(Num v) {
  return v / (Num(1) + std::exp(-v));
}

// x, z [T, D] (z empty: no gate), w [D] -> y [T, D], rstd [T, G]; with `given` this is rstd
template <class Num>
void rms_norm_fwd_ref(int64_t tokens, int64_t width, int64_t groups, double eps, const std::vector<Num>& x,
                      const std::vector<Num>& z, const std::vector<Num>& w, std::vector<Num>& y, std::vector<Num>& rstd,
                      const std::vector<Num>& given = {}) {
  const int64_t size = width / groups;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const auto first = static_cast<size_t>(t * width + g * size);
      Num squares(0);
      for (size_t i = first; i < first + static_cast<size_t>(size); ++i) {
        y[i] = z.empty() ? x[i] : x[i] * silu_ref(z[i]);
        squares += y[i] * y[i];
      }
      const Num own = Num(1) / std::sqrt(squares / Num(static_cast<double>(size)) + Num(eps)),
                r = given.empty() ? own : given[static_cast<size_t>(t * groups + g)];
      rstd[static_cast<size_t>(t * groups + g)] = r;
      for (size_t i = first; i < first + static_cast<size_t>(size); ++i)
        y[i] *= r * w[i - static_cast<size_t>(t * width)];
    }
  }
}

// With u = x * silu(z) or x, n = u * rstd:  du = rstd * (w dy - n * mean(w dy n)),  dw += dy n,  dx = du silu(z),
// dz = du x silu'(z).
// Tokens [begin, end) of a batch.
inline void rms_norm_bwd_ref(int64_t begin, int64_t end, int64_t width, int64_t groups, const std::vector<double>& dy,
                             const std::vector<double>& x, const std::vector<double>& z, const std::vector<double>& w,
                             const std::vector<double>& rstd, std::vector<double>& dx, std::vector<double>& dz,
                             std::vector<double>& dw, const std::vector<double>& given_mean = {}) {
  const int64_t size = width / groups;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const double r = rstd[static_cast<size_t>(t * groups + g)];
      const auto base = static_cast<size_t>(t * width), first = base + static_cast<size_t>(g * size),
                 last = first + static_cast<size_t>(size);
      double mean = 0;
      for (size_t i = first; i < last; ++i)
        mean += w[i - base] * dy[i] * r * (z.empty() ? x[i] : x[i] * silu_ref(z[i]));
      mean /= static_cast<double>(size);
      if (!given_mean.empty()) mean = given_mean[static_cast<size_t>(t * groups + g)];
      for (size_t i = first; i < last; ++i) {
        const double gate = z.empty() ? 1 : silu_ref(z[i]), n = x[i] * gate * r;
        const double du = r * (w[i - base] * dy[i] - n * mean);
        dw[i - base] += dy[i] * n;
        dx[i] = du * gate;
        if (z.empty()) continue;
        const double s = 1 / (1 + std::exp(-z[i]));
        dz[i] = du * x[i] * s * (1 + z[i] * (1 - s));
      }
    }
  }
}

}  // namespace braid
