// LayerNorm at the widths of GPT-2 (768) and Nemotron-4 (6144), with bias: FP32 stream in, product operands out.
#include "kernels/layer_norm/layer_norm.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void layer_norm(benchmark::State& state) {
  const Shape shape{state.range(1), state.range(0)};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape), w = bench_tensor(arena, DType::f32, {shape[1]}),
               y(arena, state.range(2) ? DType::bf16 : DType::f32, shape);
  bench_op(state, ctx, LayerNormFwd{.x = x.view(), .w = w.view(), .bias = w.view(), .y = y.mut()});
}
BENCHMARK(layer_norm)
    ->ArgNames({"width", "tokens", "bf16"})
    ->ArgsProduct({{768, 6144}, {1, 512}, {0, 1}})
    ->UseRealTime();

void backward(benchmark::State& state) {
  const Shape shape{state.range(1), state.range(0)};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor dy = bench_tensor(arena, DType::f32, shape), x = bench_tensor(arena, DType::f32, shape),
               w = bench_tensor(arena, DType::f32, {shape[1]}), dw = bench_tensor(arena, DType::f32, {shape[1]}),
               dbias = bench_tensor(arena, DType::f32, {shape[1]}), dx(arena, DType::f32, shape);
  bench_op(state, ctx,
           LayerNormBwd{
               .dy = dy.view(), .x = x.view(), .w = w.view(), .dx = dx.mut(), .dw = dw.mut(), .dbias = dbias.mut()});
}
BENCHMARK(backward)->ArgNames({"width", "tokens"})->ArgsProduct({{768, 6144}, {1024}})->UseRealTime();

}  // namespace
}  // namespace braid
