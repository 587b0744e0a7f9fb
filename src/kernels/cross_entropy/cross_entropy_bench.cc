// Cross-entropy over the vocabularies of Nemotron (131072) and GPT-2 (50257). Forward reads the logits once from memory
// and once more from a cache; backward reads them and writes as much.
#include "kernels/cross_entropy/cross_entropy.h"

#include <vector>

#include "core/op_bench.h"

namespace braid {
namespace {

struct Problem {
  Arena arena;
  Ctx ctx{.arena = arena};
  Tensor logits, loss, lse;
  std::vector<int32_t> targets;
  explicit Problem(const benchmark::State& state)
      : logits(bench_tensor(arena, DType::f32, {state.range(1), state.range(0)}, 8)),
        loss(arena, DType::f32, {state.range(1)}),
        lse(arena, DType::f32, {state.range(1)}),
        targets(static_cast<size_t>(state.range(1)), 17) {
    run(ctx, fwd());
  }
  View ids() const { return view_of(targets.data(), {std::ssize(targets)}); }
  CrossEntropyFwd fwd() const {
    return {.logits = logits.view(), .targets = ids(), .loss = loss.mut(), .lse = lse.mut()};
  }
};

void forward(benchmark::State& state) {
  Problem p(state);
  bench_op(state, p.ctx, p.fwd());
}
void backward(benchmark::State& state) {
  Problem p(state);
  const Tensor dlogits(p.arena, DType::f32, p.logits.shape());
  bench_op(state, p.ctx,
           CrossEntropyBwd{.dloss = p.loss.view(),
                           .logits = p.logits.view(),
                           .targets = p.ids(),
                           .lse = p.lse.view(),
                           .dlogits = dlogits.mut()});
}
BENCHMARK(forward)->ArgNames({"vocab", "tokens"})->ArgsProduct({{131072, 50257}, {1, 128}})->UseRealTime();
BENCHMARK(backward)->ArgNames({"vocab", "tokens"})->ArgsProduct({{131072, 50257}, {128}})->UseRealTime();

}  // namespace
}  // namespace braid
