#include "kernels/linear/linear.h"

#include <algorithm>
#include <atomic>

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/linear/linear_ref.h"
#include "kernels/linear/linear_rows.h"
#include "math/blocks.h"
#include "math/packed_rows.h"
#include "math/panel.h"
#include "math/pieces.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const LinearFwd& op, std::span<std::byte>) {
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  linear_fwd_ref(op.x.dim(0), op.w.rows, op.w.cols, to_doubles(op.x), decode(op.w), to_doubles(op.bias), y);
  store(op.y, y);
}

void bwd_data_ref(Ctx&, const LinearBwdData& op, std::span<std::byte>) {
  std::vector<double> dx(static_cast<size_t>(op.dx.count()));
  linear_bwd_data_ref(op.dy.dim(0), op.w.rows, op.w.cols, to_doubles(op.dy), decode(op.w), dx);
  store(op.dx, dx);
}

void bwd_weight_ref(Ctx&, const LinearBwdWeight& op, std::span<std::byte>) {
  for_each_piece(op.seqs, op.x.dim(0), [&](int64_t first, int64_t n) {
    std::vector<double> dw(static_cast<size_t>(op.dw.count())), dbias(static_cast<size_t>(op.dw.dim(0)));
    linear_bwd_weight_ref(n, op.dw.dim(0), op.dw.dim(1), to_doubles(op.dy.slice(0, first, n)),
                          to_doubles(op.x.slice(0, first, n)), dw, dbias);
    accumulate(op.dw, dw);
    accumulate(op.dbias, dbias);
  });
}

// The columns of one task; small enough that a late thread delays the rest little, long enough to read one stream. With
// few rows a task is memory-bound, and shorter tasks balance better.
constexpr int64_t kTaskCols = 3 * kPanelCols, kTaskColsFew = kPanelCols;

template <PanelClass kClass>
const char* panel_supports(const LinearFwd& op) {
  if (op.train) return "training";
  if ((op.x.dtype == DType::f32) != (kClass == PanelClass::f32)) return "x has another type";
  if (!op.x.rows_contiguous() || !op.y.rows_contiguous()) return "strided rows";
  return panel_refusal(kClass);
}

const char* dot_supports(const LinearFwd& op) {
  if (const char* reason = panel_supports<PanelClass::bf16_dot>(op)) return reason;
  return panel_class(DType::bf16) == PanelClass::bf16_dot ? nullptr : "slower than FP32 here";
}

int64_t panel_workspaces(const LinearFwd& op, int threads) { return panel_workspace(op.w) * threads; }

template <PanelClass kClass>
void fwd_panel(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  const int64_t own = panel_workspace(op.w);
  linear_tasks(ctx.threads, op, op.x.dim(0) <= op.limits().panel_task_rows ? kTaskColsFew : kTaskCols,
               [&](int thread, int64_t first, int64_t n) {
                 panel_product(kClass, op.x, op.w.rows_of(first, n), op.y.slice(1, first, n),
                               workspace.subspan(static_cast<size_t>(thread * own), static_cast<size_t>(own)),
                               op.limits());
               });
}

const char* cuda_supports(const LinearFwd& op) {
  if (op.x.dtype != DType::f32 && op.x.dtype != DType::bf16) return "x is neither F32 nor BF16";
  if (op.w.codes.dtype != op.x.dtype || op.w.scales) return "weight of another type than x";
  if (op.bias) return "bias";
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

template <DType kType>
const char* groups_supports(const LinearFwd& op) {
  return linear_groups_supports(kType, op);
}

void fwd_tiles(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  linear_fwd_tiles(ctx, op, workspace, tiles::walk_amx());
}

void add_bias(const View& bias, const MutView& y) {
  for (int64_t t = 0; t < y.dim(0); ++t) {
    for (int64_t n = 0; n < y.dim(1); ++n) {
      const float b = bias.as<float>()[n];
      if (y.dtype == DType::f32) {
        y.as<float>(t)[n] += b;
      } else {
        y.as<Bf16>(t)[n] = to_bf16(to_float(y.as<Bf16>(t)[n]) + b);
      }
    }
  }
}

// Rows of the three ops on packed operands.
struct Packed {
  template <class Op>
  static const char* supports(packed::Class c, const Op& op) {
    return linear_packed_supports(c, op);
  }
  template <class Op>
  static int64_t workspace(packed::Class c, const Op& op, int threads) {
    return linear_packed_workspace(c, op, threads);
  }
  template <class Op>
  static void run(packed::Class c, Ctx& ctx, const Op& op, std::span<std::byte> space) {
    linear_packed(c, ctx, op, space);
  }
};

}  // namespace

void linear_tasks(int threads, const LinearFwd& op, int64_t cols, sys::FunctionRef<void(int, int64_t, int64_t)> body) {
  const int64_t tasks = (op.w.rows + cols - 1) / cols;
  std::atomic<int64_t> next{0};
  const int team = sys::team_for(threads, op.flops());
  sys::parallel(static_cast<int>(std::min<int64_t>(team, tasks)), [&](int thread, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      const int64_t first = i * cols, n = std::min(cols, op.w.rows - first);
      body(thread, first, n);
      if (op.bias) add_bias(op.bias.slice(0, first, n), op.y.slice(1, first, n));
    }
  });
}

std::span<const Row<LinearFwd>> LinearFwd::rows() {
  static constexpr Row<LinearFwd> kRows[] = {
      {.name = "cublaslt",
       .numerics = "cublaslt",
       .supports = &cuda_supports,
       .run = kHasCuda ? &linear_fwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "wide_sums",
       .numerics = "f64_sums",
       .supports = &linear_wide_sums_supports,
       .run = &linear_fwd_wide_sums},
      packed::kTileRow<LinearFwd, Packed>,
      packed::kDotRow<LinearFwd, Packed>,
      packed::kBf16Row<LinearFwd, Packed>,
      packed::kF32Row<LinearFwd, Packed>,
      {.name = "groups_f32",
       .numerics = "f32_chain",
       .supports = &groups_supports<DType::f32>,
       .workspace = &linear_groups_workspace,
       .run = &linear_fwd_groups},
      {.name = "groups_bf16",
       .numerics = "bf16_chain",
       .supports = &groups_supports<DType::bf16>,
       .workspace = &linear_groups_workspace,
       .run = &linear_fwd_groups},
      {.name = "codes_dot",
       .numerics = "codes_a16",
       .supports = &linear_codes_supports,
       .workspace = &linear_codes_workspace,
       .run = &linear_fwd_codes},
      {.name = "tiles",
       .numerics = "bf16_tile",
       .supports = &linear_tiles_supports,
       .workspace = &linear_tiles_workspace,
       .run = &fwd_tiles},
      {.name = "codes_a8",
       .numerics = "codes_a8",
       .supports = &linear_a8_supports,
       .workspace = &linear_a8_workspace,
       .run = &linear_fwd_a8},
      {.name = "panel_dot",
       .numerics = "bf16_dot",
       .supports = &dot_supports,
       .workspace = &panel_workspaces,
       .run = &fwd_panel<PanelClass::bf16_dot>},
      {.name = "panel_bf16",
       .numerics = "bf16",
       .supports = &panel_supports<PanelClass::bf16>,
       .workspace = &panel_workspaces,
       .run = &fwd_panel<PanelClass::bf16>},
      {.name = "panel_f32",
       .numerics = "f32",
       .supports = &panel_supports<PanelClass::f32>,
       .workspace = &panel_workspaces,
       .run = &fwd_panel<PanelClass::f32>},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<LinearBwdData>> LinearBwdData::rows() {
  static constexpr Row<LinearBwdData> kRows[] = {packed::kTileRow<LinearBwdData, Packed>,
                                                 packed::kDotRow<LinearBwdData, Packed>,
                                                 packed::kBf16Row<LinearBwdData, Packed>,
                                                 packed::kF32Row<LinearBwdData, Packed>,
                                                 {.name = "ref", .numerics = "f64", .run = &bwd_data_ref}};
  return kRows;
}

std::span<const Row<LinearBwdWeight>> LinearBwdWeight::rows() {
  static constexpr Row<LinearBwdWeight> kRows[] = {packed::kTileRow<LinearBwdWeight, Packed>,
                                                   packed::kDotRow<LinearBwdWeight, Packed>,
                                                   packed::kBf16Row<LinearBwdWeight, Packed>,
                                                   packed::kF32Row<LinearBwdWeight, Packed>,
                                                   {.name = "ref", .numerics = "f64", .run = &bwd_weight_ref}};
  return kRows;
}

}  // namespace braid
