// The formulas of router.h: selection for one token, by sorting, in double; weights and losses for double and
// complex<double>, whose comparisons are of real parts.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace braid {

struct RouterRefOptions {
  bool softmax = false;
  int64_t n_group = 1, topk_group = 1;
  bool normalise = true;
  double scale = 1;
};

// Indices of `values` in descending order; equal values keep their order and NaN comes last.
template <class Num>
std::vector<size_t> descending(const std::vector<Num>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) { return std::isnan(values[i]) ? -std::numeric_limits<Num>::infinity() : values[i]; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) > key(b); });
  return order;
}

template <class Num>
std::vector<Num> router_scores_ref(const std::vector<Num>& logits, bool softmax) {
  const auto below = [](const Num& a, const Num& b) { return std::real(a) < std::real(b); };
  const Num top = *std::max_element(logits.begin(), logits.end(), below);
  std::vector<Num> scores(logits.size());
  Num sum(0);
  for (size_t e = 0; e < scores.size(); ++e) {
    scores[e] = softmax ? std::exp(logits[e] - top) : Num(1) / (Num(1) + std::exp(-logits[e]));
    sum += scores[e];
  }
  if (softmax) {
    for (Num& s : scores) s /= sum;
  }
  return scores;
}

// scores [E], experts [K] -> weights [K]
template <class Num>
void router_weights_ref(const RouterRefOptions& options, const std::vector<Num>& scores,
                        const std::vector<size_t>& experts, std::vector<Num>& weights) {
  Num sum(0);
  for (size_t j = 0; j < experts.size(); ++j) {
    weights[j] = scores[experts[j]];
    sum += weights[j];
  }
  for (Num& w : weights) w *= (options.normalise ? Num(1) / (sum + Num(1e-20)) : Num(1)) * Num(options.scale);
}

// For each e < `count`, how many of `experts` equal e.
inline std::vector<double> router_load_ref(size_t count, const std::vector<size_t>& experts) {
  std::vector<double> load(count);
  for (const size_t e : experts) load[e] += 1;
  return load;
}

template <class Num>
Num logsumexp_ref(const std::vector<Num>& logits) {
  const double top = std::real(*std::max_element(
      logits.begin(), logits.end(), [](const Num& a, const Num& b) { return std::real(a) < std::real(b); }));
  Num sum(0);
  for (const Num& l : logits) sum += std::exp(l - top);
  return std::log(sum) + top;
}

// p of one token.
template <class Num>
std::vector<Num> router_shares_ref(const std::vector<Num>& logits, bool softmax) {
  auto scores = router_scores_ref(logits, softmax);
  const Num sum = std::accumulate(scores.begin(), scores.end(), Num(0));
  for (Num& s : scores) s /= sum;
  return scores;
}

// Of the tokens of one sequence: their logits, and the factors [E] of their balance.
template <class Num>
struct RouterLosses {
  Num balance{}, z{};
};
template <class Num>
RouterLosses<Num> router_losses_ref(const std::vector<std::vector<Num>>& logits, const std::vector<double>& factors,
                                    bool softmax) {
  RouterLosses<Num> out;
  for (const auto& token : logits) {
    const auto shares = router_shares_ref(token, softmax);
    const Num lse = logsumexp_ref(token);
    for (size_t e = 0; e < factors.size(); ++e) out.balance += factors[e] * shares[e];
    out.z += lse * lse;
  }
  return out;
}

// Gradient of one token's logits: dweights [K], factors [E] of its sequence's balance or none, and of the z loss.
inline std::vector<double> router_bwd_ref(const RouterRefOptions& options, const std::vector<double>& factors, double z,
                                          const std::vector<double>& logits, const std::vector<size_t>& experts,
                                          const std::vector<double>& dweights) {
  const auto scores = router_scores_ref(logits, options.softmax);
  const double lse = logsumexp_ref(logits), all = std::accumulate(scores.begin(), scores.end(), 0.0);
  double chosen = 1e-20, used = 0, balance = 0;
  for (size_t j = 0; j < experts.size(); ++j) {
    chosen += scores[experts[j]];
    used += dweights[j] * scores[experts[j]];
  }
  if (!options.normalise) chosen = 1;
  for (size_t e = 0; e < factors.size(); ++e) balance += factors[e] * scores[e] / all;
  std::vector<double> ds(scores.size());
  for (size_t e = 0; e < factors.size(); ++e) ds[e] = (factors[e] - balance) / all;
  for (size_t j = 0; j < experts.size(); ++j)
    ds[experts[j]] += options.scale * (dweights[j] - (options.normalise ? used / chosen : 0)) / chosen;
  // Through s to the logits.
  double inner = 0;
  for (size_t e = 0; e < ds.size(); ++e) inner += ds[e] * scores[e];
  for (size_t e = 0; e < ds.size(); ++e) {
    ds[e] = scores[e] * (options.softmax ? ds[e] - inner : ds[e] * (1 - scores[e]));
    ds[e] += z * 2 * lse * std::exp(logits[e] - lse);
  }
  return ds;
}

// scores [E], bias [E] or empty -> experts [K]; K is the size of `experts`.
template <class Num>
void router_select_ref(const RouterRefOptions& options, const std::vector<Num>& scores, const std::vector<Num>& bias,
                       std::vector<size_t>& experts) {
  std::vector<Num> selection = scores;
  for (size_t e = 0; e < bias.size(); ++e) selection[e] += bias[e];
  if (options.n_group > 1) {
    const auto groups = static_cast<size_t>(options.n_group), size = selection.size() / groups;
    std::vector<Num> group_scores;
    for (size_t g = 0; g < groups; ++g) {
      const auto first = selection.begin() + static_cast<std::ptrdiff_t>(g * size);
      const std::vector<Num> members(first, first + static_cast<std::ptrdiff_t>(size));
      const auto best = descending(members);
      group_scores.push_back(members[best[0]] + members[best[1]]);
    }
    const auto order = descending(group_scores);
    for (size_t i = static_cast<size_t>(options.topk_group); i < groups; ++i) {
      for (size_t e = order[i] * size; e < (order[i] + 1) * size; ++e)
        selection[e] = -std::numeric_limits<Num>::infinity();
    }
  }
  const auto order = descending(selection);
  std::copy_n(order.begin(), experts.size(), experts.begin());
}

}  // namespace braid
