// SsdBwd with Highway, in blocks and tiles as ssd_fwd_cpu.cc. With K_ts = exp(L_t - L_s) for s <= t, w_s = exp(L_Q -
// L_s), S the state [P, N] before a block and G the gradient of the one after it, per head
//   DX    = dy x'  up to the diagonal                                     [Q, Q]
//   dx_s  = d_skip dy_s + d_s (w_s G b_s + sum_t C.B_ts K_ts dy_t)        [Q, P]
//   db_s += d_s w_s x_s G + sum_t W_ts c_t        W_ts = DX_ts K_ts d_s   [Q, N]
//   dc_t += exp(L_t) dy_t S + sum_s W_ts b_s                              [Q, N]
//   G     = exp(L_Q) G + sum_t exp(L_t) dy_t (x) c_t                      [P, N]
// where W is summed over the heads of a task before the products with b and c. The gradient of d_t a is what flows
// across token t: pairs and states before t with those from t on,
//   u_t = sum_{s<t<=r} T_rs + sum_{r>=t} E_r + sum_{s<t} F_s + exp(L_Q) <G, S>
//   T_rs = C.B_rs K_rs d_s DX_rs     E_r = exp(L_r) dy_r S c_r     F_s = d_s w_s x_s G b_s
// A task is one sequence and some heads of one group: it runs forward to store the states before its blocks, then
// backward. How a group is cut into parts follows from the shape alone, and parts, heads and sequences are added up in
// order.
// The products run in register tiles, FP32, or on the tiles of math/packed.h, which round both operands to BF16;
// everything between them is FP32 either way.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/ssd/ssd_rows.h"
#include "kernels/ssd/ssd_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd/ssd_bwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/contrib/math/math-inl.h>

#include "kernels/ssd/ssd_block-inl.h"
#include "math/act-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Like for_each_panel, with a constant number of vectors.
template <class Visit>
HWY_INLINE void for_each_tile_column(int64_t columns, Visit&& visit) {
  for_each_panel(columns, [&](int64_t column, int64_t vecs) HWY_ATTR {
    if (vecs == 1) visit(std::integral_constant<int, 1>(), column);
    if (vecs == 2) visit(std::integral_constant<int, 2>(), column);
    if constexpr (kTileVecs > 2) {
      if (vecs == kTileVecs) visit(std::integral_constant<int, kTileVecs>(), column);
    }
  });
}

// out [m, n] (+)= left [m, depth] right [depth, n] on tiles of BF16, all of it packed here: blocks fit the L1 cache.
struct TileProduct {
  packed::Source left, right;  // element (row or column, k)
  int64_t m, n, depth;
  float* out;
  int64_t stride;
  bool add = false;
};
void multiply_on_tiles(const SsdBwdScratch& s, const TileProduct& p) {
  packed::pack(*s.tiles, packed::Side::rows, p.left, p.m, p.depth, s.packed_left);
  packed::pack(*s.tiles, packed::Side::cols, p.right, p.n, p.depth, s.packed_right);
  packed::product(*s.tiles, {.a = s.packed_left,
                             .b = s.packed_right,
                             .m = p.m,
                             .n = p.n,
                             .depth = p.depth,
                             .y = p.out,
                             .y_stride = p.stride,
                             .add = p.add});
}
packed::Source along(const float* matrix, int64_t stride) { return {.data = matrix, .stride = stride, .along = true}; }
packed::Source across(const float* matrix, int64_t stride) { return {.data = matrix, .stride = stride}; }

// out [Q, Q] = left [Q, depth] right' [depth, Q], both with that stride; the register tiles stop at the diagonal.
// `right` is scratch for right', its rows s.q apart.
void multiply_lower(const SsdBwdScratch& s, int64_t rows, const float* left, const float* right_t, int64_t stride,
                    int64_t depth, float* right, float* out) {
  if (s.tiles) return multiply_on_tiles(s, {along(left, stride), along(right_t, stride), rows, rows, depth, out, s.q});
  transpose(right_t, stride, rows, depth, right, s.q);
  for_each_tile_column(rows, [&](auto vecs, int64_t column) HWY_ATTR {
    for (int64_t t = column / kTileRows * kTileRows; t < rows; t += kTileRows) {
      Accumulators<vecs()> tile;
      tile.zero();
      tile.add_product({left + t * stride, stride, 1}, right + column, s.q, depth);
      tile.store(out + t * s.q + column, s.q);
    }
  });
}

// to [P, N] = factor from + left' [P, Q] right [Q, N]
void add_outer(const SsdBwd& op, const SsdBwdScratch& s, int64_t count, float factor, const float* from,
               const float* left, const float* right, float* to) {
  const int64_t width = SsdFloats::round_up(op.x.dim(2)), states = SsdFloats::round_up(op.b.dim(2));
  if (s.tiles) multiply_on_tiles(s, {across(left, s.p), across(right, s.n), width, states, count, s.sums, s.sums_row});
  for_each_tile_column(op.b.dim(2), [&](auto vecs, int64_t column) HWY_ATTR {
    for (int64_t p = 0; p < op.x.dim(2); p += kTileRows) {
      Accumulators<vecs()> tile;
      tile.load(from + p * s.n + column, s.n);
      tile.scale(&factor, 0);
      if (s.tiles) {
        tile.add(s.sums + p * s.sums_row + column, s.sums_row);
      } else {
        tile.add_product({left + p, 1, s.p}, right + column, s.n, count);
      }
      tile.store(to + p * s.n + column, s.n);
    }
  });
}

// v_t = scale_t left_t [P] state [P, N];  sums_t = <v_t, other_t>;  to_t += weight_t v_t.
void add_through_state(const SsdBwd& op, const SsdBwdScratch& s, int64_t rows, const float* left, const float* state,
                       const float* scale, const float* other, const float* weight, float* to, float* sums) {
  const FloatTag d;
  const int64_t width = SsdFloats::round_up(op.x.dim(2)), states = SsdFloats::round_up(op.b.dim(2));
  if (s.tiles) multiply_on_tiles(s, {along(left, s.p), across(state, s.n), rows, states, width, s.sums, s.sums_row});
  for_each_tile_column(op.b.dim(2), [&](auto vecs, int64_t column) HWY_ATTR {
    for (int64_t t = 0; t < rows; t += kTileRows) {
      Accumulators<vecs()> tile;
      if (s.tiles) {
        tile.load(s.sums + t * s.sums_row + column, s.sums_row);
      } else {
        tile.zero();
        tile.add_product({left + t * s.p, s.p, 1}, state + column, s.n, op.x.dim(2));
      }
      tile.scale(scale + t, 1);
      for (int i = 0; i < kTileRows; ++i) {
        const int64_t at = (t + i) * s.n + column;
        const FloatVec factor = hn::Set(d, weight[t + i]);
        FloatVec sum = hn::Zero(d);
        for (int j = 0; j < vecs(); ++j) {
          sum = hn::MulAdd(tile.v[i][j], hn::LoadU(d, other + at + j * lanes()), sum);
          float* target = to + at + j * lanes();
          hn::StoreU(hn::MulAdd(factor, tile.v[i][j], hn::LoadU(d, target)), d, target);
        }
        sums[t + i] += hn::GetLane(hn::SumOfLanes(d, sum));
      }
    }
  });
}

// The contribution of the sum over heads of W to db and dc.
void add_pairs(const SsdBwd& op, const SsdBwdScratch& s, int64_t rows) {
  if (s.tiles) {
    const int64_t states = SsdFloats::round_up(op.b.dim(2));
    multiply_on_tiles(s, {along(s.pairs, s.q), across(s.b, s.n), rows, states, rows, s.dc, s.n, true});
    return multiply_on_tiles(s, {across(s.pairs, s.q), across(s.c, s.n), rows, states, rows, s.db, s.n, true});
  }
  for_each_tile_column(op.b.dim(2), [&](auto vecs, int64_t column) HWY_ATTR {
    for (int64_t t = 0; t < rows; t += kTileRows) {
      Accumulators<vecs()> tile;
      tile.load(s.dc + t * s.n + column, s.n);
      tile.add_product({s.pairs + t * s.q, s.q, 1}, s.b + column, s.n, t + kTileRows);
      tile.store(s.dc + t * s.n + column, s.n);
      tile.load(s.db + t * s.n + column, s.n);
      tile.add_product({s.pairs + t * s.q + t, 1, s.q}, s.c + t * s.n + column, s.n, rows - t);
      tile.store(s.db + t * s.n + column, s.n);
    }
  });
}

// Rows of a matrix: row t times factors[t].
void scale_rows(float* matrix, int64_t stride, int64_t rows, const float* factors) {
  const FloatTag d;
  for (int64_t t = 0; t < rows; ++t) {
    const FloatVec factor = hn::Set(d, factors[t]);
    for (int64_t i = t * stride; i < (t + 1) * stride; i += lanes())
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, matrix + i)), d, matrix + i);
  }
}

// The sums of multiply_dx for all rows, before their factor d_s.
void multiply_dx_on_tiles(const SsdBwd& op, const Block& block, const float* grad, const SsdBwdScratch& s) {
  const int64_t width = SsdFloats::round_up(op.x.dim(2)), states = SsdFloats::round_up(op.b.dim(2));
  if (grad) {
    multiply_on_tiles(s, {along(s.b, s.n), along(grad, s.n), block.rows, width, states, s.sums, s.sums_row});
    scale_rows(s.sums, s.sums_row, block.rows, s.leave);
  }
  multiply_on_tiles(
      s, {across(s.mask, s.q), across(s.dy, s.p), block.rows, width, block.rows, s.sums, s.sums_row, grad != nullptr});
}

// dx of a block and head; `grad` is G, null without a gradient behind the block.
void multiply_dx(const SsdBwd& op, const Block& block, int64_t head, const float* grad, const SsdBwdScratch& s) {
  const FloatTag d;
  const int64_t width = op.x.dim(2);
  if (s.tiles) {
    multiply_dx_on_tiles(op, block, grad, s);
  } else if (grad) {
    transpose(grad, s.n, s.state_size / s.n, op.b.dim(2), s.leaving, s.p);
  }
  const FloatVec skip = hn::Set(d, op.d_skip.as<float>()[head]);
  for_each_tile_column(width, [&](auto vecs, int64_t column) HWY_ATTR {
    for (int64_t t = 0; t < block.rows; t += kTileRows) {
      Accumulators<vecs()> tile;
      if (s.tiles) {
        tile.load(s.sums + t * s.sums_row + column, s.sums_row);
      } else {
        tile.zero();
        if (grad) {
          tile.add_product({s.b + t * s.n, s.n, 1}, s.leaving + column, s.p, op.b.dim(2));
          tile.scale(s.leave + t, 1);
        }
        tile.add_product({s.mask + t * s.q + t, 1, s.q}, s.dy + t * s.p + column, s.p, block.rows - t);
      }
      tile.scale(s.decays.step + t, 1);
      for (int i = 0; i < HWY_MIN(kTileRows, block.count - t); ++i) {
        float* to = op.dx.as<float>(block.first + t + i) + head * op.dx.stride(1) + column;
        const float* dy = s.dy + (t + i) * s.p + column;
        for (int j = 0; j < vecs(); ++j) {
          const int64_t at = j * lanes(), valid = width - column - at;
          const FloatVec v = hn::MulAdd(skip, hn::LoadU(d, dy + at), tile.v[i][j]);
          valid >= lanes() ? store(v, d, to + at) : store_n(v, d, to + at, valid);
        }
      }
    }
  });
}

// Row t of the block triangle: in, C.B and DX; out, M, W added to the other heads', and T over DX.
struct PairRow {
  const float* dots;
  float *dx_dots, *mask, *pairs;
};
// For whole vectors of s. `decay` is K, zero where s > t; `col_sum` adds up R where s < t, which `below` keeps.
template <class Keep>
HWY_INLINE void visit_pairs(const PairRow& row, int64_t from, FloatVec decay, FloatVec step, FloatVec& col_sum,
                            Keep&& below) {
  const FloatTag d;
  const FloatVec dots = hn::LoadU(d, row.dots + from), weighted = hn::Mul(decay, hn::LoadU(d, row.dx_dots + from));
  hn::StoreU(hn::Mul(decay, dots), d, row.mask + from);
  hn::StoreU(hn::MulAdd(weighted, step, hn::LoadU(d, row.pairs + from)), d, row.pairs + from);
  const FloatVec shared = below(hn::Mul(weighted, dots));
  hn::StoreU(hn::Mul(shared, step), d, row.dx_dots + from);
  col_sum = hn::Add(col_sum, shared);
}

// All rows of one head, tile row by tile row as prepare_mask of forward.
void visit_triangle(const Block& block, const SsdBwdScratch& s) {
  const FloatTag d;
  const SsdDecays& decays = s.decays;
  std::memset(s.col_sum, 0, static_cast<size_t>(s.q) * sizeof(float));
  for (int64_t t = 0; t < block.rows; ++t) s.diagonal[t] = s.dx_dots[t * s.q + t];
  for (int64_t first = 0; first < block.rows; first += kTileRows) {
    HWY_ALIGN float rise[HWY_MAX_BYTES / sizeof(float)] = {};
    for (int i = 0; first > 0 && i < kTileRows; ++i) {
      const float high = decays.high[first + i] - decays.high[first - 1],
                  low = decays.low[first + i] - decays.low[first - 1];
      rise[i] = HWY_MIN(high + low, 0.0f);
    }
    for (int64_t i = 0; i < kTileRows; i += lanes()) hn::Store(hn::Exp(d, hn::Load(d, rise + i)), d, rise + i);
    const auto row = [&](int i) HWY_ATTR -> PairRow {
      const int64_t at = (first + i) * s.q;
      return {s.dots + at, s.dx_dots + at, s.mask + at, s.pairs + at};
    };
    const int64_t split = first / lanes() * lanes();  // vectors before it lie left of the tile row
    for (int64_t from = 0; from < first + kTileRows; from += lanes()) {
      const FloatVec step = hn::LoadU(d, decays.step + from);
      FloatVec col_sum = hn::LoadU(d, s.col_sum + from);
      if (from < split) {
        const FloatVec fall = decay_from(decays, first - 1, from);
        for (int i = 0; i < kTileRows; ++i) {
          visit_pairs(row(i), from, hn::Mul(fall, hn::Set(d, rise[i])), step, col_sum,
                      [](FloatVec v) HWY_ATTR { return v; });
        }
      } else {
        for (int i = 0; i < kTileRows; ++i) {
          const int64_t t = first + i;
          const auto upto = hn::FirstN(d, static_cast<size_t>(HWY_MAX(0, t + 1 - from)));
          const auto below = hn::FirstN(d, static_cast<size_t>(HWY_MAX(0, t - from)));
          visit_pairs(row(i), from, hn::IfThenElseZero(upto, decay_from(decays, t, from)), step, col_sum,
                      [&](FloatVec v) HWY_ATTR { return hn::IfThenElseZero(below, v); });
        }
      }
      hn::StoreU(col_sum, d, s.col_sum + from);
    }
    const int64_t upto = first + kTileRows;  // register tiles stop here, others read zeros
    for (int i = 0; s.tiles && i < kTileRows; ++i)
      std::memset(s.mask + (first + i) * s.q + upto, 0, static_cast<size_t>(block.rows - upto) * sizeof(float));
  }
}

// through_t = sum_{s<t<=r} T_rs + sum_{r>=t} E_r, from the last token back, so no sum is a difference of others: the
// columns hold sum_{r>=t} T_rs.
void sum_through(const Block& block, const SsdBwdScratch& s) {
  const FloatTag d;
  std::memset(s.columns, 0, static_cast<size_t>(s.q) * sizeof(float));
  double entered = 0;
  for (int64_t t = block.count - 1; t >= 0; --t) {
    FloatVec sum = hn::Zero(d);
    for (int64_t from = 0; from < t; from += lanes()) {
      const FloatVec column = hn::Add(hn::LoadU(d, s.columns + from), hn::LoadU(d, s.dx_dots + t * s.q + from));
      hn::StoreU(column, d, s.columns + from);
      const int64_t left = t - from;
      sum =
          hn::Add(sum, left >= lanes() ? column : hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), column));
    }
    entered += static_cast<double>(s.entered[t]);
    s.through[t] = static_cast<float>(static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum))) + entered);
  }
}

// Derivative of a step by its raw value, in place from dt + dt_bias: that of softplus, zero where clamped, NaN where
// the raw value is.
void finish_slopes(const SsdBwd& op, float* values, int64_t count) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), low = hn::Set(d, op.dt_min), high = hn::Set(d, op.dt_max);
  for (int64_t i = 0; i < count; i += lanes()) {
    const FloatVec raw = hn::LoadU(d, values + i), free = softplus(d, raw);
    const auto clamped = hn::Or(hn::Lt(free, low), hn::Gt(free, high));
    const FloatVec slope = hn::IfThenElse(hn::IsNaN(raw), raw, sigmoid_times(d, raw, one));
    hn::StoreU(hn::IfThenZeroElse(clamped, slope), d, values + i);
  }
}

// u, ddt and the sums of a head; `across` is what flows through the whole block.
void finish_head(const SsdBwd& op, const Block& block, int64_t head, double across, const SsdBwdScratch& s,
                 SsdHeadSums& sums) {
  const double a = -std::exp(static_cast<double>(op.a_log.as<float>()[head]));
  for (int64_t t = 0; t < block.count; ++t) {
    const double step = static_cast<double>(s.decays.step[t]), left = static_cast<double>(s.left[t]),
                 dx_dot = static_cast<double>(s.diagonal[t]);
    const double u = static_cast<double>(s.through[t]) + across;
    const double along = left + static_cast<double>(s.col_sum[t]) + dx_dot * static_cast<double>(s.dots[t * s.q + t]);
    const double slope = (along + a * u) * static_cast<double>(s.slope[t]);
    op.ddt.as<float>(block.first + t)[head * op.ddt.stride(1)] = static_cast<float>(slope);
    sums.dt_bias += slope;
    sums.a_log += a * step * u;
    sums.d_skip += dx_dot;
    across += step * left;  // what later states take from this token flows through the next
  }
}

// <G, S>, padding included, which is zero.
double inner_product(const float* g, const float* state, int64_t count) {
  const FloatTag d;
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes()) sum = hn::MulAdd(hn::LoadU(d, g + i), hn::LoadU(d, state + i), sum);
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// Rows of a block, of `count` columns that begin at entry `part` of the second dimension, to FP32, padded with zeros.
template <class X>
void widen_rows(const View& from, const Block& block, int64_t part, float* to, int64_t stride) {
  std::memset(to, 0, static_cast<size_t>(block.rows * stride) * sizeof(float));
  for (int64_t t = 0; t < block.count; ++t)
    widen_row(FloatTag(), from.as<X>(block.first + t) + part * from.stride(1), from.dim(2),
              [&](int64_t i) { return to + t * stride + i; });
}
void load_rows(const View& from, const Block& block, int64_t part, float* to, int64_t stride) {
  from.dtype == DType::bf16 ? widen_rows<Bf16>(from, block, part, to, stride)
                            : widen_rows<float>(from, block, part, to, stride);
}

void store_rows(const float* from, int64_t stride, const Block& block, int64_t part, const MutView& to) {
  for (int64_t t = 0; t < block.count; ++t)
    std::memcpy(to.as<float>(block.first + t) + part * to.stride(1), from + t * stride,
                static_cast<size_t>(to.dim(2)) * sizeof(float));
}

// A state of the caller, or zeros, and back.
void read_state(const View& state, int64_t slot, int64_t head, const SsdBwdScratch& s, float* to) {
  std::memset(to, 0, static_cast<size_t>(s.state_size) * sizeof(float));
  if (!state) return;
  const float* from = state.as<float>(slot) + head * state.stride(1);
  for (int64_t p = 0; p < state.dim(2); ++p)
    std::memcpy(to + p * s.n, from + p * state.stride(2), static_cast<size_t>(state.dim(3)) * sizeof(float));
}
void write_state(const float* from, const SsdBwdScratch& s, int64_t slot, int64_t head, const MutView& state) {
  float* to = state.as<float>(slot) + head * state.stride(1);
  for (int64_t p = 0; p < state.dim(2); ++p)
    std::memcpy(to + p * state.stride(2), from + p * s.n, static_cast<size_t>(state.dim(3)) * sizeof(float));
}

// exp(L_Q - L_s) of a block.
void prepare_leave(const Block& block, const SsdBwdScratch& s) {
  for (int64_t t = 0; t < block.rows; t += lanes())
    hn::StoreU(decay_from(s.decays, block.count - 1, t), FloatTag(), s.leave + t);
}

// The state after a block from the one before it.
void advance_state(const SsdBwd& op, const Block& block, int64_t head, const float* from, float* to,
                   const SsdBwdScratch& s) {
  prepare_decays(op, block, head, s.decays);
  prepare_leave(block, s);
  load_rows(op.x, block, head, s.x, s.p);
  scale_rows(s.x, s.p, block.count, s.leave);
  scale_rows(s.x, s.p, block.count, s.decays.step);
  add_outer(op, s, block.count, s.decays.enter[block.count - 1], from, s.x, s.b, to);
}

// A block's neighbours: whether the state before it is nonzero, whether there is a gradient after it, and whether the
// gradient before it is needed.
struct Around {
  bool before, behind, wanted;
};

void differentiate_head(const SsdBwd& op, const Block& block, int64_t head, Around around, const float* state,
                        float* grad, const SsdBwdScratch& s, SsdHeadSums& sums) {
  prepare_decays(op, block, head, s.decays);
  prepare_leave(block, s);
  load_raw_steps(op, block.first, block.count, head, s.slope);
  finish_slopes(op, s.slope, block.count);
  load_rows(op.x, block, head, s.x, s.p);
  load_rows(op.dy, block, head, s.dy, s.p);
  multiply_lower(s, block.rows, s.dy, s.x, s.p, op.x.dim(2), s.x_t, s.dx_dots);
  visit_triangle(block, s);
  std::memset(s.entered, 0, static_cast<size_t>(s.q) * sizeof(float));
  std::memset(s.left, 0, static_cast<size_t>(s.q) * sizeof(float));
  if (around.behind) add_through_state(op, s, block.rows, s.x, grad, s.leave, s.b, s.decays.step, s.db, s.left);
  multiply_dx(op, block, head, around.behind ? grad : nullptr, s);
  if (around.before) add_through_state(op, s, block.rows, s.dy, state, s.decays.enter, s.c, s.ones, s.dc, s.entered);
  const float all = s.decays.enter[block.count - 1];
  const double across =
      around.before && around.behind ? static_cast<double>(all) * inner_product(grad, state, s.state_size) : 0;
  sum_through(block, s);
  finish_head(op, block, head, across, s, sums);
  if (!around.wanted) return;
  scale_rows(s.dy, s.p, block.count, s.decays.enter);
  add_outer(op, s, block.count, all, grad, s.dy, s.c, grad);
}

HWY_INLINE Block block_of(int64_t first, int64_t count) {
  return {first, count, (count + SsdFloats::kPad - 1) / SsdFloats::kPad * SsdFloats::kPad};
}

// Computes the states before every block but the first, in order. Returns the number of blocks.
int64_t keep_states(const SsdBwd& op, const SsdTask& task, const Seq& seq, const SsdBwdScratch& s) {
  const int64_t of_block = task.heads * s.state_size;
  int64_t blocks = 1, t = 0, count = 0;
  for (; t + (count = HWY_MIN(block_left(op, seq.pos0 + t), seq.len - t)) < seq.len; t += count, ++blocks) {
    const Block block = block_of(seq.start + t, count);
    load_rows(op.b, block, task.group, s.b, s.n);
    float* to = s.kept + blocks * of_block;
    std::memset(to, 0, static_cast<size_t>(of_block) * sizeof(float));
    for (int64_t i = 0; i < task.heads; ++i, to += s.state_size)
      advance_state(op, block, task.head + i, to - of_block, to, s);
  }
  return blocks;
}

void prepare_bwd_group(const SsdBwd& op, const Block& block, int64_t group, const SsdBwdScratch& s) {
  const auto clear = [&](float* matrix, int64_t row) {
    std::memset(matrix, 0, static_cast<size_t>(block.rows * row) * sizeof(float));
  };
  load_rows(op.b, block, group, s.b, s.n);
  load_rows(op.c, block, group, s.c, s.n);
  multiply_lower(s, block.rows, s.c, s.b, s.n, op.b.dim(2), s.b_t, s.dots);
  clear(s.db, s.n);
  clear(s.dc, s.n);
  clear(s.pairs, s.q);
}

// One sequence and some heads of a group: db and dc of these heads to rows of [T, G, N], the sums of head i to
// sums[3 * i].
void differentiate_task(const SsdBwd& op, const SsdTask& task, const MutView& db, const MutView& dc, float* sums,
                        const SsdBwdScratch& s) {
  const Seq& seq = op.seqs->seqs[static_cast<size_t>(task.seq)];
  for (int64_t t = 0; t < s.q; t += lanes()) hn::StoreU(hn::Set(FloatTag(), 1.0f), FloatTag(), s.ones + t);
  for (int64_t i = 0; i < task.heads; ++i) {
    read_state(op.state, seq.slot, task.head + i, s, s.kept + i * s.state_size);
    read_state(op.dstate, seq.slot, task.head + i, s, s.grad + i * s.state_size);
    s.totals[i] = {};
  }
  const bool carried = static_cast<bool>(op.state), asked = static_cast<bool>(op.dstate);
  const int64_t blocks = seq.len ? keep_states(op, task, seq, s) : 0;
  int64_t end = seq.len;
  for (int64_t k = blocks - 1; k >= 0; --k) {
    const int64_t begin = HWY_MAX(0, end - 1 - (seq.pos0 + end - 1) % op.chunk % kSsdBlock);
    const Block block = block_of(seq.start + begin, end - begin);
    prepare_bwd_group(op, block, task.group, s);
    for (int64_t i = 0; i < task.heads; ++i) {
      const Around around{.before = k > 0 || carried, .behind = k < blocks - 1 || asked, .wanted = k > 0 || asked};
      differentiate_head(op, block, task.head + i, around, s.kept + (k * task.heads + i) * s.state_size,
                         s.grad + i * s.state_size, s, s.totals[i]);
    }
    add_pairs(op, s, block.rows);
    store_rows(s.db, s.n, block, task.group, db);
    store_rows(s.dc, s.n, block, task.group, dc);
    end = begin;
  }
  for (int64_t i = 0; i < task.heads; ++i) {
    if (asked) write_state(s.grad + i * s.state_size, s, seq.slot, task.head + i, op.dstate);
    sums[3 * i] = static_cast<float>(s.totals[i].dt_bias);
    sums[3 * i + 1] = static_cast<float>(s.totals[i].a_log);
    sums[3 * i + 2] = static_cast<float>(s.totals[i].d_skip);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace braid {
namespace {

// How a call is cut: by shape and sequences, never by threads. Few groups are cut into parts of their heads, each with
// its own db and dc.
struct Cut {
  int64_t in_group, parts, heads, tasks, blocks, scratch, sums, partial;  // the last three in floats
  Cut(const packed::Kernel* tiles, const SsdBwd& op) {
    const int64_t groups = op.b.dim(1), sequences = std::ssize(op.seqs->seqs);
    in_group = op.x.dim(1) / groups;
    const int64_t wanted = 4 / std::min<int64_t>(groups, 4);  // parts of a group that has as many heads
    heads = (in_group + wanted - 1) / wanted;
    parts = (in_group + heads - 1) / heads;
    tasks = sequences * groups * parts;
    int64_t longest = 1;  // an empty sequence has a state as well
    for (const Seq& seq : op.seqs->seqs) longest = std::max(longest, seq.len + seq.pos0 % op.chunk);
    const int64_t of_chunk = (op.chunk + kSsdBlock - 1) / kSsdBlock;  // blocks
    blocks = (longest + op.chunk - 1) / op.chunk * of_chunk;
    scratch = SsdBwdScratch(op, tiles, heads, blocks, nullptr).used();
    sums = 3 * sequences * op.x.dim(1);
    partial = op.b.count();
  }
};

// x += y over the rows of a sequence.
void add_rows(Ctx& ctx, const Seq& seq, const View& y, const MutView& x) {
  const int64_t groups = x.dim(1), states = x.dim(2);
  sys::parallel_for(ctx.threads, seq.len, 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = seq.start + begin; t < seq.start + end; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        float* to = x.as<float>(t) + g * x.stride(1);
        const float* from = y.as<float>(t) + g * y.stride(1);
        for (int64_t n = 0; n < states; ++n) to[n] += from[n];
      }
    }
  });
}

}  // namespace

HWY_EXPORT(differentiate_task);

int64_t ssd_bwd_workspace(const packed::Kernel* tiles, const SsdBwd& op, int threads) {
  const Cut cut(tiles, op);
  return (cut.scratch * threads + cut.sums + 2 * (cut.parts - 1) * cut.partial) * static_cast<int64_t>(sizeof(float));
}

void ssd_bwd_blocks(const packed::Kernel* tiles, Ctx& ctx, const SsdBwd& op, std::span<std::byte> workspace) {
  const Cut cut(tiles, op);
  const int64_t groups = op.b.dim(1), heads = op.x.dim(1), of_seq = groups * cut.parts;
  float* const scratch = reinterpret_cast<float*>(workspace.data());
  float* const sums = scratch + cut.scratch * ctx.threads;
  float* const partials = sums + cut.sums;
  const auto partial = [&](int64_t part, int64_t which) {
    return mut_view_of(partials + (2 * (part - 1) + which) * cut.partial, op.b.shape);
  };
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), cut.tasks, [&](int thread, int64_t i) {
    const SsdBwdScratch s(op, tiles, cut.heads, cut.blocks, scratch + thread * cut.scratch);
    const int64_t seq = i / of_seq, group = i % of_seq / cut.parts, part = i % cut.parts;
    const int64_t head = group * cut.in_group + part * cut.heads;
    const SsdTask task{seq, group, head, std::min(cut.heads, (group + 1) * cut.in_group - head)};
    HWY_DYNAMIC_DISPATCH(differentiate_task)
    (op, task, part ? partial(part, 0) : op.db, part ? partial(part, 1) : op.dc, sums + 3 * (seq * heads + head), s);
  });
  for (int64_t part = 1; part < cut.parts; ++part) {
    for (const Seq& seq : op.seqs->seqs) {
      add_rows(ctx, seq, partial(part, 0), op.db);
      add_rows(ctx, seq, partial(part, 1), op.dc);
    }
  }
  const MutView* const totals[] = {&op.ddt_bias, &op.da_log, &op.dd_skip};
  for (int64_t i = 0; i < cut.sums; ++i) {  // sequence by sequence
    const MutView& total = *totals[i % 3];
    total.as<float>()[i / 3 % heads * total.stride(0)] += sums[i];
  }
}

}  // namespace braid
#endif
