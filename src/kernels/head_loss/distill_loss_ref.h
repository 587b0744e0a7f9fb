// The formula of distill_loss.h, for double and complex<double>.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// What a teacher says of a token: log-probabilities of some entries, or of all; the rest of 1 is the tail.
struct Taught {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;

  double tail() const {
    double left = 1;
    for (const double l : logprobs) left -= std::exp(l);
    return std::max(left, 0.0);
  }
};

template <class Num>
Num log_sum(const std::vector<Num>& logits, double temperature) {
  double top = -INFINITY;
  for (const Num& l : logits) top = std::max(top, std::real(l));
  Num sum(0);
  for (const Num& l : logits) sum += std::exp((l - Num(top)) / temperature);
  return Num(top) / temperature + std::log(sum);
}

// logits [V] of the student -> divergence at the temperature and cross-entropy of `target`; `log_tail` is the log of
// the probability that the student leaves to what the teacher does not name, -inf if that is nothing. As a log-sum-exp
// with its own maximum: the probability may be smaller than any number.
template <class Num>
void distill_loss_ref(const std::vector<Num>& logits, double temperature, const Taught& taught, int32_t target, Num& kl,
                      Num& ce, Num& log_tail) {
  const Num lse = log_sum(logits, temperature);
  std::vector<bool> named(logits.size());
  kl = Num(0);
  for (size_t k = 0; k < taught.ids.size(); ++k) {
    const auto v = static_cast<size_t>(taught.ids[k]);
    named[v] = true;
    kl += std::exp(taught.logprobs[k]) * (taught.logprobs[k] - (logits[v] / temperature - lse));
  }
  std::vector<Num> others;
  for (size_t v = 0; v < logits.size(); ++v) {
    if (!named[v]) others.push_back(logits[v]);
  }
  log_tail = others.empty() ? Num(-INFINITY) : log_sum(others, temperature) - lse;
  if (const double left = taught.tail(); left > 0 && !others.empty()) kl += left * (std::log(left) - log_tail);
  ce = log_sum(logits, 1) - logits[static_cast<size_t>(target)];
}

}  // namespace braid
