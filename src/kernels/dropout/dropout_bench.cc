// Dropout of a GPT-2 residual stream and of the hidden layer of its MLP, whose forward and backward are one map.
#include "kernels/dropout/dropout.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void dropout(benchmark::State& state) {
  const Shape shape{1024, state.range(0)};
  const DType dtype = state.range(1) ? DType::bf16 : DType::f32;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, dtype, shape), y(arena, dtype, shape);
  bench_op(state, ctx, DropoutFwd{.x = x.view(), .y = y.mut(), .rate = 0.1f, .key = {.seed = 1}});
}
BENCHMARK(dropout)->ArgNames({"width", "bf16"})->ArgsProduct({{768, 3072}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace braid
