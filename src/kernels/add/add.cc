#include "kernels/add/add.h"

#include <cstring>

#include "core/ref.h"
#include "kernels/add/add_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const AddFwd& op, std::span<std::byte>) {
  for (int64_t i = 0; i < op.y.count(); ++i) set_element(op.y, i, element(op.a, i) + element(op.b, i));
}

const char* hwy_supports(const AddFwd& op) {
  return op.a.rows_contiguous() && op.b.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

}  // namespace

std::span<const Row<AddFwd>> AddFwd::rows() {
  static constexpr Row<AddFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &add_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

Tensor add(Ctx& ctx, const Tensor& a, const Tensor& b) {
  const Tensor y(ctx.arena, a.dtype(), a.shape());
  const AddFwd op{.a = a.view(), .b = b.view(), .y = y.mut()};
  run(ctx, op);
  if (!ctx.tape) return y;
  ctx.tape->record(op, [a, b, y](Ctx& c, Tape& tape) {
    const Tensor dy = tape.grad(y);
    if (!dy) return;
    // The tape sums gradients in place, so two values must not share one.
    const Tensor db(c.arena, dy.dtype(), dy.shape());
    std::memcpy(db.mut().data, dy.view().data, static_cast<size_t>(dy.view().bytes()));
    tape.add_grad(a, dy);
    tape.add_grad(b, db);
  });
  return y;
}

}  // namespace braid
