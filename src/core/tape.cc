#include "core/tape.h"

namespace braid {

Tensor Tape::grad(const Tensor& value) const {
  const auto found = grads_.find(value.id());
  return found == grads_.end() ? Tensor() : found->second;
}

void Tape::add_grad(const Tensor& value, Tensor grad) {
  const auto [entry, is_new] = grads_.try_emplace(value.id(), grad);
  if (is_new) return;
  const MutView sum = entry->second.mut();
  CHECK(sum.shape == grad.shape(), "gradients {} and {}", to_string(sum.shape), to_string(grad.shape()));
  if (sum.dtype == DType::f32 && grad.dtype() == DType::f32 && sum.contiguous() && grad.view().contiguous()) {
    auto* to = sum.as<float>();
    const auto* from = grad.view().as<float>();
    for (int64_t i = 0; i < sum.count(); ++i) to[i] += from[i];
    return;
  }
  for (int64_t i = 0; i < sum.count(); ++i) set_element(sum, i, element(sum, i) + element(grad.view(), i));
}

void Tape::backward(Ctx& ctx) {
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) node->backward(ctx, *this);
}

}  // namespace braid
