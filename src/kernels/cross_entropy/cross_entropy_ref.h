// The formula of cross_entropy.h, for double and complex<double> (the maximum is that of the real parts).
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace braid {

inline double real_part(double v) { return v; }
inline double real_part(const std::complex<double>& v) { return v.real(); }

// logits [T, V], targets [T] -> loss [T], lse [T]
template <class Num>
void cross_entropy_fwd_ref(int64_t tokens, int64_t vocab, const std::vector<Num>& logits,
                           const std::vector<double>& targets, std::vector<Num>& loss, std::vector<Num>& lse) {
  for (int64_t t = 0; t < tokens; ++t) {
    const Num* row = logits.data() + t * vocab;
    double top = -INFINITY;
    for (int64_t v = 0; v < vocab; ++v) top = std::max(top, real_part(row[v]));
    Num sum(0);
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - Num(top));
    const auto i = static_cast<size_t>(t);
    lse[i] = Num(top) + std::log(sum);
    const auto target = static_cast<int64_t>(targets[i]);
    loss[i] = target < 0 ? Num(0) : target >= vocab ? lse[i] : lse[i] - row[target];
  }
}

}  // namespace braid
