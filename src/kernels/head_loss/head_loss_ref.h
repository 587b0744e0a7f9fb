// The formula of head_loss.h, for double and complex<double> (the maximum is that of the real parts).
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace braid {

// x [D] of one token, w [V, D], its target (-1: masked, loss 0) -> its loss and lse; with `softmax` not null also
// exp(logits - lse) [V]
template <class Num>
void head_loss_ref(int64_t vocab, int64_t depth, const Num* x, const std::vector<Num>& w, int64_t target, Num& loss,
                   Num& lse, Num* softmax) {
  std::vector<Num> logits(static_cast<size_t>(vocab));
  double top = -INFINITY;
  for (int64_t v = 0; v < vocab; ++v) {
    Num& logit = logits[static_cast<size_t>(v)];
    for (int64_t d = 0; d < depth; ++d) logit += x[d] * w[static_cast<size_t>(v * depth + d)];
    top = std::max(top, std::real(logit));
  }
  Num sum(0);
  for (const Num& logit : logits) sum += std::exp(logit - Num(top));
  lse = Num(top) + std::log(sum);
  loss = target < 0 ? Num(0) : lse - logits[static_cast<size_t>(target)];
  if (!softmax) return;
  for (int64_t v = 0; v < vocab; ++v) softmax[v] = std::exp(logits[static_cast<size_t>(v)] - lse);
}

}  // namespace braid
