#include "kernels/cross_entropy/cross_entropy.h"

#include "core/ref.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const CrossEntropyFwd& op, std::span<std::byte>) {
  const int64_t tokens = op.logits.dim(0);
  std::vector<double> loss(static_cast<size_t>(tokens)), lse(static_cast<size_t>(tokens));
  cross_entropy_fwd_ref(tokens, op.logits.dim(1), to_doubles(op.logits), to_doubles(op.targets), loss, lse);
  store(op.loss, loss);
  store(op.lse, lse);
}

// dlogits = dloss * (softmax(logits) - onehot(target))
void bwd_ref(Ctx&, const CrossEntropyBwd& op, std::span<std::byte>) {
  const int64_t vocab = op.logits.dim(1);
  const auto logits = to_doubles(op.logits), targets = to_doubles(op.targets), lse = to_doubles(op.lse),
             dloss = to_doubles(op.dloss);
  std::vector<double> dlogits(logits.size());
  for (size_t i = 0; i < dlogits.size(); ++i) {
    const size_t t = i / static_cast<size_t>(vocab);
    if (targets[t] < 0) continue;
    const bool hit = static_cast<int64_t>(i) % vocab == static_cast<int64_t>(targets[t]);
    dlogits[i] = dloss[t] * (std::exp(logits[i] - lse[t]) - (hit ? 1 : 0));
  }
  store(op.dlogits, dlogits);
}

}  // namespace

std::span<const Row<CrossEntropyFwd>> CrossEntropyFwd::rows() {
  static constexpr Row<CrossEntropyFwd> kRows[] = {{.name = "ref", .numerics = "f64", .run = &fwd_ref}};
  return kRows;
}
std::span<const Row<CrossEntropyBwd>> CrossEntropyBwd::rows() {
  static constexpr Row<CrossEntropyBwd> kRows[] = {{.name = "ref", .numerics = "f64", .run = &bwd_ref}};
  return kRows;
}

Tensor cross_entropy(Ctx& ctx, const Tensor& logits, const Tensor& targets) {
  const int64_t tokens = logits.dim(0);
  const Tensor loss(ctx.arena, DType::f32, {tokens});
  Tensor lse;
  if (ctx.tape) lse = Tensor(ctx.arena, DType::f32, {tokens});
  const CrossEntropyFwd op{.logits = logits.view(), .targets = targets.view(), .loss = loss.mut(), .lse = lse.mut()};
  run(ctx, op);
  if (!ctx.tape) return loss;
  ctx.tape->record(op, [logits, targets, loss, lse](Ctx& c, Tape& tape) {
    const Tensor dloss = tape.grad(loss);
    if (!dloss) return;
    const Tensor dlogits(c.arena, DType::f32, logits.shape());
    run(c, CrossEntropyBwd{.dloss = dloss.view(),
                           .logits = logits.view(),
                           .targets = targets.view(),
                           .lse = lse.view(),
                           .dlogits = dlogits.mut()});
    tape.add_grad(logits, dlogits);
  });
  return loss;
}

}  // namespace braid
