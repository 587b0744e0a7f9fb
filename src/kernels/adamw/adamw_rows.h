// The variants behind the table of adamw.cc.
#pragma once
#include "kernels/adamw/adamw.h"

namespace braid {

// The scalars of a step, rounded to FP32 once.
struct AdamwScalars {
  float grad_scale, keep, one_less_beta1, beta2, one_less_beta2, step_size, root, eps;
};
AdamwScalars adamw_scalars(const AdamwStep& op);

void adamw_step_hwy(Ctx& ctx, const AdamwStep& op, std::span<std::byte> workspace);

}  // namespace braid
