// Rows of linear on packed operands (math/packed.h). Forward and dx pack the tokens once for all tasks; a task is a
// block of y and packs its own part of w, which stays in L2 while the tokens stream by. dw packs x once; a task is a
// part of dw that stays in a cache while the pieces of the token grid are added in order.
#include <array>

#include "kernels/linear/linear_blocking.h"
#include "kernels/linear/linear_rows.h"
#include "math/packed.h"
#include "math/packed_weight.h"
#include "math/pieces.h"

namespace braid {
namespace {

using packed::Side;

constexpr int64_t kRowsChunk = 128;  // whose sums a thread finishes before it continues
constexpr int64_t kBiasRows = 256;   // whose gradients are added up at a time

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
  const packed::Blocking* blocking;
};
Problem problem_of(const LinearFwd& op) {
  return {packed::along(op.x), {op.w, true}, op.x.dim(0), op.w.rows, op.w.cols, op.bias, op.y, op.blocking};
}
Problem problem_of(const LinearBwdData& op) {
  return {packed::along(op.dy), {op.w, false}, op.dy.dim(0), op.w.cols, op.w.rows, {}, op.dx, op.blocking};
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Tasks are blocks of y; each reads the panels of its tokens and packs its own part of w.
packed::Blocking blocking_of(packed::Class c, int threads, const Problem& p, int64_t tokens) {
  if (p.blocking) return *p.blocking;
  const bool fwd = p.w.along;
  return braid::blocking_of({.c = c,
                             .way = fwd ? packed::Way::fwd : packed::Way::data,
                             .threads = threads,
                             .tokens = tokens,
                             .w_rows = fwd ? p.cols : p.depth,
                             .w_cols = fwd ? p.depth : p.cols});
}

// The tokens of one pass in panels, and the scratch of a thread: a depth block of w in panels, where y is BF16 sums,
// and where w is quantised its decoded values.
struct Layout {
  packed::Whole x;
  packed::Blocking grid;
  int64_t w_bytes, sum_rows, sum_bytes, own_bytes;
  Layout(packed::Class c, int threads, const Problem& p, int64_t tokens) {
    x.kernel = packed::kernel_of(c);
    x.n = std::clamp<int64_t>(tokens, 1, kPackedTokens);
    x.depth = p.depth;
    grid = blocking_of(c, threads, p, x.n);
    x.block = packed::block_depth(p.depth, grid.depth);
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
                                   .add = k > 0,
                                   .ahead = l.grid.ahead});
      if (k + depth == p.depth) finish_rows(p, y, rows, sums, stride);
    }
  }
}

// `team` of the threads that the workspace is for.
void run_packed(packed::Class c, int threads, int team, const Problem& p, std::span<std::byte> workspace) {
  for (int64_t t = 0; t < p.tokens; t += kPackedTokens) {
    Layout l(c, threads, p, p.tokens - t);
    l.x.data = workspace.data();
    std::byte* own = workspace.data() + l.shared_bytes();
    const packed::Source x = packed::from(p.x, t, 0);
    const MutView y = p.y.slice(0, t, l.x.n);
    sys::parallel_for(team, l.x.panels(), 1, [&](int64_t begin, int64_t end) { l.x.pack_panels(x, begin, end); });
    const int64_t row_tasks = (l.x.n + l.grid.rows - 1) / l.grid.rows;
    const int64_t col_tasks = (p.cols + l.grid.cols - 1) / l.grid.cols;
    sys::parallel_tasks(team, col_tasks * row_tasks, [&](int thread, int64_t i) {
      const int64_t row = i % row_tasks * l.grid.rows, col = i / row_tasks * l.grid.cols;
      const Part part{row, std::min(l.grid.rows, l.x.n - row), col, std::min(l.grid.cols, p.cols - col)};
      compute(l, p, y, part, own + thread * l.own_bytes);
    });
  }
}

// The last pass may have fewer tokens, and a different grid.
int64_t workspace_of(packed::Class c, int threads, const Problem& p) {
  const auto bytes = [&](int64_t tokens) {
    const Layout l(c, threads, p, tokens);
    return l.shared_bytes() + threads * l.own_bytes;
  };
  return std::max(bytes(p.tokens), bytes(p.tokens % kPackedTokens == 0 ? p.tokens : p.tokens % kPackedTokens));
}

packed::Blocking blocking_of(packed::Class c, int threads, const LinearBwdWeight& op) {
  if (op.blocking) return *op.blocking;
  return braid::blocking_of({.c = c,
                             .way = packed::Way::weight,
                             .threads = threads,
                             .tokens = op.x.dim(0),
                             .w_rows = op.dw.dim(0),
                             .w_cols = op.dw.dim(1)});
}

// A gradient and how it is cut.
struct Gradient {
  packed::Kernel kernel;
  packed::Blocking grid;
  const LinearBwdWeight& op;
  Gradient(packed::Class c, int threads, const LinearBwdWeight& of)
      : kernel(packed::kernel_of(c)), grid(blocking_of(c, threads, of)), op(of) {}
  int64_t own_bytes() const {
    return aligned(packed_bytes(kernel, Side::rows, grid.rows, std::max(kPieceTokens, grid.depth)));
  }
};

// body(first row, rows) for the rows of one product: a piece of the token grid, or a run of them.
template <class Body>
void for_each_depth(const Gradient& g, Body&& body) {
  const LinearBwdWeight& op = g.op;
  for_each_run([&](auto&& piece) { for_each_piece(op.seqs, op.x.dim(0), piece); }, g.kernel.step, g.grid.depth, body);
}

// x of all runs in consecutive panels, and their offsets.
int64_t pieces_bytes(const Gradient& g) {
  int64_t bytes = 0;
  for_each_depth(g, [&](int64_t, int64_t n) { bytes += packed_bytes(g.kernel, Side::cols, g.op.x.dim(1), n); });
  return bytes;
}

void pack_pieces(const Gradient& g, int64_t begin, int64_t end, std::byte* out) {
  const packed::Kernel& kernel = g.kernel;
  const LinearBwdWeight& op = g.op;
  const int64_t depth = op.x.dim(1), first = begin * kernel.cols, last = std::min(end * kernel.cols, depth);
  const packed::Source x = packed::across(op.x);
  for_each_depth(g, [&](int64_t t, int64_t n) {
    packed::pack(kernel, Side::cols, packed::from(x, first, t), last - first, n,
                 out + packed_bytes(kernel, Side::cols, first, n));
    out += packed_bytes(kernel, Side::cols, depth, n);
  });
}

// dbias from row `first` of dw on: += the sums of a piece over its tokens, piece by piece.
void add_bias_gradient(const LinearBwdWeight& op, int64_t first, int64_t rows) {
  float* const dbias = op.dbias.as<float>() + first;
  for_each_piece(op.seqs, op.x.dim(0), [&](int64_t t, int64_t n) {
    for (int64_t row = 0; row < rows; row += kBiasRows) {
      const int64_t some = std::min(kBiasRows, rows - row);
      std::array<float, kBiasRows> sums{};
      packed::add_depths(packed::from(packed::across(op.dy), first + row, t), some, n, sums.data());
      for (int64_t i = 0; i < some; ++i) dbias[row + i] += sums[static_cast<size_t>(i)];
    }
  });
}

// Rows [row, row + rows) of dw by columns [col, col + cols).
void weight_part(const Gradient& g, const Part& part, const std::byte* x, std::byte* own) {
  const packed::Kernel& kernel = g.kernel;
  const LinearBwdWeight& op = g.op;
  const packed::Source dy = packed::across(op.dy);
  for_each_depth(g, [&](int64_t t, int64_t n) {
    packed::pack(kernel, Side::rows, packed::from(dy, part.row, t), part.rows, n, own);
    packed::product(kernel, {.a = own,
                             .b = x + packed_bytes(kernel, Side::cols, part.col, n),
                             .m = part.rows,
                             .n = part.cols,
                             .depth = n,
                             .y = op.dw.as<float>(part.row) + part.col,
                             .y_stride = op.dw.stride(0),
                             .add = true,
                             .ahead = g.grid.ahead});
    x += packed_bytes(kernel, Side::cols, op.x.dim(1), n);
  });
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
  const Gradient g(c, threads, op);
  return aligned(pieces_bytes(g)) + threads * g.own_bytes();
}

void linear_packed(packed::Class c, Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  run_packed(c, ctx.threads, sys::team_for(ctx.threads, op.flops()), problem_of(op), workspace);
}
void linear_packed(packed::Class c, Ctx& ctx, const LinearBwdData& op, std::span<std::byte> workspace) {
  run_packed(c, ctx.threads, sys::team_for(ctx.threads, op.flops()), problem_of(op), workspace);
}
void linear_packed(packed::Class c, Ctx& ctx, const LinearBwdWeight& op, std::span<std::byte> workspace) {
  const Gradient g(c, ctx.threads, op);
  const packed::Blocking& grid = g.grid;
  std::byte* x = workspace.data();
  std::byte* own = x + aligned(pieces_bytes(g));
  const int threads = sys::team_for(ctx.threads, op.flops());
  const int64_t rows = op.dw.dim(0), cols = op.dw.dim(1), panels = (cols + g.kernel.cols - 1) / g.kernel.cols;
  const int64_t row_tasks = (rows + grid.rows - 1) / grid.rows, col_tasks = (cols + grid.cols - 1) / grid.cols;
  sys::parallel_for(threads, panels, 1, [&](int64_t begin, int64_t end) { pack_pieces(g, begin, end, x); });
  sys::parallel_tasks(threads, row_tasks * col_tasks, [&](int thread, int64_t i) {
    const int64_t row = i / col_tasks * grid.rows, col = i % col_tasks * grid.cols;
    const Part part{row, std::min(grid.rows, rows - row), col, std::min(grid.cols, cols - col)};
    weight_part(g, part, x, own + thread * g.own_bytes());
    if (col == 0 && op.dbias) add_bias_gradient(op, row, part.rows);
  });
}

}  // namespace braid
