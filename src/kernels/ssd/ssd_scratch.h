// Scratch of one thread of ssd_fwd_cpu.cc, in floats, laid out for any target. A matrix "in column panels" keeps a few
// vectors of every row before the next columns, one "in row panels" a few rows of every column: a tile reads both in
// sequence.
#pragma once
#include <algorithm>

#include "kernels/ssd/ssd.h"

namespace braid {

struct SsdScratch {
  static constexpr int64_t kPad = 16;  // every target's vectors and tiles divide this
  int64_t heads, block, rows, row_stride, width, states;
  float* dots;       // C.B [Q, Q]
  float* mask;       // M [Q, Q]
  float* c;          // c [Q, N]
  float* b;          // b' [N, Q] in row panels
  float* b_columns;  // b' [N, Q] in column panels
  float* x;          // x [Q, P] of every head of the task, in column panels
  float* state;      // S' [N, P] of every head of the task, in column panels
  float* step;       // d [Q]
  float* high;       // L [Q], rounded,
  float* low;        // and what rounding lost: L may be large where its differences are small
  float* enter;      // exp(L) [Q]

  // A null base measures only.
  SsdScratch(const SsdFwd& op, int64_t heads_of_task, float* base)
      : heads(heads_of_task),
        block(std::min(op.chunk, kSsdBlock)),
        rows(round_up(block)),
        row_stride(rows + kPad),  // no power of two, and room for a vector that starts on the diagonal
        width(round_up(op.x.dim(2))),
        states(round_up(op.b.dim(2))),
        base_(base) {
    dots = take(rows * row_stride);
    mask = take(rows * row_stride);
    c = take(rows * states);
    b = take(states * rows);
    b_columns = take(states * rows);
    x = take(heads * rows * width);
    state = take(heads * states * width);
    for (float** vector : {&step, &high, &low, &enter}) *vector = take(row_stride);
  }
  int64_t floats() const { return used_; }

 private:
  static int64_t round_up(int64_t n) { return (n + kPad - 1) / kPad * kPad; }
  float* take(int64_t count) {
    used_ += count;
    return base_ ? base_ + used_ - count : nullptr;
  }
  float* base_;
  int64_t used_ = 0;
};

// The part of a call that one task does.
struct SsdTask {
  int64_t seq = 0, group = 0, head = 0, heads = 0;
};

}  // namespace braid
