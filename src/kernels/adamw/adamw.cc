#include "kernels/adamw/adamw.h"

#include <cmath>

#include "kernels/adamw/adamw_rows.h"

namespace braid {
namespace {

void step_ref(Ctx&, const AdamwStep& op, std::span<std::byte>) {
  const auto step = static_cast<double>(op.step);
  const double correction1 = 1 - std::pow(op.beta1, step), correction2 = 1 - std::pow(op.beta2, step);
  for (int64_t i = 0; i < op.w.count(); ++i) {
    const double g = op.grad_scale * element(op.g, i);
    const double m = element(op.m, i) + (1 - op.beta1) * (g - element(op.m, i));
    const double v = op.beta2 * element(op.v, i) + (1 - op.beta2) * g * g;
    const double w = element(op.w, i) * (1 - op.lr * op.weight_decay) -
                     op.lr / correction1 * m / (std::sqrt(v) / std::sqrt(correction2) + op.eps);
    set_element(op.m, i, m);
    set_element(op.v, i, v);
    set_element(op.w, i, w);
    if (op.working) set_element(op.working, i, w);
  }
}

const char* hwy_supports(const AdamwStep& op) {
  for (const View& v : {View(op.g), View(op.w), View(op.m), View(op.v)}) {
    if (v.dtype != DType::f32 || !v.contiguous()) return "not contiguous F32";
  }
  if (!op.working) return nullptr;
  return op.working.dtype == DType::bf16 && op.working.contiguous() ? nullptr : "working copy is not contiguous BF16";
}

}  // namespace

AdamwScalars adamw_scalars(const AdamwStep& op) {
  const auto step = static_cast<double>(op.step);
  const auto f = [](double v) { return static_cast<float>(v); };
  return {.grad_scale = f(op.grad_scale),
          .keep = f(1 - op.lr * op.weight_decay),
          .one_less_beta1 = f(1 - op.beta1),
          .beta2 = f(op.beta2),
          .one_less_beta2 = f(1 - op.beta2),
          .step_size = f(op.lr / (1 - std::pow(op.beta1, step))),
          .root = f(std::sqrt(1 - std::pow(op.beta2, step))),
          .eps = f(op.eps)};
}

std::span<const Row<AdamwStep>> AdamwStep::rows() {
  static constexpr Row<AdamwStep> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &adamw_step_hwy},
      {.name = "ref", .numerics = "f64", .run = &step_ref},
  };
  return kRows;
}

}  // namespace braid
