// The variants behind the table of experts.cc.
#pragma once
#include "kernels/experts/experts.h"
#include "math/packed.h"
#include "math/product.h"

namespace braid {

// What computes products: one of these.
struct ExpertProducts {
  const ProductEngine* engine = nullptr;
  const packed::Kernel* packed = nullptr;  // in training
};
int64_t experts_fwd_workspace(const ExpertProducts& c, const ExpertsFwd& op, int threads);
void experts_fwd_grouped(const ExpertProducts& c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace);

// On packed operands; u and g that were not saved are recomputed in forward's class (train).
int64_t experts_bwd_workspace(const packed::Kernel& kernel, const ExpertsBwd& op, int threads);
void experts_bwd_packed(const packed::Kernel& kernel, Ctx& ctx, const ExpertsBwd& op, std::span<std::byte> workspace);

}  // namespace braid
