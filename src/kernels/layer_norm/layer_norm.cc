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

const char* hwy_supports(const LayerNormFwd& op) {
  if (!op.x.rows_contiguous() || !op.y.rows_contiguous()) return "strided rows";
  if (op.w.dtype != DType::f32 || (op.bias && op.bias.dtype != DType::f32)) return "weight or bias is not F32";
  return nullptr;
}

}  // namespace

std::span<const Row<LayerNormFwd>> LayerNormFwd::rows() {
  static constexpr Row<LayerNormFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &layer_norm_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

}  // namespace braid
