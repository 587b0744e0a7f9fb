// The formulas of attention.h for one query head of one token: forward for double and complex<double>.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

namespace braid {

// q [P], k and v [keys][P] -> y [P], returns lse. The maximum is a constant of the softmax, so its real part is enough.
template <class Num>
Num attention_ref(int64_t keys, int64_t width, double scale, const Num* q, const Num* k, const Num* v, Num* y) {
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
  return Num(highest) + std::log(sum);
}

// One query head of one token as AttentionBwd sees it.
struct AttentionRow {
  const double *q, *y, *dy;  // [P]
  double lse;
};

// dq [P] is overwritten; dk and dv [keys][P] are added to.
inline void attention_bwd_ref(int64_t keys, int64_t width, double scale, const AttentionRow& row, const double* k,
                              const double* v, double* dq, double* dk, double* dv) {
  double delta = 0;
  for (int64_t i = 0; i < width; ++i) {
    delta += row.dy[i] * row.y[i];
    dq[i] = 0;
  }
  for (int64_t j = 0; j < keys; ++j) {
    double s = 0, dp = 0;
    for (int64_t i = 0; i < width; ++i) {
      s += row.q[i] * k[j * width + i];
      dp += row.dy[i] * v[j * width + i];
    }
    const double p = std::exp(s * scale - row.lse), ds = p * (dp - delta) * scale;
    for (int64_t i = 0; i < width; ++i) {
      dq[i] += ds * k[j * width + i];
      dk[j * width + i] += ds * row.q[i];
      dv[j * width + i] += p * row.dy[i];
    }
  }
}

}  // namespace braid
