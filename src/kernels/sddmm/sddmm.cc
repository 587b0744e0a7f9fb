#include "kernels/sddmm/sddmm.h"

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/sddmm/sddmm_ref.h"
#include "kernels/sddmm/sddmm_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const SddmmFwd& op, std::span<std::byte>) {
  check_sddmm(op);
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  sddmm_ref(op, (op.u ? op.u : op.v).dim(1), op.y.dim(1), to_doubles(op.u), to_doubles(op.u_scale), to_doubles(op.v),
            to_doubles(op.edge), y);
  store(op.y, y);
}

const char* hwy_supports(const SddmmFwd& op) {
  if ((op.u && !op.u.rows_contiguous()) || (op.v && !op.v.rows_contiguous())) return "strided rows";
  if (op.u && op.v && op.u.dtype != op.v.dtype) return "u and v differ in dtype";
  return op.y.contiguous() && (!op.edge || op.edge.contiguous()) ? nullptr : "strided edges";
}

const char* cuda_supports(const SddmmFwd& op) {
  if (const char* reason = hwy_supports(op)) return reason;
  constexpr int64_t kWidest = 1 << 17;  // so that positions in 32 edges are divided by a product
  for (const View& v : {op.u, op.v}) {
    if (v.dtype != DType::f32 && v.dtype != DType::bf16) return "neither F32 nor BF16";
    if (v && (v.dim(1) > kWidest || v.stride(0) >= int64_t{1} << 31)) return "too wide";
  }
  return op.rowptr.dim(0) < int64_t{1} << 31 ? nullptr : "too many rows";
}

}  // namespace

void check_sddmm(const SddmmFwd& op) {
  const bool sums = op.op == PairOp::dot || op.op == PairOp::square;
  const int64_t width = (op.u ? op.u : op.v).dim(1), values = op.y.dim(1);
  CHECK(!op.u || op.rowptr.dim(0) == op.u.dim(0) + 1, "{}: {} row pointers", SddmmFwd::name, op.rowptr.dim(0));
  CHECK(sums ? static_cast<bool>(op.u)
             : static_cast<bool>(op.u) == (op.op != PairOp::copy_v) &&
                   static_cast<bool>(op.v) == (op.op != PairOp::copy_u),
        "{}: operands of another op", SddmmFwd::name);
  CHECK(sums ? width % values == 0 : width == values, "{}: {} channels, {} values", SddmmFwd::name, width, values);
  CHECK((op.op == PairOp::square) == static_cast<bool>(op.edge), "{}: edge goes with square", SddmmFwd::name);
  CHECK(sums || (!op.u_scale && op.scale == 1), "{}: scales go with sums", SddmmFwd::name);
}

std::span<const Row<SddmmFwd>> SddmmFwd::rows() {
  static constexpr Row<SddmmFwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &cuda_supports,
       .run = kHasCuda ? &sddmm_fwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &sddmm_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

}  // namespace braid
