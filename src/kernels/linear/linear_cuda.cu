// The product on a GPU: cuBLASLt with an algorithm measured once per shape (core/device/gpu_runtime.h).
#include "core/device/gpu_runtime.h"
#include "kernels/linear/linear_rows.h"

namespace braid {

void linear_fwd_cuda(Ctx& ctx, const LinearFwd& op, std::span<std::byte>) { ctx.gpu->product(op.x, op.w.codes, op.y); }

}  // namespace braid
