#include "kernels/row_dots/row_dots.h"

#include "core/ref.h"
#include "kernels/row_dots/row_dots_rows.h"

namespace braid {
namespace {

void row_dots_ref(Ctx&, const RowDots& op, std::span<std::byte>) {
  const int64_t width = op.a.dim(1);
  for (int64_t t = 0; t < op.a.dim(0); ++t) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += element(op.a, t * width + i) * element(op.b, t * width + i) * (op.w ? element(op.w, i) : 1);
    set_element(op.y, t, sum);
  }
}

const char* hwy_supports(const RowDots& op) {
  for (const View& v : {op.a, op.b, op.w, View(op.y)}) {
    if (v.dtype != DType::f32) return "not F32";
    if (!v.rows_contiguous()) return "strided rows";
  }
  return op.y.contiguous() ? nullptr : "strided sums";
}

}  // namespace

std::span<const Row<RowDots>> RowDots::rows() {
  static constexpr Row<RowDots> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &row_dots_hwy},
      {.name = "ref", .numerics = "f64", .run = &row_dots_ref},
  };
  return kRows;
}

}  // namespace braid
