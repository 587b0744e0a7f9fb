// Rows of linear on packed operands (math/packed.h). Forward and dx pack the tokens once for all tasks; a task is a
// block of y and packs its own part of w, which stays in L2 while the tokens stream by. dw packs x once; a task is a
// part of dw that stays in a cache while the pieces of the token grid are added in order.
#include <array>
#include <atomic>

#include "kernels/linear/linear_rows.h"
#include "math/packed.h"
#include "math/packed_weight.h"
#include "math/pieces.h"

namespace braid {
namespace {

using packed::Side;

constexpr int64_t kRowsMax = 2048;                   // tokens packed at a time
constexpr int64_t kRowsChunk = 128;                  // whose sums a thread finishes before it continues
constexpr int64_t kColGrain = 96, kColsMax = 384;    // of a task: every kernel's width divides the grain
constexpr int64_t kTaskBytes = int64_t{1280} << 10;  // of a depth block of w in panels, unless the grain needs more
constexpr int64_t kSumRows = 512;                    // of a task whose sums wait for the next depth block
constexpr int64_t kTasksAThread = 4;
// Of dw in one task, at most. Every kernel's widths divide an eighth of the rows and a quarter of the columns.
constexpr int64_t kGradRows = 256, kGradCols = 768;

// A class takes BF16 where the operand that selects it is BF16.
const char* refusal_of(packed::Class c, DType names) {
  if ((names == DType::f32) != (c == packed::Class::f32)) return "operand type of another class";
  return packed::refusal(c);
}
bool number(DType t) { return t == DType::f32 || t == DType::bf16; }

// y [tokens, cols] = x w, with both operands as stored.
struct Problem {
  packed::Source x;
  packed::WeightOperand w;
  int64_t tokens, cols, depth;
  View bias;
  MutView y;
};
Problem problem_of(const LinearFwd& op) {
  return {packed::along(op.x), {op.w, true}, op.x.dim(0), op.w.rows, op.w.cols, op.bias, op.y};
}
Problem problem_of(const LinearBwdData& op) {
  return {packed::along(op.dy), {op.w, false}, op.dy.dim(0), op.w.cols, op.w.rows, {}, op.dx};
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Tasks are blocks of y; each reads the panels of its tokens and packs its own part of w.
struct Grid {
  int64_t rows, cols;
};

// The grid that reads least: packing w costs about three times as much as reading panels of x.
Grid grid_of(const packed::Kernel& kernel, int threads, const Problem& p, int64_t tokens) {
  const int64_t block = packed::block_depth(p.depth), rows_max = block < p.depth ? kSumRows : kRowsMax;
  const int64_t cols_max =
      std::clamp(kTaskBytes / (block * kernel.value_bytes) / kColGrain * kColGrain, kColGrain, kColsMax);
  Grid best{};
  double best_cost = 0;
  for (int64_t parts = 1; best.rows == 0 || tokens / parts >= kRowsChunk; parts *= 2) {
    const int64_t rows = (tokens + parts * 32 - 1) / (parts * 32) * 32;
    const int64_t row_tasks = (tokens + rows - 1) / rows,
                  want = std::max<int64_t>(1, kTasksAThread * threads / row_tasks);
    const int64_t cols = std::clamp((p.cols / want + kColGrain - 1) / kColGrain * kColGrain, kColGrain, cols_max);
    const int64_t col_tasks = (p.cols + cols - 1) / cols;
    const double idle = col_tasks * row_tasks < 2 * threads ? 1e12 : 0;
    const double cost = static_cast<double>(tokens * col_tasks) + 3.0 * static_cast<double>(p.cols * row_tasks) + idle;
    if (rows <= rows_max && (best.rows == 0 || cost < best_cost)) best = {rows, cols}, best_cost = cost;
  }
  return best;
}

// The tokens of one pass in panels, and the scratch of a thread: a depth block of w in panels, where y is BF16 sums,
// and where w is quantised its decoded values.
struct Layout {
  packed::Whole x;
  Grid grid;
  int64_t w_bytes, sum_rows, sum_bytes, own_bytes;
  Layout(packed::Class c, int threads, const Problem& p, int64_t tokens) {
    x.kernel = packed::kernel_of(c);
    x.n = std::clamp<int64_t>(tokens, 1, kRowsMax);
    x.depth = p.depth;
    x.block = packed::block_depth(p.depth);
    grid = grid_of(x.kernel, threads, p, x.n);
    w_bytes = aligned(packed::packed_bytes(x.kernel, Side::cols, grid.cols, x.block));
    sum_rows = p.y.dtype == DType::f32 ? 0 : x.block < p.depth ? grid.rows : std::min(kRowsChunk, grid.rows);
    sum_bytes = aligned(sum_rows * grid.cols * static_cast<int64_t>(sizeof(float)));
    own_bytes = w_bytes + sum_bytes + packed::scratch_bytes(p.w, grid.cols, x.block);
  }
  int64_t shared_bytes() const { return aligned(x.bytes()); }
};

// A part of y.
struct Part {
  int64_t row, rows, col, cols;
};

// From the sums of a part to y, which may be the same memory.
void finish_rows(const Problem& p, const MutView& y, const Part& part, float* sums, int64_t stride) {
  packed::scale(p.w.w.global, part.rows, part.cols, sums, stride);
  const bool direct = y.dtype == DType::f32;
  const float* bias = p.bias ? p.bias.as<float>() + part.col : nullptr;
  if (direct && !bias) return;
  for (int64_t m = 0; m < part.rows; ++m) {
    const float* row = sums + m * stride;
    if (direct) {
      packed::finish(row, bias, part.cols, y.as<float>(part.row + m) + part.col);
    } else {
      packed::finish(row, bias, part.cols, y.as<Bf16>(part.row + m) + part.col);
    }
  }
}

// A part of y, depth block by depth block of w, each of which stays in L2 while the tokens stream by.
void compute(const Layout& l, const Problem& p, const MutView& y, const Part& part, std::byte* own) {
  const bool direct = y.dtype == DType::f32;
  auto* const own_sums = reinterpret_cast<float*>(own + l.w_bytes);
  const int64_t stride = direct ? y.stride(0) : l.grid.cols;
  for (int64_t k = 0; k < p.depth; k += l.x.block) {
    const int64_t depth = l.x.depth_at(k);
    packed::pack(l.x.kernel, p.w, {.i = part.col, .n = part.cols, .k = k, .depth = depth},
                 own + l.w_bytes + l.sum_bytes, own);
    for (int64_t m = 0; m < part.rows; m += kRowsChunk) {
      const Part rows{part.row + m, std::min(kRowsChunk, part.rows - m), part.col, part.cols};
      float* const sums = direct ? y.as<float>(rows.row) + part.col : own_sums + m % l.sum_rows * stride;
      packed::product(l.x.kernel, {.a = l.x.at(rows.row, k),
                                   .b = own,
                                   .m = rows.rows,
                                   .n = part.cols,
                                   .depth = depth,
                                   .y = sums,
                                   .y_stride = stride,
                                   .add = k > 0});
      if (k + depth == p.depth) finish_rows(p, y, rows, sums, stride);
    }
  }
}

// `team` of the threads that the workspace is for.
void run_packed(packed::Class c, int threads, int team, const Problem& p, std::span<std::byte> workspace) {
  for (int64_t t = 0; t < p.tokens; t += kRowsMax) {
    Layout l(c, threads, p, p.tokens - t);
    l.x.data = workspace.data();
    std::byte* own = workspace.data() + l.shared_bytes();
    const packed::Source x = packed::from(p.x, t, 0);
    const MutView y = p.y.slice(0, t, l.x.n);
    sys::parallel_for(team, l.x.panels(), 1, [&](int64_t begin, int64_t end) { l.x.pack_panels(x, begin, end); });
    const int64_t row_tasks = (l.x.n + l.grid.rows - 1) / l.grid.rows;
    const int64_t col_tasks = (p.cols + l.grid.cols - 1) / l.grid.cols;
    std::atomic<int64_t> next{0};
    sys::parallel(team, [&](int thread, int) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < col_tasks * row_tasks;) {
        const int64_t row = i % row_tasks * l.grid.rows, col = i / row_tasks * l.grid.cols;
        const Part part{row, std::min(l.grid.rows, l.x.n - row), col, std::min(l.grid.cols, p.cols - col)};
        compute(l, p, y, part, own + thread * l.own_bytes);
      }
    });
  }
}

// The last pass may have fewer tokens, and a different grid.
int64_t workspace_of(packed::Class c, int threads, const Problem& p) {
  const auto bytes = [&](int64_t tokens) {
    const Layout l(c, threads, p, tokens);
    return l.shared_bytes() + threads * l.own_bytes;
  };
  return std::max(bytes(p.tokens), bytes(p.tokens % kRowsMax == 0 ? p.tokens : p.tokens % kRowsMax));
}

// body(first row, rows) for the rows of one product: a piece of the token grid, or a run of them.
template <class Body>
void for_each_depth(const packed::Kernel& kernel, const LinearBwdWeight& op, Body&& body) {
  for_each_run([&](auto&& piece) { for_each_piece(op.seqs, op.x.dim(0), piece); }, kernel.step, kernel.chain, body);
}

// x of all runs in consecutive panels, and their offsets.
int64_t pieces_bytes(const packed::Kernel& kernel, const LinearBwdWeight& op) {
  int64_t bytes = 0;
  for_each_depth(kernel, op, [&](int64_t, int64_t n) { bytes += packed_bytes(kernel, Side::cols, op.x.dim(1), n); });
  return bytes;
}

void pack_pieces(const packed::Kernel& kernel, const LinearBwdWeight& op, int64_t begin, int64_t end, std::byte* out) {
  const int64_t depth = op.x.dim(1), first = begin * kernel.cols, last = std::min(end * kernel.cols, depth);
  const packed::Source x = packed::across(op.x);
  for_each_depth(kernel, op, [&](int64_t t, int64_t n) {
    packed::pack(kernel, Side::cols, packed::from(x, first, t), last - first, n,
                 out + packed_bytes(kernel, Side::cols, first, n));
    out += packed_bytes(kernel, Side::cols, depth, n);
  });
}

// dbias from row `first` of dw on: += the sums of a piece over its tokens, piece by piece.
void add_bias_gradient(const LinearBwdWeight& op, int64_t first, int64_t rows) {
  float* const dbias = op.dbias.as<float>() + first;
  for_each_piece(op.seqs, op.x.dim(0), [&](int64_t t, int64_t n) {
    std::array<float, kGradRows> sums{};
    packed::add_depths(packed::from(packed::across(op.dy), first, t), rows, n, sums.data());
    for (int64_t i = 0; i < rows; ++i) dbias[i] += sums[static_cast<size_t>(i)];
  });
}

// Rows [row, row + rows) of dw by columns [col, col + cols).
void weight_part(const packed::Kernel& kernel, const LinearBwdWeight& op, const Part& part, const std::byte* x,
                 std::byte* own) {
  const packed::Source dy = packed::across(op.dy);
  for_each_depth(kernel, op, [&](int64_t t, int64_t n) {
    packed::pack(kernel, Side::rows, packed::from(dy, part.row, t), part.rows, n, own);
    packed::product(kernel, {.a = own,
                             .b = x + packed_bytes(kernel, Side::cols, part.col, n),
                             .m = part.rows,
                             .n = part.cols,
                             .depth = n,
                             .y = op.dw.as<float>(part.row) + part.col,
                             .y_stride = op.dw.stride(0),
                             .add = true});
    x += packed_bytes(kernel, Side::cols, op.x.dim(1), n);
  });
}

// Tasks of dw of at most kGradRows by kGradCols: those with the least cost per thread, where reading a value of x and
// packing one of dy cost as much as this many products.
Grid grad_grid(const LinearBwdWeight& op, int threads) {
  constexpr double kReadX = 200, kPackDy = 600;
  const int64_t rows = op.dw.dim(0), cols = op.dw.dim(1);
  Grid best{};
  double best_cost = 0;
  for (int64_t r = kGradRows; r >= kGradRows / 8; r /= 2) {
    for (int64_t c = kGradCols; c >= kGradCols / 4; c /= 2) {
      const int64_t tasks = ((rows + r - 1) / r) * ((cols + c - 1) / c), rounds = (tasks + threads - 1) / threads;
      const auto m = static_cast<double>(std::min(r, rows)), n = static_cast<double>(std::min(c, cols));
      const double cost = static_cast<double>(rounds) * (m * n + kReadX * n + kPackDy * m);
      if (best.rows == 0 || cost < best_cost) best = {r, c}, best_cost = cost;
    }
  }
  return best;
}

int64_t grad_own_bytes(const packed::Kernel& kernel) {
  return aligned(packed_bytes(kernel, Side::rows, kGradRows, std::max(kPieceTokens, kernel.chain)));
}

}  // namespace

const char* linear_packed_supports(packed::Class c, const LinearFwd& op) {
  if (!op.train) return "not training";
  if (!number(op.x.dtype)) return "not F32 or BF16";
  if (!op.x.rows_contiguous() || !op.y.rows_contiguous()) return "strided rows";
  return refusal_of(c, op.x.dtype);
}
const char* linear_packed_supports(packed::Class c, const LinearBwdData& op) {
  if (!number(op.dy.dtype)) return "not F32 or BF16";
  if (!op.dy.rows_contiguous() || !op.dx.rows_contiguous()) return "strided rows";
  return refusal_of(c, op.wide || op.w.spec.format == Format::f32 ? DType::f32 : DType::bf16);
}
const char* linear_packed_supports(packed::Class c, const LinearBwdWeight& op) {
  if (!number(op.x.dtype) || !number(op.dy.dtype)) return "not F32 or BF16";
  if (!op.dy.rows_contiguous() || !op.x.rows_contiguous() || !op.dw.rows_contiguous()) return "strided rows";
  return refusal_of(c, op.x.dtype);
}

int64_t linear_packed_workspace(packed::Class c, const LinearFwd& op, int threads) {
  return workspace_of(c, threads, problem_of(op));
}
int64_t linear_packed_workspace(packed::Class c, const LinearBwdData& op, int threads) {
  return workspace_of(c, threads, problem_of(op));
}
int64_t linear_packed_workspace(packed::Class c, const LinearBwdWeight& op, int threads) {
  const packed::Kernel kernel = packed::kernel_of(c);
  return aligned(pieces_bytes(kernel, op)) + threads * grad_own_bytes(kernel);
}

void linear_packed(packed::Class c, Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  run_packed(c, ctx.threads, sys::team_for(ctx.threads, op.flops()), problem_of(op), workspace);
}
void linear_packed(packed::Class c, Ctx& ctx, const LinearBwdData& op, std::span<std::byte> workspace) {
  run_packed(c, ctx.threads, sys::team_for(ctx.threads, op.flops()), problem_of(op), workspace);
}
void linear_packed(packed::Class c, Ctx& ctx, const LinearBwdWeight& op, std::span<std::byte> workspace) {
  const packed::Kernel kernel = packed::kernel_of(c);
  std::byte* x = workspace.data();
  std::byte* own = x + aligned(pieces_bytes(kernel, op));
  const int threads = sys::team_for(ctx.threads, op.flops());
  const int64_t rows = op.dw.dim(0), cols = op.dw.dim(1);
  const Grid grid = grad_grid(op, threads);
  const int64_t row_tasks = (rows + grid.rows - 1) / grid.rows, col_tasks = (cols + grid.cols - 1) / grid.cols;
  sys::parallel_for(threads, (cols + kernel.cols - 1) / kernel.cols, 1,
                    [&](int64_t begin, int64_t end) { pack_pieces(kernel, op, begin, end, x); });
  std::atomic<int64_t> next{0};
  sys::parallel(threads, [&](int thread, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < row_tasks * col_tasks;) {
      const int64_t row = i / col_tasks * grid.rows, col = i % col_tasks * grid.cols;
      const Part part{row, std::min(grid.rows, rows - row), col, std::min(grid.cols, cols - col)};
      weight_part(kernel, op, part, x, own + thread * grad_own_bytes(kernel));
      if (col == 0 && op.dbias) add_bias_gradient(op, row, part.rows);
    }
  });
}

}  // namespace braid
