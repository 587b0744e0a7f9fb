// Muon on a CPU, in FP32: products on packed operands (math/packed.h), of the symmetric ones only the lower triangle.
// The plain loops are quadratic where products are cubic. Tasks are blocks of columns that do not depend on each other,
// and the norm is summed row by row: the same on any number of threads.
#include <utility>

#include "kernels/muon/muon_rows.h"
#include "math/packed_weight.h"

namespace braid {
namespace {

constexpr int64_t kCols = 192;  // of a task

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The layout of the workspace; `less` and `more` are the sides of the matrix.
struct Scratch {
  int64_t less, more;
  float *x, *next;    // [less, more]
  float *a, *square;  // [less, less]
  double* squares;    // [less] of rows of x
  std::byte* panels;
  int64_t panel_bytes, bytes;
};

Scratch cut(const Orthogonalize& op, int threads, std::byte* base) {
  const int64_t less = std::min(op.x.dim(0), op.x.dim(1)), more = std::max(op.x.dim(0), op.x.dim(1));
  Scratch s{};
  s.less = less;
  s.more = more;
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + s.bytes : nullptr;
    s.bytes += aligned(bytes);
    return p;
  };
  for (float** matrix : {&s.x, &s.next}) *matrix = reinterpret_cast<float*>(take(less * more * 4));
  for (float** matrix : {&s.a, &s.square}) *matrix = reinterpret_cast<float*>(take(less * less * 4));
  s.squares = reinterpret_cast<double*>(take(less * 8));
  s.panel_bytes = packed::multiply_bytes(packed::wide_f32(), {}, less, kCols, more);
  s.panels = take(s.panel_bytes * threads);
  return s;
}

// body(first, n, space) for blocks of `cols` columns.
template <class Body>
void for_each_block(int threads, const Scratch& s, int64_t cols, const Body& body) {
  const int64_t blocks = (cols + kCols - 1) / kCols;
  sys::parallel_tasks(threads, blocks, [&](int thread, int64_t i) {
    body(i * kCols, std::min(kCols, cols - i * kCols),
         std::span(s.panels + thread * s.panel_bytes, static_cast<size_t>(s.panel_bytes)));
  });
}

// y [N, N] = x x^T with x [N, K]: computed below the diagonal and copied above.
void square_of(int threads, const Scratch& s, const View& x, float* y) {
  const int64_t side = x.dim(0);
  const packed::WeightOperand w{dense_weight(x), true};
  for_each_block(threads, s, side, [&](int64_t first, int64_t n, std::span<std::byte> space) {
    packed::multiply(packed::wide_f32(),
                     {.a = packed::from(packed::along(x), first, 0),
                      .w = w,
                      .rows = side - first,
                      .col = first,
                      .cols = n,
                      .depth = x.dim(1),
                      .y = y + first * side + first,
                      .y_stride = side},
                     space);
  });
  for (int64_t i = 0; i < side; ++i) {
    for (int64_t j = i + 1; j < side; ++j) y[i * side + j] = y[j * side + i];
  }
}

// s.next = kA x + a x, where s.a is already b A + c A A.
void advance(int threads, const Scratch& s) {
  constexpr auto kA = static_cast<float>(Orthogonalize::kA);
  const packed::Source a = packed::along(view_of(s.a, {s.less, s.less}));
  const packed::WeightOperand x{dense_weight(view_of(s.x, {s.less, s.more})), false};
  for_each_block(threads, s, s.more, [&](int64_t first, int64_t n, std::span<std::byte> space) {
    for (int64_t i = 0; i < s.less; ++i) {
      for (int64_t j = first; j < first + n; ++j) s.next[i * s.more + j] = kA * s.x[i * s.more + j];
    }
    packed::multiply(packed::wide_f32(),
                     {.a = a,
                      .w = x,
                      .rows = s.less,
                      .col = first,
                      .cols = n,
                      .depth = s.less,
                      .y = s.next + first,
                      .y_stride = s.more,
                      .add = true},
                     space);
  });
}

// The columns of `from` as the rows of `to`, in square blocks that stay in L1.
void transpose(int threads, const View& from, const MutView& to) {
  constexpr int64_t kSide = 32;
  const int64_t rows = from.dim(0);
  sys::parallel_for(threads, from.dim(1), kSide, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; r += kSide) {
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t i = r; i < std::min(rows, r + kSide); ++i) to.as<float>(c)[i] = from.as<float>(i)[c];
      }
    }
  });
}

void copy_rows(int threads, const View& from, const MutView& to) {
  sys::parallel_for(threads, from.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::copy_n(from.as<float>(i), from.dim(1), to.as<float>(i));
  });
}

// s.x of norm 1.
void normalize(int threads, const Scratch& s) {
  sys::parallel_for(threads, s.less, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      s.squares[i] = 0;
      for (int64_t j = 0; j < s.more; ++j)
        s.squares[i] += static_cast<double>(s.x[i * s.more + j]) * static_cast<double>(s.x[i * s.more + j]);
    }
  });
  double sum = 1e-20;
  for (int64_t i = 0; i < s.less; ++i) sum += s.squares[i];
  const auto inverse = static_cast<float>(1 / std::sqrt(sum));
  sys::parallel_for(threads, s.less * s.more, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) s.x[i] *= inverse;
  });
}

}  // namespace

void muon_direction_rows(Ctx& ctx, const MuonDirection& op, std::span<std::byte>) {
  const auto scale = static_cast<float>(op.grad_scale), less = static_cast<float>(1 - op.momentum),
             momentum = static_cast<float>(op.momentum);
  sys::parallel_for(ctx.threads, op.g.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float *g = op.g.as<float>(i), *m = op.m.as<float>(i);
      for (int64_t j = 0; j < op.g.dim(1); ++j) {
        const float value = scale * g[j];
        m[j] += less * (value - m[j]);
        g[j] = op.nesterov ? value + momentum * (m[j] - value) : m[j];
      }
    }
  });
}

int64_t orthogonalize_workspace(const Orthogonalize& op, int threads) { return cut(op, threads, nullptr).bytes; }

void orthogonalize_packed(Ctx& ctx, const Orthogonalize& op, std::span<std::byte> workspace) {
  Scratch s = cut(op, ctx.threads, workspace.data());
  const bool tall = op.x.dim(0) > op.x.dim(1);
  (tall ? transpose : copy_rows)(ctx.threads, op.x, mut_view_of(s.x, {s.less, s.more}));
  normalize(ctx.threads, s);
  constexpr auto kB = static_cast<float>(Orthogonalize::kB), kC = static_cast<float>(Orthogonalize::kC);
  for (int64_t step = 0; step < Orthogonalize::kSteps; ++step) {
    square_of(ctx.threads, s, view_of(s.x, {s.less, s.more}), s.a);
    square_of(ctx.threads, s, view_of(s.a, {s.less, s.less}), s.square);
    for (int64_t i = 0; i < s.less * s.less; ++i) s.a[i] = kB * s.a[i] + kC * s.square[i];
    advance(ctx.threads, s);
    std::swap(s.x, s.next);
  }
  (tall ? transpose : copy_rows)(ctx.threads, view_of(s.x, {s.less, s.more}), op.x);
}

void muon_apply_rows(Ctx& ctx, const MuonApply& op, std::span<std::byte>) {
  const int64_t cols = op.w.dim(1);
  const auto keep = static_cast<float>(1 - op.lr * op.weight_decay), step = static_cast<float>(op.lr * op.scale);
  sys::parallel_for(ctx.threads, op.w.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* x = op.x.as<float>(i);
      float* w = op.w.as<float>(i);
      for (int64_t j = 0; j < cols; ++j) w[j] = w[j] * keep - step * x[j];
      if (!op.working) continue;
      for (int64_t j = 0; j < cols; ++j) op.working.as<Bf16>(i)[j] = to_bf16(w[j]);
    }
  });
}

}  // namespace braid
