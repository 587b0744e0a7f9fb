// The gradient of max and min. Sources collect from rows in the order of rows, so threads divide channels, not rows: a
// block of 16 is a cache line of FP32, which no two threads share. With few channels they divide rows and hand each
// other lists of what is to be added to a range of sources, in the order of rows: the same bits.
#include <algorithm>
#include <limits>
#include <numeric>

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

void collect_dx(const SpmmBwdArg& op, int64_t first, int64_t last) {
  const int64_t width = op.dy.dim(1), part = op.edge ? width / op.edge.dim(1) : width;
  const int64_t values = op.edge ? op.edge.dim(1) : 1;
  const int32_t *arg = op.arg.as<int32_t>(), *col = op.col.as<int32_t>();
  float* dx = op.dx.as<float>();
  for (int64_t j = 0; j < op.dx.dim(0); ++j) std::fill(dx + j * width + first, dx + j * width + last, 0.0f);
  for (int64_t i = 0; i < op.dy.dim(0); ++i) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t at = i * width + c, e = arg[at];
      if (e < 0) continue;
      dx[col[e] * width + c] += number(op.dy, at) * factor_of(op, e * values + c / part);
    }
  }
}

// An element of dx and what is added to it.
struct Addition {
  int32_t at;
  float value;
};

// Whether threads exchange lists, which costs about as much as adding does in the caches.
bool exchanges(const SpmmBwdArg& op, int team) {
  constexpr int64_t kCached = 1 << 20, kMany = 4;
  const int64_t blocks = (op.dy.dim(1) + kBlock - 1) / kBlock;
  if (!op.dx || op.dx.count() == 0 || op.dx.count() > std::numeric_limits<int32_t>::max()) return false;
  return team >= kMany * blocks || (team >= 2 * blocks && op.dx.bytes() > kCached);
}

struct Lists {
  Addition* all = nullptr;
  int64_t* end = nullptr;  // [parts, team]: of a range of sources, what each range of rows adds to it
  int64_t team = 1;

  Lists(const SpmmBwdArg& op, int64_t threads, std::byte* workspace)
      : all(reinterpret_cast<Addition*>(workspace)),
        end(reinterpret_cast<int64_t*>(workspace + op.dy.count() * static_cast<int64_t>(sizeof(Addition)))),
        team(threads) {}
  static int64_t bytes(const SpmmBwdArg& op, int64_t threads) {
    return op.dy.count() * static_cast<int64_t>(sizeof(Addition)) +
           threads * threads * static_cast<int64_t>(sizeof(int64_t));
  }
};

// visit(part of the sources, element) for what the rows of thread `t` add.
template <class Visit>
void each_winner(const SpmmBwdArg& op, int64_t team, int64_t t, Visit&& visit) {
  const int64_t rows = op.dy.dim(0), width = op.dy.dim(1), begin = rows * t / team * width,
                end = rows * (t + 1) / team * width;
  const int32_t *arg = op.arg.as<int32_t>(), *col = op.col.as<int32_t>();
  const uint64_t parts = (static_cast<uint64_t>(team) << 32) / static_cast<uint64_t>(op.dx.dim(0));  // of a source
  for (int64_t at = begin; at < end; ++at) {
    if (arg[at] >= 0) visit(static_cast<int64_t>(static_cast<uint64_t>(col[arg[at]]) * parts >> 32), at);
  }
}

void exchange_dx(const SpmmBwdArg& op, const Lists& lists) {
  const int64_t team = lists.team, width = op.dy.dim(1), part = op.edge ? width / op.edge.dim(1) : width;
  const int64_t values = op.edge ? op.edge.dim(1) : 1, n = op.dx.count();
  const int32_t *arg = op.arg.as<int32_t>(), *col = op.col.as<int32_t>();
  float* dx = op.dx.as<float>();
  const auto each = [&](auto&& body) { sys::parallel_tasks(static_cast<int>(team), team, body); };
  each([&](int64_t t) {
    std::fill(dx + n * t / team, dx + n * (t + 1) / team, 0.0f);
    for (int64_t p = 0; p < team; ++p) lists.end[p * team + t] = 0;
    each_winner(op, team, t, [&](int64_t p, int64_t) { ++lists.end[p * team + t]; });
  });
  std::exclusive_scan(lists.end, lists.end + team * team, lists.end, int64_t{0});
  each([&](int64_t t) {
    each_winner(op, team, t, [&](int64_t p, int64_t at) {
      const int64_t e = arg[at], c = at % width;
      lists.all[lists.end[p * team + t]++] = {static_cast<int32_t>(col[e] * width + c),
                                              number(op.dy, at) * factor_of(op, e * values + c / part)};
    });
  });
  each([&](int64_t p) {
    const Addition* end = lists.all + lists.end[p * team + team - 1];
    for (const Addition* a = lists.all + (p > 0 ? lists.end[p * team - 1] : 0); a < end; ++a) dx[a->at] += a->value;
  });
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

int64_t spmm_bwd_arg_workspace(const SpmmBwdArg& op, int threads) {
  const int team = sys::team_for(threads, op.flops());
  return exchanges(op, team) ? Lists::bytes(op, team) : 0;
}

void spmm_bwd_arg_columns(Ctx& ctx, const SpmmBwdArg& op, std::span<std::byte> workspace) {
  check_spmm(op);
  const int64_t width = op.dy.dim(1);
  const int team = sys::team_for(ctx.threads, op.flops());
  if (exchanges(op, team)) {
    exchange_dx(op, Lists(op, team, workspace.data()));
  } else if (op.dx) {
    sys::parallel_for(team, width, kBlock, [&](int64_t begin, int64_t end) { collect_dx(op, begin, end); });
  }
  if (!op.dedge && !op.dadd) return;
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.dy.dim(0), op.flops(),
                     [&](int64_t begin, int64_t end) { spread_rows(op, begin, end); });
}

}  // namespace braid
