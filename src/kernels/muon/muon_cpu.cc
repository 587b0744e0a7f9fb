// Muon on a CPU, in FP32: products on packed operands (math/packed.h), of the symmetric ones only the lower triangle.
// The plain loops are quadratic where products are cubic. Tasks are blocks of columns that do not depend on each other,
// and the norm is summed row by row: the same on any number of threads.
#include <atomic>
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
  float* transposed;  // [more, less], where the matrix is tall
  float *a, *square;  // [less, less]
  double* squares;    // [less] of rows of x
  std::byte* panels;
  int64_t panel_bytes, bytes;
};

Scratch cut(const MuonStep& op, int threads, std::byte* base) {
  const int64_t less = std::min(op.w.dim(0), op.w.dim(1)), more = std::max(op.w.dim(0), op.w.dim(1));
  Scratch s{};
  s.less = less;
  s.more = more;
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + s.bytes : nullptr;
    s.bytes += aligned(bytes);
    return p;
  };
  for (float** matrix : {&s.x, &s.next}) *matrix = reinterpret_cast<float*>(take(less * more * 4));
  if (op.w.dim(0) > less) s.transposed = reinterpret_cast<float*>(take(less * more * 4));
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
  std::atomic<int64_t> next{0};
  sys::parallel(static_cast<int>(std::min<int64_t>(threads, blocks)), [&](int thread, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks;)
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
  constexpr auto kA = static_cast<float>(MuonStep::kA);
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

// to [cols, rows] = from [rows, cols] transposed, in square blocks that stay in L1.
void transpose(int threads, const float* from, int64_t rows, int64_t cols, float* to) {
  constexpr int64_t kSide = 32;
  sys::parallel_for(threads, cols, kSide, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; r += kSide) {
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t i = r; i < std::min(rows, r + kSide); ++i) to[c * rows + i] = from[i * cols + c];
      }
    }
  });
}

// m, and u into s.x, on its smaller side and of norm 1.
void direction(int threads, const MuonStep& op, const Scratch& s) {
  const int64_t rows = op.w.dim(0), cols = op.w.dim(1);
  const bool tall = rows > cols;
  float* u = tall ? s.transposed : s.x;
  const auto scale = static_cast<float>(op.grad_scale), less = static_cast<float>(1 - op.momentum),
             momentum = static_cast<float>(op.momentum);
  sys::parallel_for(threads, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* g = op.g.as<float>(i);
      float* m = op.m.as<float>(i);
      for (int64_t j = 0; j < cols; ++j) {
        const float value = scale * g[j];
        m[j] += less * (value - m[j]);
        u[i * cols + j] = op.nesterov ? value + momentum * (m[j] - value) : m[j];
      }
    }
  });
  if (tall) transpose(threads, u, rows, cols, s.x);
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

// w and its working copy from the orthogonal matrix x [M, N].
void apply(int threads, const MuonStep& op, const float* x) {
  const int64_t cols = op.w.dim(1);
  const auto keep = static_cast<float>(1 - op.lr * op.weight_decay), step = static_cast<float>(op.lr * op.scale);
  sys::parallel_for(threads, op.w.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* w = op.w.as<float>(i);
      for (int64_t j = 0; j < cols; ++j) w[j] = w[j] * keep - step * x[i * cols + j];
      if (!op.working) continue;
      for (int64_t j = 0; j < cols; ++j) op.working.as<Bf16>(i)[j] = to_bf16(w[j]);
    }
  });
}

}  // namespace

int64_t muon_step_workspace(const MuonStep& op, int threads) { return cut(op, threads, nullptr).bytes; }

void muon_step_packed(Ctx& ctx, const MuonStep& op, std::span<std::byte> workspace) {
  Scratch s = cut(op, ctx.threads, workspace.data());
  direction(ctx.threads, op, s);
  constexpr auto kB = static_cast<float>(MuonStep::kB), kC = static_cast<float>(MuonStep::kC);
  for (int64_t step = 0; step < MuonStep::kSteps; ++step) {
    square_of(ctx.threads, s, view_of(s.x, {s.less, s.more}), s.a);
    square_of(ctx.threads, s, view_of(s.a, {s.less, s.less}), s.square);
    for (int64_t i = 0; i < s.less * s.less; ++i) s.a[i] = kB * s.a[i] + kC * s.square[i];
    advance(ctx.threads, s);
    std::swap(s.x, s.next);
  }
  if (op.w.dim(0) > op.w.dim(1)) {
    transpose(ctx.threads, s.x, s.less, s.more, s.transposed);
    return apply(ctx.threads, op, s.transposed);
  }
  apply(ctx.threads, op, s.x);
}

}  // namespace braid
