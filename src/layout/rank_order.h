// How well times by formula order what times by another account order, in tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace braid::layout {

struct Pair {
  double predicted = 0, played = 0;
};

// Kendall's tau-b; values within a millionth are ties.
inline double tau_of(const std::vector<Pair>& pairs) {
  const auto sign = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(a, b) ? 0 : a < b ? -1 : 1; };
  int64_t agree = 0, first = 0, second = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int a = sign(pairs[i].predicted, pairs[j].predicted), b = sign(pairs[i].played, pairs[j].played);
      agree += a * b, first += a * a, second += b * b;
    }
  }
  return static_cast<double>(agree) / std::sqrt(static_cast<double>(first) * static_cast<double>(second));
}

// What the first choice of one account loses to that of the other.
inline double regret_of(const std::vector<Pair>& pairs) {
  const auto least = [&](double Pair::*of) {
    return *std::min_element(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) { return a.*of < b.*of; });
  };
  return least(&Pair::predicted).played / least(&Pair::played).played - 1;
}

}  // namespace braid::layout
