#include "kernels/quantize/quantize.h"

#include "core/ref.h"
#include "kernels/quantize/quantize_ref.h"
#include "kernels/quantize/quantize_rows.h"

namespace braid {
namespace {

const char* supports(const Quantize& op) {
  const auto number = [](DType t) { return t == DType::f32 || t == DType::bf16; };
  if (!number(op.x.dtype) || !number(op.q.dtype)) return "not F32 or BF16";
  return op.x.rows_contiguous() && op.q.rows_contiguous() ? nullptr : "strided rows";
}

void run_tiles(Ctx& ctx, const Quantize& op, std::span<std::byte>) {
  quantize(ctx.threads, op.spec, op.x, op.q, op.noise);
}

void run_ref(Ctx&, const Quantize& op, std::span<std::byte>) {
  const auto x = to_doubles(op.x);
  const auto q = quantize_ref(op.spec, op.x.dim(0), op.x.dim(1), {x.begin(), x.end()}, op.noise);
  store(op.q, {q.begin(), q.end()});
}

}  // namespace

std::span<const Row<Quantize>> Quantize::rows() {
  static constexpr Row<Quantize> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &supports, .run = &run_tiles},
      {.name = "ref", .numerics = "f32", .run = &run_ref},
  };
  return kRows;
}

}  // namespace braid
