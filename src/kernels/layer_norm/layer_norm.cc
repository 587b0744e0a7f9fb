#include "kernels/layer_norm/layer_norm.h"

#include "core/ref.h"
#include "kernels/layer_norm/layer_norm_ref.h"
#include "kernels/layer_norm/layer_norm_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const LayerNormFwd& op, std::span<std::byte>) {
  const int64_t tokens = op.x.dim(0), width = op.x.dim(1);
  std::vector<double> y(static_cast<size_t>(tokens * width)), mean(static_cast<size_t>(tokens)), rstd(mean.size());
  layer_norm_ref(tokens, width, static_cast<double>(op.eps), to_doubles(op.x), to_doubles(op.w), to_doubles(op.bias), y,
                 mean, rstd);
  store(op.y, y);
  store(op.mean, mean);
  store(op.rstd, rstd);
}

void bwd_ref(Ctx&, const LayerNormBwd& op, std::span<std::byte>) {
  check_rows(op);
  const LayerNormGrads grads = layer_norm_bwd_ref(op.x.dim(0), op.x.dim(1), static_cast<double>(op.eps),
                                                  to_doubles(op.x), to_doubles(op.w), to_doubles(op.dy));
  store(op.dx, grads.dx);
  accumulate(op.dw, grads.dw);
  accumulate(op.dbias, grads.dbias);
}

const char* hwy_supports(const LayerNormFwd& op) {
  if (!op.x.rows_contiguous() || !op.y.rows_contiguous()) return "strided rows";
  if (op.w.dtype != DType::f32 || (op.bias && op.bias.dtype != DType::f32)) return "weight or bias is not F32";
  return nullptr;
}

const char* bwd_supports(const LayerNormBwd& op) {
  if (!op.dy.rows_contiguous() || !op.x.rows_contiguous() || !op.dx.rows_contiguous()) return "strided rows";
  for (const View& v : {op.w, View(op.dw), View(op.dbias)}) {
    if (v && !v.rows_contiguous()) return "strided sums";
  }
  return op.w.dtype == DType::f32 ? nullptr : "weight is not F32";
}

}  // namespace

void check_rows(const LayerNormBwd& op) {
  CHECK(!op.mean == !op.rstd, "{}: mean without rstd", LayerNormBwd::name);
  CHECK(op.dw.dtype == DType::f32 && (!op.dbias || op.dbias.dtype == DType::f32), "{}: sums are not F32",
        LayerNormBwd::name);
  if (!op.seqs) return;
  int64_t rows = 0;
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.start == rows, "{}: a sequence starts at row {}, not {}", LayerNormBwd::name, seq.start, rows);
    rows += seq.len;
  }
  CHECK(rows == op.x.dim(0), "{}: {} tokens in the map, {} rows", LayerNormBwd::name, rows, op.x.dim(0));
}

std::span<const Row<LayerNormFwd>> LayerNormFwd::rows() {
  static constexpr Row<LayerNormFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &layer_norm_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<LayerNormBwd>> LayerNormBwd::rows() {
  static constexpr Row<LayerNormBwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &bwd_supports,
       .workspace = &layer_norm_bwd_hwy_workspace,
       .run = &layer_norm_bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
