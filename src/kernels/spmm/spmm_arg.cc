// The gradient of max and min. Sources collect from rows in the order of rows, so threads divide channels, not rows: a
// block of 16 is a cache line of FP32, which no two threads share. Where there are fewer blocks than threads they
// divide the sources as well: each reads all of `arg` and adds what is for its own.
#include <algorithm>

#include "kernels/spmm/spmm_ref.h"
#include "kernels/spmm/spmm_rows.h"
#include "math/row_split.h"

namespace braid {
namespace {

constexpr int64_t kBlock = 16;

float number(const View& v, int64_t at) {
  return v.dtype == DType::bf16 ? to_float(v.as<Bf16>()[at]) : v.as<float>()[at];
}

float factor_of(const SpmmBwdArg& op, int64_t value) {
  if (op.op == EdgeOp::copy_e) return 0;
  if (op.op == EdgeOp::mul) return op.edge.as<float>()[value];
  return op.op == EdgeOp::div ? 1 / op.edge.as<float>()[value] : 1;
}

struct Range {
  int64_t begin, end;
  bool has(int64_t i) const { return i >= begin && i < end; }
};

// Of channels [first, last), for sources in `own`.
void collect_dx(const SpmmBwdArg& op, int64_t first, int64_t last, Range own) {
  const int64_t width = op.dy.dim(1), part = op.edge ? width / op.edge.dim(1) : width;
  const int64_t values = op.edge ? op.edge.dim(1) : 1;
  const int32_t *arg = op.arg.as<int32_t>(), *col = op.col.as<int32_t>();
  float* dx = op.dx.as<float>();
  for (int64_t j = own.begin; j < own.end; ++j) std::fill(dx + j * width + first, dx + j * width + last, 0.0f);
  float others[kBlock];  // what is for other sources: a branch would be mispredicted half the time
  std::fill(std::begin(others), std::end(others), 0.0f);
  for (int64_t i = 0; i < op.dy.dim(0); ++i) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t at = i * width + c, e = arg[at];
      if (e < 0) continue;
      float* to = own.has(col[e]) ? dx + col[e] * width + c : others + c % kBlock;
      *to += number(op.dy, at) * factor_of(op, e * values + c / part);
    }
  }
}

float slope_e(const SpmmBwdArg& op, int64_t e, int64_t c, int64_t value) {
  const int64_t width = op.dy.dim(1);
  switch (op.op) {
    case EdgeOp::copy_x:
      return 0;
    case EdgeOp::copy_e:
    case EdgeOp::add:
      return 1;
    case EdgeOp::sub:
      return -1;
    default:
      break;
  }
  const float x = number(op.x, op.col.as<int32_t>()[e] * width + c), edge = op.edge.as<float>()[value];
  return op.op == EdgeOp::mul ? x : -x / (edge * edge);
}

// An edge belongs to one row.
void spread_rows(const SpmmBwdArg& op, int64_t begin, int64_t end) {
  const int64_t width = op.dy.dim(1), values = op.dedge ? op.edge.dim(1) : 1, part = width / values;
  const int64_t* rowptr = op.rowptr.as<int64_t>();
  const int32_t* arg = op.arg.as<int32_t>();
  float *dedge = op.dedge ? op.dedge.as<float>() : nullptr, *dadd = op.dadd ? op.dadd.as<float>() : nullptr;
  if (dedge) std::fill(dedge + rowptr[begin] * values, dedge + rowptr[end] * values, 0.0f);
  for (int64_t at = begin * width; at < end * width; ++at) {
    const int64_t e = arg[at], c = at % width, value = e * values + c / part;
    const float dy = number(op.dy, at);
    if (dadd) dadd[at] = e < 0 ? 0 : dy;
    if (dedge && e >= 0) dedge[value] += dy * slope_e(op, e, c, value);
  }
}

}  // namespace

void spmm_bwd_arg_columns(Ctx& ctx, const SpmmBwdArg& op, std::span<std::byte>) {
  check_spmm(op);
  const int64_t width = op.dy.dim(1);
  if (op.dx) {
    const int64_t team = sys::team_for(ctx.threads, op.flops()), blocks = (width + kBlock - 1) / kBlock;
    const int64_t sources = op.dx.dim(0),
                  parts = std::max<int64_t>(1, std::min(team / std::max<int64_t>(blocks, 1), sources));
    sys::parallel_tasks(static_cast<int>(team), blocks * parts, [&](int64_t task) {
      const int64_t first = task % blocks * kBlock, part = task / blocks;
      collect_dx(op, first, std::min(first + kBlock, width), {part * sources / parts, (part + 1) * sources / parts});
    });
  }
  if (!op.dedge && !op.dadd) return;
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.dy.dim(0), op.flops(),
                     [&](int64_t begin, int64_t end) { spread_rows(op, begin, end); });
}

}  // namespace braid
