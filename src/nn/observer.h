// What a pass shows to a caller that measures a model instead of using its output: the operands of products, of the
// norms of the residual stream and inside Mamba, and of experts. Only passes without a tape are observed.
#pragma once
#include <span>

#include "core/ctx.h"
#include "core/param.h"
#include "core/view.h"
#include "kernels/experts/experts.h"

namespace braid::nn {

// One call of a layer's experts (kernels/experts/experts.h has the shapes).
struct ExpertsSeen {
  std::span<const Param> up{}, gate{}, down{};  // E each; no gates in models without them
  View x{}, experts{}, weights{};
  View u{}, g{};  // products of up and gate
  ExpertAct act = ExpertAct::relu2;
};

class Observer {
 public:
  virtual ~Observer() = default;
  // y [T, N] = x [T, R] w^T, F32 or BF16.
  virtual void product(const Param& w, const View& x, const View& y) = 0;
  // y [T, D] = norm(x) w, or norm(x silu(z)) w in groups of the channels.
  virtual void norm(const Param& w, const View& x, const View& z, const View& y) = 0;
  virtual void experts(Ctx& ctx, const ExpertsSeen& seen) = 0;
};

// Row `row` of an observed value as FP32 numbers.
inline void read_row(const View& x, int64_t row, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = x.dtype == DType::bf16 ? to_float(x.as<Bf16>(row)[i]) : x.as<float>(row)[i];
}

// What the down product of expert [t, k] reads: the activation of u, times g where there are gates. `out` has F values.
void read_hidden(const ExpertsSeen& seen, int64_t t, int64_t k, std::span<float> out);

}  // namespace braid::nn
