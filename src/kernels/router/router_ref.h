// The formula of router.h for one token, by sorting; in double. Non-holomorphic, so there is no complex form.
#pragma once
#include <algorithm>
#include <cmath>
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

// Indices of `values` from the largest on; equal values keep their order and NaN comes last.
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
  const Num top = *std::max_element(logits.begin(), logits.end());
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
