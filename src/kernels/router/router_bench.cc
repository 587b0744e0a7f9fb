// Routing at published shapes: Nano-30B, Super and Ultra (sigmoid with a selection bias), Qwen3-30B-A3B (softmax), and
// groups as DeepSeek has them. ns per token is the figure to compare with the experts' time.
#include "kernels/router/router.h"

#include "core/op_bench.h"

namespace braid {
namespace {

struct Model {
  const char* name;
  int64_t experts, k, groups, groups_kept;
  RouterKind kind;
};
constexpr Model kModels[] = {{"nemotron-3-nano-30b", 128, 6, 1, 1, RouterKind::sigmoid},
                             {"nemotron-3-super", 512, 22, 1, 1, RouterKind::sigmoid},
                             {"qwen3-30b-a3b", 128, 8, 1, 1, RouterKind::softmax},
                             {"8 groups, 4 kept", 256, 8, 8, 4, RouterKind::sigmoid}};

void router(benchmark::State& state) {
  const Model& m = kModels[state.range(0)];
  const int64_t tokens = state.range(1);
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor logits = bench_tensor(arena, DType::f32, {tokens, m.experts}, 4),
               bias = bench_tensor(arena, DType::f32, {m.experts}, 0.1f), chosen(arena, DType::i32, {tokens, m.k}),
               weights(arena, DType::f32, {tokens, m.k});
  bench_op(state, ctx,
           RouterFwd{.logits = logits.view(),
                     .bias = bias.view(),
                     .experts = chosen.mut(),
                     .weights = weights.mut(),
                     .kind = m.kind,
                     .n_group = m.groups,
                     .topk_group = m.groups_kept});
  using benchmark::Counter;
  state.counters["s/token"] =
      Counter(static_cast<double>(tokens), Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.SetLabel(m.name);
}
BENCHMARK(router)->ArgNames({"model", "tokens"})->ArgsProduct({{0, 1, 2, 3}, {1, 512}})->UseRealTime();

// Backward with both losses, of sequences of 256 tokens.
void router_backward(benchmark::State& state) {
  const Model& m = kModels[state.range(0)];
  const int64_t tokens = 2048;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor logits = bench_tensor(arena, DType::f32, {tokens, m.experts}, 4),
               dweights = bench_tensor(arena, DType::f32, {tokens, m.k}), chosen(arena, DType::i32, {tokens, m.k}),
               weights(arena, DType::f32, {tokens, m.k}), dlogits(arena, DType::f32, {tokens, m.experts});
  SeqMap seqs;
  for (int64_t t = 0; t < tokens; t += 256) seqs.add(256);
  run(ctx, RouterFwd{.logits = logits.view(), .experts = chosen.mut(), .weights = weights.mut(), .kind = m.kind});
  bench_op(state, ctx,
           RouterBwd{.logits = logits.view(),
                     .experts = chosen.view(),
                     .dweights = dweights.view(),
                     .dlogits = dlogits.mut(),
                     .kind = m.kind,
                     .balance = 1e-4f,
                     .z = 1e-3f,
                     .seqs = &seqs});
  state.SetLabel(m.name);
}
BENCHMARK(router_backward)->ArgName("model")->DenseRange(0, 2)->UseRealTime();

}  // namespace
}  // namespace braid
