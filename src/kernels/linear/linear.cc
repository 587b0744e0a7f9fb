#include "kernels/linear/linear.h"

#include <algorithm>

#include "core/ref.h"
#include "kernels/linear/linear_ref.h"
#include "math/blocks.h"
#include "math/panel.h"

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
  std::vector<double> dw(static_cast<size_t>(op.dw.count())), dbias(static_cast<size_t>(op.dw.dim(0)));
  linear_bwd_weight_ref(op.dy.dim(0), op.dw.dim(0), op.dw.dim(1), to_doubles(op.dy), to_doubles(op.x), dw, dbias);
  accumulate(op.dw, dw);
  accumulate(op.dbias, dbias);
}

const char* panel_supports(const LinearFwd& op) {
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}
const char* panel_bf16(const LinearFwd& op) { return op.x.dtype == DType::bf16 ? panel_supports(op) : "x is not BF16"; }
const char* panel_f32(const LinearFwd& op) { return op.x.dtype == DType::f32 ? panel_supports(op) : "x is not F32"; }

int64_t fwd_panel_workspace(const LinearFwd& op, int threads) { return panel_workspace(op.w) * threads; }

// Columns are cut in contiguous parts, one a thread, so that each walks one stream of the weight.
void fwd_panel(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  const int64_t scratch = panel_workspace(op.w);
  constexpr int64_t kGrain = 16;  // columns: a cache line of FP32 results
  const int64_t part = (op.w.rows + ctx.threads - 1) / ctx.threads;
  const int64_t cols = (part + kGrain - 1) / kGrain * kGrain;
  sys::parallel_for(ctx.threads, (op.w.rows + cols - 1) / cols, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * cols, n = std::min(cols, op.w.rows - first);
      const auto own = workspace.subspan(static_cast<size_t>(i * scratch), static_cast<size_t>(scratch));
      panel_product(op.x, op.w.rows_of(first, n), op.y.slice(1, first, n), own);
    }
  });
  if (!op.bias) return;
  for (int64_t t = 0; t < op.y.dim(0); ++t) {
    for (int64_t n = 0; n < op.w.rows; ++n) {
      const float b = op.bias.as<float>()[n];
      if (op.y.dtype == DType::f32) {
        op.y.as<float>(t)[n] += b;
      } else {
        op.y.as<Bf16>(t)[n] = to_bf16(to_float(op.y.as<Bf16>(t)[n]) + b);
      }
    }
  }
}

}  // namespace

std::span<const Row<LinearFwd>> LinearFwd::rows() {
  static constexpr Row<LinearFwd> kRows[] = {
      {.name = "panel_bf16",
       .numerics = "bf16",
       .supports = &panel_bf16,
       .workspace = &fwd_panel_workspace,
       .run = &fwd_panel},
      {.name = "panel_f32",
       .numerics = "f32",
       .supports = &panel_f32,
       .workspace = &fwd_panel_workspace,
       .run = &fwd_panel},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<LinearBwdData>> LinearBwdData::rows() {
  static constexpr Row<LinearBwdData> kRows[] = {{.name = "ref", .numerics = "f64", .run = &bwd_data_ref}};
  return kRows;
}

std::span<const Row<LinearBwdWeight>> LinearBwdWeight::rows() {
  static constexpr Row<LinearBwdWeight> kRows[] = {{.name = "ref", .numerics = "f64", .run = &bwd_weight_ref}};
  return kRows;
}

Tensor linear(Ctx& ctx, const Tensor& x, Param& w, DType out, Param* bias) {
  const Tensor y(ctx.arena, out, {x.dim(0), w.value.rows});
  const View b = bias ? View(bias->value.codes.data, DType::f32, {w.value.rows}) : View();
  const LinearFwd op{.x = x.view(), .w = w.value, .bias = b, .y = y.mut()};
  run(ctx, op);
  if (!ctx.tape) return y;
  ctx.tape->record(op, [x, y, &w, bias](Ctx& c, Tape& tape) {
    const Tensor dy = tape.grad(y);
    if (!dy) return;
    const Tensor dx(c.arena, DType::f32, x.shape());
    run(c, LinearBwdData{.dy = dy.view(), .w = w.value, .dx = dx.mut()});
    const MutView dbias = bias ? bias->grad.reshaped({w.value.rows}).mut() : MutView();
    run(c, LinearBwdWeight{.dy = dy.view(), .x = x.view(), .dw = w.grad.mut(), .dbias = dbias});
    tape.add_grad(x, dx);
  });
  return y;
}

}  // namespace braid
