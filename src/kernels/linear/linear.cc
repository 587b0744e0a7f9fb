#include "kernels/linear/linear.h"

#include <algorithm>

#include "codec/codec.h"
#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/linear/linear_ref.h"
#include "kernels/linear/linear_rows.h"
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

template <const ProductEngine& kEngine>
const char* engine_supports(const LinearFwd& op) {
  return op.train ? "training" : linear_engine_refusal(kEngine, op);
}

const char* dot_supports(const LinearFwd& op) {
  if (const char* reason = engine_supports<kPanelDot>(op)) return reason;
  return panel_class(DType::bf16) == PanelClass::bf16_dot ? nullptr : "slower than FP32 here";
}

const char* codes_supports(const LinearFwd& op) {
  return op.codes == CodeDots::a16 ? linear_engine_refusal(kCodesA16, op) : "not a step";
}
const char* a8_supports(const LinearFwd& op) {
  return op.codes == CodeDots::a8 ? linear_engine_refusal(kCodesA8, op) : "activations are not rounded to 8 bits";
}

template <const ProductEngine& kEngine>
int64_t engine_workspace(const LinearFwd& op, int threads) {
  return linear_engine_workspace(kEngine, op, threads);
}
template <const ProductEngine& kEngine>
void fwd_engine(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  linear_fwd_engine(kEngine, ctx, op, workspace);
}

template <const ProductEngine& kEngine, const char* (*kSupports)(const LinearFwd& op)>
constexpr Row<LinearFwd> engine_row(const char* name, const char* numerics) {
  return {.name = name,
          .numerics = numerics,
          .supports = kSupports,
          .workspace = &engine_workspace<kEngine>,
          .run = &fwd_engine<kEngine>};
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
  sys::parallel_tasks(sys::team_for(threads, op.flops()), tasks, [&](int thread, int64_t i) {
    const int64_t first = i * cols, n = std::min(cols, op.w.rows - first);
    body(thread, first, n);
    if (op.bias) add_bias(op.bias.slice(0, first, n), op.y.slice(1, first, n));
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
      engine_row<kCodesA16, &codes_supports>("codes_dot", "codes_a16"),
      engine_row<kTiles, &engine_supports<kTiles>>("tiles", "bf16_tile"),
      engine_row<kCodesA8, &a8_supports>("codes_a8", "codes_a8"),
      engine_row<kPanelDot, &dot_supports>("panel_dot", "bf16_dot"),
      engine_row<kPanelBf16, &engine_supports<kPanelBf16>>("panel_bf16", "bf16"),
      engine_row<kPanelF32, &engine_supports<kPanelF32>>("panel_f32", "f32"),
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
