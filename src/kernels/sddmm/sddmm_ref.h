// The formulas of sddmm.h.
#pragma once
#include <vector>

#include "kernels/sddmm/sddmm.h"

namespace braid {

template <class Num>
Num pair_ref(PairOp op, Num u, Num v) {
  switch (op) {
    case PairOp::add:
      return u + v;
    case PairOp::sub:
      return u - v;
    case PairOp::mul:
      return u * v;
    case PairOp::div:
      return u / v;
    case PairOp::copy_u:
      return u;
    default:
      return v;
  }
}

// u_scale and v may be empty; `values` is W.
template <class Num>
void sddmm_ref(const SddmmFwd& op, int64_t width, int64_t values, const std::vector<Num>& u,
               const std::vector<Num>& u_scale, const std::vector<Num>& v, const std::vector<Num>& edge,
               std::vector<Num>& y) {
  const int64_t *rowptr = op.rowptr.as<int64_t>(), part = width / values;
  const auto at = [](const std::vector<Num>& list, int64_t i) { return list[static_cast<size_t>(i)]; };
  const bool sums = op.op == PairOp::dot || op.op == PairOp::square;
  for (int64_t i = 0; i + 1 < op.rowptr.dim(0); ++i) {
    for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e) {
      const int64_t j = op.col.as<int32_t>()[e];
      for (int64_t w = 0; w < values; ++w) {
        Num sum(0);
        for (int64_t c = w * part; c < (w + 1) * part; ++c) {
          const Num left = u.empty() ? Num(0) : at(u, i * width + c), right = v.empty() ? Num(1) : at(v, j * width + c);
          sum += sums ? left * right : pair_ref(op.op, left, right);
        }
        if (sums) sum *= static_cast<double>(op.scale);
        if (!u_scale.empty()) sum *= at(u_scale, i);
        if (op.op == PairOp::square) sum /= at(edge, e * values + w) * at(edge, e * values + w);
        y[static_cast<size_t>(e * values + w)] = sum;
      }
    }
  }
}

}  // namespace braid
