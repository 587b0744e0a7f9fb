// RMSNorm before a block (Nano-30B, 3-Nano-4B, Nemotron-H 47B wide), the gated norm of Mamba-2 in 8 groups (d_in 4096,
// 7680, 16384), and their backward over 8 sequences of 256 tokens. FP32 in, product operands out.
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
  const int64_t width = state.range(0), groups = state.range(1);
  const DType type = state.range(2) ? DType::bf16 : DType::f32;
  SeqMap seqs;
  for (int i = 0; i < 8; ++i) seqs.add(256);
  const Shape shape{seqs.tokens(), width};
  Arena arena;
  Ctx ctx{.arena = arena};
  const bool gated = groups > 1;
  const Tensor dy = bench_tensor(arena, DType::f32, shape), x = bench_tensor(arena, type, shape),
               z = gated ? bench_tensor(arena, type, shape) : Tensor(), w = bench_tensor(arena, DType::f32, {width}),
               dx(arena, DType::f32, shape), dz = gated ? Tensor(arena, DType::f32, shape) : Tensor(),
               dw = bench_tensor(arena, DType::f32, {width});
  bench_op(state, ctx,
           RmsNormBwd{.dy = dy.view(),
                      .x = x.view(),
                      .w = w.view(),
                      .z = z.view(),
                      .dx = dx.mut(),
                      .dz = dz.mut(),
                      .dw = dw.mut(),
                      .seqs = &seqs,
                      .groups = groups});
}
BENCHMARK(backward)
    ->ArgNames({"width", "groups", "bf16"})
    ->ArgsProduct({{2688, 3136}, {1}, {0, 1}})
    ->ArgsProduct({{4096, 7680}, {8}, {0, 1}})
    ->UseRealTime();

}  // namespace
}  // namespace braid
