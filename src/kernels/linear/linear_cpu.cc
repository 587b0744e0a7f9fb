// Rows of linear that use tiles or integer dot products.
#include <algorithm>

#include "kernels/linear/linear_rows.h"
#include "math/codes_a8.h"
#include "math/codes_dot.h"
#include "sys/machine.h"

namespace braid {
namespace {

std::span<std::byte> part(std::span<std::byte> workspace, int64_t begin, int64_t bytes) {
  return workspace.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Of class codes_a8: the packed rows of x, and the workspace of one thread.
int64_t a8_shared(const LinearFwd& op) {
  return aligned(std::min(op.x.dim(0), codes::a8::kRowsMax) * codes::a8::row_bytes(op.w.spec, op.w.cols));
}
int64_t a8_own(const LinearFwd& op) { return aligned(codes::a8::workspace(op.x.dim(0))); }

// A step streams its weights: longer tasks keep what was prefetched, two for each thread balance well enough.
int64_t a8_task_cols(int64_t rows, int64_t cols, int threads, const Thresholds& t) {
  using codes::a8::kStripCols;
  constexpr int64_t kMany = 4 * kStripCols, kMost = 32 * kStripCols;
  if (rows > t.codes_task_rows) return kMany;
  const int64_t each = (cols / (2 * threads) + kStripCols - 1) / kStripCols * kStripCols;
  return std::clamp(each, kMany, kMost);
}

}  // namespace

const char* linear_tiles_supports(const LinearFwd& op) {
  if (!sys::machine().amx) return "no tiles";
  if (op.train) return "training";
  if (op.x.dtype != DType::bf16) return "x is not BF16";
  if (const char* reason = tiles::refusal(op.w)) return reason;
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

int64_t linear_tiles_workspace(const LinearFwd& op, int threads) {
  return aligned(tiles::packed_bytes(op.x.dim(0), op.w.cols)) + threads * aligned(tiles::workspace(op.x.dim(0)));
}

void linear_fwd_tiles(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace, const tiles::Walk& walk) {
  constexpr int64_t kTaskCols = 4 * tiles::kStripCols, kBlock = 16;
  const int64_t shared = aligned(tiles::packed_bytes(op.x.dim(0), op.w.cols));
  const int64_t own = aligned(tiles::workspace(op.x.dim(0)));
  for (int64_t t = 0; t < op.x.dim(0); t += tiles::kRowsMax) {
    LinearFwd some = op;
    const int64_t rows = std::min(tiles::kRowsMax, op.x.dim(0) - t);
    some.x = op.x.slice(0, t, rows);
    some.y = op.y.slice(0, t, rows);
    sys::parallel_for(ctx.threads, (rows + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
      tiles::pack(walk, some.x, some.w, begin, end, workspace.data());
    });
    linear_tasks(ctx.threads, some, kTaskCols, [&](int thread, int64_t first, int64_t n) {
      tiles::product(walk, workspace.data(), some.w.rows_of(first, n), some.y.slice(1, first, n),
                     part(workspace, shared + thread * own, own));
    });
  }
}

const char* linear_codes_supports(const LinearFwd& op) {
  if (op.codes != CodeDots::a16) return "not a step";
  if (op.x.dtype != DType::bf16) return "x is not BF16";
  if (const char* reason = codes::refusal(op.w)) return reason;
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

int64_t linear_codes_workspace(const LinearFwd& op, int) { return codes::packed_bytes(codes::kRowsMax, op.w.cols); }

void linear_fwd_codes(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  constexpr int64_t kTaskCols = 64;
  for (int64_t t = 0; t < op.x.dim(0); t += codes::kRowsMax) {
    LinearFwd some = op;
    const int64_t rows = std::min(codes::kRowsMax, op.x.dim(0) - t);
    some.x = op.x.slice(0, t, rows);
    some.y = op.y.slice(0, t, rows);
    codes::pack(some.x, some.w.spec, workspace.data());
    linear_tasks(ctx.threads, some, kTaskCols, [&](int, int64_t first, int64_t n) {
      codes::product(workspace.data(), some.w.rows_of(first, n), some.y.slice(1, first, n));
    });
  }
}

const char* linear_a8_supports(const LinearFwd& op) {
  if (op.codes != CodeDots::a8) return "activations are not rounded to 8 bits";
  if (op.x.dtype != DType::bf16) return "x is not BF16";
  if (const char* reason = codes::refusal(op.w)) return reason;
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

int64_t linear_a8_workspace(const LinearFwd& op, int threads) { return a8_shared(op) + threads * a8_own(op); }

void linear_fwd_a8(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  using namespace codes::a8;
  const int64_t shared = a8_shared(op), own = a8_own(op), row = row_bytes(op.w.spec, op.w.cols);
  for (int64_t t = 0; t < op.x.dim(0); t += kRowsMax) {
    LinearFwd some = op;
    const int64_t rows = std::min(kRowsMax, op.x.dim(0) - t);
    some.x = op.x.slice(0, t, rows);
    some.y = op.y.slice(0, t, rows);
    sys::parallel_for(ctx.threads, (rows + kBlockRows - 1) / kBlockRows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin * kBlockRows; m < std::min(end * kBlockRows, rows); m += kBlockRows) {
        const Bf16* block[kBlockRows];
        const int64_t n = std::min(kBlockRows, rows - m);
        for (int64_t r = 0; r < n; ++r) block[r] = some.x.as<Bf16>(m + r);
        pack(block, n, op.w.cols, op.w.spec, workspace.data() + m * row);
      }
    });
    const int64_t cols = a8_task_cols(rows, op.w.rows, ctx.threads, op.limits());
    linear_tasks(ctx.threads, some, cols, [&](int thread, int64_t first, int64_t n) {
      product(workspace.data(), some.w.rows_of(first, n), some.y.slice(1, first, n),
              part(workspace, shared + thread * own, own), op.limits());
    });
  }
}

}  // namespace braid
