// Rows of linear on the engines of math/product.h.
#include <algorithm>

#include "kernels/linear/linear_rows.h"

namespace braid {
namespace {

std::span<std::byte> part(std::span<std::byte> workspace, int64_t begin, int64_t bytes) {
  return workspace.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The packed rows of x, and the workspace of one thread.
int64_t shared_bytes(const ProductEngine& e, const LinearFwd& op) {
  return e.row_bytes ? aligned(std::min(op.x.dim(0), e.rows_max) * e.row_bytes(op.w)) : 0;
}
int64_t own_bytes(const ProductEngine& e, const LinearFwd& op) {
  return aligned(e.workspace(op.w, std::min(op.x.dim(0), e.rows_max)));
}

}  // namespace

const char* linear_engine_refusal(const ProductEngine& e, const LinearFwd& op) {
  if (op.x.dtype != e.x) return "x has another type";
  if (!op.x.rows_contiguous() || !op.y.rows_contiguous()) return "strided rows";
  return e.refusal(op.w);
}

int64_t linear_engine_workspace(const ProductEngine& e, const LinearFwd& op, int threads) {
  return shared_bytes(e, op) + threads * own_bytes(e, op);
}

void linear_fwd_engine(const ProductEngine& e, Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  const int64_t shared = shared_bytes(e, op), own = own_bytes(e, op);
  for (int64_t t = 0; t < op.x.dim(0); t += std::min(e.rows_max, op.x.dim(0))) {
    LinearFwd some = op;
    const int64_t rows = std::min(e.rows_max, op.x.dim(0) - t);
    some.x = op.x.slice(0, t, rows);
    some.y = op.y.slice(0, t, rows);
    if (e.pack) {
      sys::parallel_for(ctx.threads, (rows + e.block_rows - 1) / e.block_rows, 1,
                        [&](int64_t begin, int64_t end) { e.pack(some.x, some.w, begin, end, workspace.data()); });
    }
    const int64_t cols = e.task_cols(rows, op.w.rows, ctx.threads, op.limits());
    linear_tasks(ctx.threads, some, cols, [&](int thread, int64_t first, int64_t n) {
      e.product({.x = some.x,
                 .packed = workspace.data(),
                 .w = some.w.rows_of(first, n),
                 .y = some.y.slice(1, first, n),
                 .workspace = part(workspace, shared + thread * own, own),
                 .limits = &op.limits()});
    });
  }
}

}  // namespace braid
