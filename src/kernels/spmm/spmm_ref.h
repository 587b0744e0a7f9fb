// The formulas of spmm.h.
#pragma once
#include <complex>
#include <vector>

#include "kernels/spmm/spmm.h"

namespace braid {

template <class Num>
Num edge_ref(EdgeOp op, Num x, Num e) {
  switch (op) {
    case EdgeOp::copy_x:
      return x;
    case EdgeOp::copy_e:
      return e;
    case EdgeOp::add:
      return x + e;
    case EdgeOp::sub:
      return x - e;
    case EdgeOp::mul:
      return x * e;
    case EdgeOp::div:
      return x / e;
  }
  return Num(0);
}

// Whether `value` replaces `best`: NaN does, and nothing replaces it.
inline bool wins_ref(Reduce reduce, double value, double best) {
  if (best != best) return false;
  return reduce == Reduce::max ? !(value <= best) : !(value >= best);
}

// The numbers of a call; x_scale, self and add may be empty.
template <class Num>
struct SpmmRef {
  std::vector<Num> x{}, x_scale{}, edge{}, self{}, add{};
  int64_t rows = 0, width = 0, values = 0;  // R, D, W
};

template <class Num>
void spmm_ref(const SpmmFwd& op, const SpmmRef<Num>& in, std::vector<Num>& y, std::vector<double>& arg) {
  const int64_t *rowptr = op.rowptr.as<int64_t>(), width = in.width, part = in.values > 0 ? width / in.values : 1;
  const int32_t *col = op.col.as<int32_t>(), *order = op.order ? op.order.as<int32_t>() : nullptr;
  const auto at = [](const std::vector<Num>& list, int64_t i) { return list[static_cast<size_t>(i)]; };
  for (int64_t i = 0; i < in.rows; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      Num sum(0), best(0);
      int64_t winner = -1;
      for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e) {
        const int64_t j = col[e], position = order ? order[e] : e;
        Num x = in.x.empty() ? Num(0) : at(in.x, j * width + c);
        if (!in.x_scale.empty()) x *= at(in.x_scale, j);
        const Num value = edge_ref(op.op, x, in.edge.empty() ? Num(0) : at(in.edge, position * in.values + c / part));
        sum += value;
        if (winner >= 0 && !wins_ref(op.reduce, std::real(value), std::real(best))) continue;
        best = value;
        winner = position;
      }
      const int64_t degree = rowptr[i + 1] - rowptr[i];
      Num& out = y[static_cast<size_t>(i * width + c)];
      out = picks(op.reduce) ? best : sum;
      if (op.reduce == Reduce::mean && degree > 0) out /= static_cast<double>(degree);
      if (op.own != 0 && i < std::ssize(in.x) / width) out += static_cast<double>(op.own) * at(in.x, i * width + c);
      if (const int64_t own = i - op.self_row; own >= 0 && own < std::ssize(in.self))
        out += at(in.self, own) * at(in.x, (op.self_source + own) * width + c);
      if (!in.add.empty() && degree > 0) out += at(in.add, i * width + c);
      if (!arg.empty()) arg[static_cast<size_t>(i * width + c)] = static_cast<double>(winner);
    }
  }
}

// Slopes of f(x, e).
inline double slope_x_ref(EdgeOp op, double e) {
  return op == EdgeOp::copy_e ? 0 : op == EdgeOp::mul ? e : op == EdgeOp::div ? 1 / e : 1;
}
inline double slope_e_ref(EdgeOp op, double x, double e) {
  switch (op) {
    case EdgeOp::copy_x:
      return 0;
    case EdgeOp::copy_e:
    case EdgeOp::add:
      return 1;
    case EdgeOp::sub:
      return -1;
    case EdgeOp::mul:
      return x;
    case EdgeOp::div:
      return -x / (e * e);
  }
  return 0;
}

}  // namespace braid
