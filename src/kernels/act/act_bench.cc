// Activations at the widths of released models, a prompt of 512 tokens and one step. Bytes are read and written once.
#include "kernels/act/act.h"

#include "core/op_bench.h"

namespace braid {
namespace {

struct Model {
  const char* name;
  int64_t width;
  Act kind;
  bool gated;
};
constexpr Model kModels[] = {{"nemotron-3-nano-4b", 12544, Act::relu2, false},
                             {"nemotron-h-47b", 30720, Act::relu2, false},
                             {"llama-3.1-8b", 14336, Act::silu, true},
                             {"gpt2-124m", 3072, Act::gelu_tanh, false}};

void act(benchmark::State& state) {
  const Model& m = kModels[state.range(0)];
  const Shape shape{state.range(1), m.width};
  const DType dtype = state.range(2) ? DType::bf16 : DType::f32;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape, 4), y(arena, dtype, shape),
               gate = m.gated ? bench_tensor(arena, DType::f32, shape, 4) : Tensor();
  bench_op(state, ctx, ActFwd{.x = x.view(), .gate = gate.view(), .y = y.mut(), .kind = m.kind});
  state.SetLabel(m.name);
}
BENCHMARK(act)
    ->ArgNames({"model", "tokens", "bf16"})
    ->ArgsProduct({{0, 1, 2, 3}, {512}, {0, 1}})
    ->ArgsProduct({{0, 2}, {1}, {1}})
    ->UseRealTime();

void act_backward(benchmark::State& state) {
  const Model& m = kModels[state.range(0)];
  const Shape shape{state.range(1), m.width};
  const DType dtype = state.range(2) ? DType::bf16 : DType::f32;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor dy = bench_tensor(arena, DType::f32, shape), x = bench_tensor(arena, dtype, shape, 4),
               dx(arena, DType::f32, shape), gate = m.gated ? bench_tensor(arena, dtype, shape, 4) : Tensor(),
               dgate = m.gated ? Tensor(arena, DType::f32, shape) : Tensor();
  bench_op(state, ctx,
           ActBwd{.dy = dy.view(),
                  .x = x.view(),
                  .gate = gate.view(),
                  .dx = dx.mut(),
                  .dgate = m.gated ? dgate.mut() : MutView(),
                  .kind = m.kind});
  state.SetLabel(m.name);
}
BENCHMARK(act_backward)->ArgNames({"model", "tokens", "bf16"})->ArgsProduct({{0, 2, 3}, {1024}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace braid
