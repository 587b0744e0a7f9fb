// The formula of attention.h for one query head, for double and complex<double>.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

namespace braid {

// q [P], k and v [keys][P] -> y [P]. The maximum is a constant of the softmax, so its real part is enough.
template <class Num>
void attention_ref(int64_t keys, int64_t width, double scale, const Num* q, const Num* k, const Num* v, Num* y) {
  std::vector<Num> p(static_cast<size_t>(keys));
  double highest = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < keys; ++j) {
    Num s(0);
    for (int64_t i = 0; i < width; ++i) s += q[i] * k[j * width + i];
    p[static_cast<size_t>(j)] = s * Num(scale);
    highest = std::max(highest, std::real(p[static_cast<size_t>(j)]));
  }
  Num sum(0);
  for (Num& s : p) sum += s = std::exp(s - Num(highest));
  for (int64_t i = 0; i < width; ++i) {
    y[i] = Num(0);
    for (int64_t j = 0; j < keys; ++j) y[i] += p[static_cast<size_t>(j)] * v[j * width + i];
    y[i] /= sum;
  }
}

}  // namespace braid
