// RMSNorm before a block (Nano-30B, 3-Nano-4B, Nemotron-H 47B wide), the gated norm of Mamba-2 in 8 groups (d_in 4096,
// 7680, 16384), and the backward of the plain one. FP32 in, product operands out.
#include "kernels/rms_norm/rms_norm.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void forward(benchmark::State& state) {
  const Shape shape{state.range(1), state.range(0)};
  const bool gated = state.range(2) > 1;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape), w = bench_tensor(arena, DType::f32, {shape[1]}),
               z = gated ? bench_tensor(arena, DType::f32, shape) : Tensor(),
               y(arena, state.range(3) ? DType::bf16 : DType::f32, shape);
  bench_op(state, ctx, RmsNormFwd{.x = x.view(), .w = w.view(), .z = z.view(), .y = y.mut(), .groups = state.range(2)});
}
BENCHMARK(forward)
    ->ArgNames({"width", "tokens", "groups", "bf16"})
    ->ArgsProduct({{2688, 3136, 8192}, {1, 512}, {1}, {1}})
    ->ArgsProduct({{4096, 7680, 16384}, {1, 512}, {8}, {1}})
    ->Args({3136, 512, 1, 0})
    ->UseRealTime();

void backward(benchmark::State& state) {
  const Shape shape{state.range(1), state.range(0)};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape), w = bench_tensor(arena, DType::f32, {shape[1]}),
               rstd = bench_tensor(arena, DType::f32, {shape[0], 1}), dx(arena, DType::f32, shape),
               dw = bench_tensor(arena, DType::f32, {shape[1]});
  bench_op(
      state, ctx,
      RmsNormBwd{.dy = x.view(), .x = x.view(), .w = w.view(), .rstd = rstd.view(), .dx = dx.mut(), .dw = dw.mut()});
}
BENCHMARK(backward)->ArgNames({"width", "tokens"})->Args({3136, 64})->UseRealTime();

}  // namespace
}  // namespace braid
