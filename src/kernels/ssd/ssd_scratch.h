// Scratch of one thread of ssd_fwd_cpu.cc and of ssd_bwd_cpu.cc, in floats, laid out for any target.
#pragma once
#include <algorithm>

#include "kernels/ssd/ssd.h"
#include "math/packed.h"

namespace braid {

// A bump allocator. With a null base it only measures.
class SsdFloats {
 public:
  static constexpr int64_t kPad = 16;       // every target's vectors and tiles divide this
  static constexpr int64_t kPanelMax = 48;  // columns of a panel, of any target
  explicit SsdFloats(float* base) : base_(base) {}
  int64_t used() const { return used_; }
  static int64_t round_up(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

 protected:
  // Not a power of two, and room for a vector that starts on the diagonal.
  static int64_t row_of(int64_t n) { return round_up(n) + kPad; }
  float* take(int64_t count) {
    used_ += count;
    return base_ ? base_ + used_ - count : nullptr;
  }

 private:
  float* base_;
  int64_t used_ = 0;
};

// Of one head and block, [Q].
struct SsdDecays {
  float* step;   // d
  float* high;   // L, rounded,
  float* low;    // and its rounding error: L may be large where its differences are small
  float* enter;  // exp(L)
  int64_t size;
};

// Scratch of forward. A matrix "in column panels" stores a few vectors of every row before the next columns, one "in
// row panels" a few rows of every column: a tile reads both in sequence.
struct SsdScratch : SsdFloats {
  int64_t heads, block, rows, row_stride, width, states;
  bool stored;       // the state is not F32
  float* dots;       // C.B [Q, Q]
  float* mask;       // M [Q, Q]
  float* c;          // c [Q, N]
  float* b;          // b' [N, Q] in row panels
  float* b_columns;  // b' [N, Q] in column panels
  float* x;          // x [Q, P] of every head of the task, in column panels
  float* state;      // S' [N, P] of every head of the task, in column panels
  float* rows_read;  // S [as many rows as a column panel has columns, N], of a state that is not F32
  SsdDecays decays;

  SsdScratch(const SsdFwd& op, int64_t heads_of_task, float* base)
      : SsdFloats(base),
        heads(heads_of_task),
        block(std::min(op.chunk, kSsdBlock)),
        rows(round_up(block)),
        row_stride(row_of(block)),
        width(round_up(op.x.dim(2))),
        states(round_up(op.b.dim(2))),
        stored(op.state && op.state.dtype != DType::f32) {
    dots = take(rows * row_stride);
    mask = take(rows * row_stride);
    c = take(rows * states);
    b = take(states * rows);
    b_columns = take(states * rows);
    x = take(heads * rows * width);
    state = take(heads * states * width);
    rows_read = take(stored ? kPanelMax * states : 0);
    decays = {take(row_stride), take(row_stride), take(row_stride), take(row_stride), row_stride};
  }
};

// Gradients of one head that are summed over tokens.
struct SsdHeadSums {
  double dt_bias = 0, a_log = 0, d_skip = 0;
};

// Scratch of backward: plain matrices. Q rows or columns of a block; row strides are `q`, `p` and `n`.
struct SsdBwdScratch : SsdFloats {
  static constexpr int64_t kSumsFloats = sizeof(SsdHeadSums) / sizeof(float);
  const packed::Kernel* tiles;  // null: products in register tiles
  int64_t block, q, p, n, state_size;
  float* b;        // [Q, N]
  float* c;        // [Q, N]
  float* b_t;      // b' [N, Q]
  float* dots;     // C.B [Q, Q]
  float* pairs;    // sum over heads of DX_ts exp(L_t - L_s) d_s [Q, Q]
  float* db;       // [Q, N]
  float* dc;       // [Q, N]
  float* x;        // [Q, P] of one head, and so on
  float* x_t;      // x' [P, Q]
  float* dy;       // [Q, P]
  float* dx_dots;  // DX = dy x' [Q, Q], then T
  float* mask;     // C.B_ts exp(L_t - L_s) [Q, Q]
  float* leaving;  // G' [N, P]
  float* sums;     // of a product on tiles [Q or P, N or P], of row stride sums_row
  std::byte *packed_left, *packed_right;
  int64_t sums_row;
  float* slope;     // of softplus and clamp [Q]
  float* leave;     // exp(L_Q - L_s) [Q]
  float* ones;      // [Q]
  float* col_sum;   // sum_{t>s} R_ts [Q], with R_ts = C.B_ts exp(L_t - L_s) DX_ts
  float* diagonal;  // of DX [Q]
  float* columns;   // sums of T_rs = R_rs d_s over r [Q]
  float* through;   // pairs around t, and what enters at t or later: most of u [Q]
  float* entered;   // exp(L_t) dy_t S c_t [Q]
  float* left;      // exp(L_Q - L_s) x_s G b_s [Q]
  SsdDecays decays;
  float* grad;          // G [P, N] of every head of the task
  float* kept;          // S [P, N] before every block, of every head of the task
  SsdHeadSums* totals;  // of every head of the task

  SsdBwdScratch(const SsdBwd& op, const packed::Kernel* kernel, int64_t heads, int64_t blocks, float* base)
      : SsdFloats(base),
        tiles(kernel),
        block(std::min(op.chunk, kSsdBlock)),
        q(row_of(block)),
        p(row_of(op.x.dim(2))),
        n(row_of(op.b.dim(2))),
        state_size(round_up(op.x.dim(2)) * n) {
    const int64_t rows = round_up(block);
    for (float** matrix : {&b, &c, &db, &dc}) *matrix = take(rows * n);
    for (float** matrix : {&dots, &pairs, &dx_dots, &mask}) *matrix = take(rows * q);
    for (float** matrix : {&x, &dy}) *matrix = take(rows * p);
    b_t = take(round_up(op.b.dim(2)) * q);
    x_t = take(round_up(op.x.dim(2)) * q);
    leaving = take(round_up(op.b.dim(2)) * p);
    take_tile_space(round_up(std::max({block, op.x.dim(2), op.b.dim(2)})));
    for (float** vector : {&slope, &leave, &ones, &col_sum, &diagonal, &columns, &through, &entered, &left})
      *vector = take(q);
    decays = {take(q), take(q), take(q), take(q), q};
    grad = take(heads * state_size);
    kept = take(heads * blocks * state_size);
    totals = reinterpret_cast<SsdHeadSums*>(take(round_up(heads * kSumsFloats)));
  }

 private:
  // For products of at most `side` rows, columns and depth.
  void take_tile_space(int64_t side) {
    sums_row = row_of(side);
    sums = take(tiles ? side * sums_row : 0);
    const auto take_panels = [&](packed::Side which) {
      return reinterpret_cast<std::byte*>(
          take(tiles ? round_up(packed::packed_bytes(*tiles, which, side, side) / 4) : 0));
    };
    packed_left = take_panels(packed::Side::rows);
    packed_right = take_panels(packed::Side::cols);
  }
};

// One task's share of a call.
struct SsdTask {
  int64_t seq = 0, group = 0, head = 0, heads = 0;
};

}  // namespace braid
