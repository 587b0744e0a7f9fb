#include "kernels/muon/muon.h"

#include "core/ref.h"
#include "kernels/muon/muon_ref.h"
#include "kernels/muon/muon_rows.h"

namespace braid {
namespace {

void step_ref(Ctx&, const MuonStep& op, std::span<std::byte>) {
  std::vector<double> u = to_doubles(op.g), m = to_doubles(op.m), w = to_doubles(op.w);
  for (size_t i = 0; i < u.size(); ++i) {
    const double g = op.grad_scale * u[i];
    m[i] += (1 - op.momentum) * (g - m[i]);
    u[i] = op.nesterov ? g + op.momentum * (m[i] - g) : m[i];
  }
  const NewtonSchulz iteration{.steps = MuonStep::kSteps, .a = MuonStep::kA, .b = MuonStep::kB, .c = MuonStep::kC};
  const auto x = orthogonal_ref(iteration, u, static_cast<size_t>(op.w.dim(0)));
  for (size_t i = 0; i < w.size(); ++i) w[i] = w[i] * (1 - op.lr * op.weight_decay) - op.lr * op.scale * x[i];
  store(op.m, m);
  store(op.w, w);
  store(op.working, w);
}

const char* packed_supports(const MuonStep& op) {
  for (const View& v : {View(op.g), View(op.w), View(op.m)}) {
    if (v.dtype != DType::f32) return "not F32";
    if (!v.rows_contiguous()) return "strided rows";
  }
  if (!op.working) return nullptr;
  return op.working.dtype == DType::bf16 && op.working.rows_contiguous() ? nullptr : "working copy is not BF16 rows";
}

}  // namespace

std::span<const Row<MuonStep>> MuonStep::rows() {
  static constexpr Row<MuonStep> kRows[] = {
      {.name = "packed_f32",
       .numerics = "f32_chain",
       .supports = &packed_supports,
       .workspace = &muon_step_workspace,
       .run = &muon_step_packed},
      {.name = "ref", .numerics = "f64", .run = &step_ref},
  };
  return kRows;
}

}  // namespace braid
