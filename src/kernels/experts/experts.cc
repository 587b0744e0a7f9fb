#include "kernels/experts/experts.h"

#include "core/ref.h"
#include "kernels/experts/experts_ref.h"
#include "kernels/experts/experts_rows.h"
#include "math/blocks.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const ExpertsFwd& op, std::span<std::byte>) {
  const int64_t tokens = op.x.dim(0), width = op.x.dim(1), k = op.experts.dim(1);
  const auto count = static_cast<int64_t>(op.up.size());
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  // Expert by expert, so that each is decoded once.
  std::vector<std::vector<int64_t>> chosen_by(static_cast<size_t>(count));
  for (int64_t slot = 0; slot < tokens * k; ++slot) {
    const auto e = static_cast<int64_t>(element(op.experts, slot));
    CHECK(e >= 0 && e < count, "experts_fwd: token {} has expert {} of {}", slot / k, e, count);
    chosen_by[static_cast<size_t>(e)].push_back(slot);
  }
  for (size_t e = 0; e < chosen_by.size(); ++e) {
    if (chosen_by[e].empty()) continue;
    const auto up = decode(op.up[e]), down = decode(op.down[e]);
    const auto gate = op.gate.empty() ? std::vector<double>() : decode(op.gate[e]);
    for (const int64_t slot : chosen_by[e]) {
      const auto x = to_doubles(op.x.slice(0, slot / k, 1));
      const auto result = expert_ref(x, up, gate, down, op.act == ExpertAct::silu);
      for (int64_t r = 0; r < width; ++r)
        y[static_cast<size_t>(slot / k * width + r)] += element(op.weights, slot) * result[static_cast<size_t>(r)];
    }
  }
  store(op.y, y);
}

template <PanelClass kClass>
const char* grouped_supports(const ExpertsFwd& op) {
  if (op.x.dtype != (kClass == PanelClass::f32 ? DType::f32 : DType::bf16)) return "x is of another class";
  const bool rows = op.x.rows_contiguous() && op.y.rows_contiguous() && op.weights.rows_contiguous();
  if (!rows || !op.experts.rows_contiguous()) return "strided rows";
  return panel_refusal(kClass);
}
const char* dot_supports(const ExpertsFwd& op) {
  if (const char* reason = grouped_supports<PanelClass::bf16_dot>(op)) return reason;
  return panel_class(DType::bf16) == PanelClass::bf16_dot ? nullptr : "slower than FP32 here";
}

template <PanelClass kClass>
void fwd_grouped(Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace) {
  experts_fwd_grouped(kClass, ctx, op, workspace);
}

}  // namespace

std::span<const Row<ExpertsFwd>> ExpertsFwd::rows() {
  static constexpr Row<ExpertsFwd> kRows[] = {
      {.name = "grouped_dot",
       .numerics = "bf16_dot",
       .supports = &dot_supports,
       .workspace = &experts_fwd_workspace,
       .run = &fwd_grouped<PanelClass::bf16_dot>},
      {.name = "grouped_bf16",
       .numerics = "bf16",
       .supports = &grouped_supports<PanelClass::bf16>,
       .workspace = &experts_fwd_workspace,
       .run = &fwd_grouped<PanelClass::bf16>},
      {.name = "grouped_f32",
       .numerics = "f32",
       .supports = &grouped_supports<PanelClass::f32>,
       .workspace = &experts_fwd_workspace,
       .run = &fwd_grouped<PanelClass::f32>},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

}  // namespace braid
