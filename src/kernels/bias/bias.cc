#include "kernels/bias/bias.h"

#include "core/ref.h"
#include "kernels/bias/bias_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const BiasFwd& op, std::span<std::byte>) {
  for (int64_t i = 0; i < op.y.count(); ++i) set_element(op.y, i, element(op.x, i) + element(op.b, i % op.y.dim(1)));
}

void bwd_ref(Ctx&, const BiasBwd& op, std::span<std::byte>) {
  std::vector<double> db(static_cast<size_t>(op.db.count()));
  for (int64_t i = 0; i < op.dy.count(); ++i) db[static_cast<size_t>(i % op.dy.dim(1))] += element(op.dy, i);
  accumulate(op.db, db);
}

const char* fwd_supports(const BiasFwd& op) {
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}
const char* bwd_supports(const BiasBwd& op) { return op.dy.rows_contiguous() ? nullptr : "strided rows"; }

}  // namespace

std::span<const Row<BiasFwd>> BiasFwd::rows() {
  static constexpr Row<BiasFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &fwd_supports, .run = &bias_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<BiasBwd>> BiasBwd::rows() {
  static constexpr Row<BiasBwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &bwd_supports,
       .workspace = &bias_bwd_workspace,
       .run = &bias_bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
