#include "kernels/add/add.h"

#include <cstring>

#include "core/ref.h"
#include "kernels/add/add_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const AddFwd& op, std::span<std::byte>) {
  for (int64_t i = 0; i < op.y.count(); ++i) {
    const double b = static_cast<double>(op.scale) * element(op.b, i);
    set_element(op.y, i, op.a ? element(op.a, i) + b : b);
  }
}

const char* hwy_supports(const AddFwd& op) {
  return (!op.a || op.a.rows_contiguous()) && op.b.rows_contiguous() && op.y.rows_contiguous() ? nullptr
                                                                                               : "strided rows";
}

}  // namespace

std::span<const Row<AddFwd>> AddFwd::rows() {
  static constexpr Row<AddFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &add_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

}  // namespace braid
