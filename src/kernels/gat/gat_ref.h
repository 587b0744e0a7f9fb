// The formulas of gat.h.
#pragma once
#include <cmath>
#include <complex>
#include <vector>

#include "kernels/gat/gat.h"

namespace braid {

// y[t,h] = <a[h], x[t,h]>
template <class Num>
void gat_scores_ref(int64_t heads, const std::vector<Num>& x, const std::vector<Num>& a, std::vector<Num>& y) {
  const auto width = static_cast<int64_t>(a.size()), part = width / heads;
  for (size_t at = 0; at < y.size(); ++at) {
    const int64_t t = static_cast<int64_t>(at) / heads, h = static_cast<int64_t>(at) % heads;
    y[at] = Num(0);
    for (int64_t c = h * part; c < (h + 1) * part; ++c)
      y[at] += x[static_cast<size_t>(t * width + c)] * a[static_cast<size_t>(c)];
  }
}

template <class Num>
Num leaky_relu_ref(Num v, double slope) {
  return std::real(v) > 0 ? v : v * slope;
}

// visit(j, edge) for every source of row i, itself last.
template <class Op, class Visit>
void each_source(const Op& op, int64_t i, Visit&& visit) {
  const int64_t* rowptr = op.rowptr.template as<int64_t>();
  for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e) visit(int64_t{op.col.template as<int32_t>()[e]}, e);
  if (op.loops) visit(i, op.col.dim(0) + i);
}

template <class Op>
double factor_ref(const Op& op, int64_t edge, int64_t heads, int64_t h) {
  const double rate = static_cast<double>(op.drop.rate);
  if (rate == 0) return 1;
  const auto index = static_cast<uint64_t>(edge * ((heads + 3) / 4) + h / 4);
  const uint32_t drawn = philox(op.drop.key, index, op.drop.step)[static_cast<size_t>(h % 4)];
  return static_cast<double>(drawn) < std::floor(rate * 0x1p32) ? 0 : 1 / (1 - rate);
}

template <class Num>
struct GatRef {
  std::vector<Num> x, left, right;
  int64_t rows, width, heads;

  Num score(int64_t i, int64_t j, int64_t h, double slope) const {
    return leaky_relu_ref(left[static_cast<size_t>(i * heads + h)] + right[static_cast<size_t>(j * heads + h)], slope);
  }
};

template <class Num>
void gat_ref(const GatFwd& op, const GatRef<Num>& in, std::vector<Num>& y, std::vector<Num>& top,
             std::vector<Num>& sum) {
  const int64_t part = in.width / in.heads;
  const auto slope = static_cast<double>(op.slope);
  for (int64_t i = 0; i < in.rows; ++i) {
    for (int64_t h = 0; h < in.heads; ++h) {
      Num &largest = top[static_cast<size_t>(i * in.heads + h)], &total = sum[static_cast<size_t>(i * in.heads + h)];
      bool first = true;
      largest = total = Num(0);
      each_source(op, i, [&](int64_t j, int64_t) {
        const Num s = in.score(i, j, h, slope);
        if (first || std::real(s) > std::real(largest)) largest = s;
        first = false;
      });
      each_source(op, i, [&](int64_t j, int64_t) { total += std::exp(in.score(i, j, h, slope) - largest); });
      for (int64_t c = h * part; c < (h + 1) * part; ++c) {
        Num& out = y[static_cast<size_t>(i * in.width + c)];
        out = Num(0);
        each_source(op, i, [&](int64_t j, int64_t e) {
          const Num p = std::exp(in.score(i, j, h, slope) - largest) / total * factor_ref(op, e, in.heads, h);
          out += p * in.x[static_cast<size_t>(j * in.width + c)];
        });
      }
    }
  }
}

}  // namespace braid
