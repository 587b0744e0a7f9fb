// Experts on quantised operands: expert after expert, the rows that chose it in one sequence are gathered and go
// through products of their own (kernels/experts/experts.h has the formulas), as grouped products of low precision do.
// Only for emulation: it takes the problem of the fused op, and is that op where no expert is quantised.
#pragma once
#include <span>

#include "kernels/experts/experts.h"
#include "nn/precision.h"

namespace braid::nn {

struct LowExperts {
  const Precision* precision = nullptr;
  std::span<const Param> up{}, gate{}, down{};

  // Whether any is quantised: experts of a layer are alike.
  explicit operator bool() const { return precision && precision->find(up[0]); }
  LowWeight find(std::span<const Param> list, size_t e) const { return precision->find(list[e]); }
};

void product(Ctx& ctx, const LowExperts& low, const ExpertsFwd& op, std::span<const Seq> seqs);
void product(Ctx& ctx, const LowExperts& low, const ExpertsBwd& op, std::span<const Seq> seqs);

}  // namespace braid::nn
