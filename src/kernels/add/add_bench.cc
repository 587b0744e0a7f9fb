// The residual sum at the widths of released models: FP32 stream and FP32 block output, as in the blocks.
#include "kernels/add/add.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void add_in_place(benchmark::State& state) {
  const Shape shape{state.range(1), state.range(0)};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape), b(arena, DType::f32, shape);
  fill(b.mut(), 0);
  bench_op(state, ctx, AddFwd{.a = x.view(), .b = b.view(), .y = x.mut()});
}
// Nano-30B, 3-Nano-4B, Nemotron-H 47B.
BENCHMARK(add_in_place)->ArgNames({"width", "tokens"})->ArgsProduct({{2688, 3136, 8192}, {1, 512}})->UseRealTime();

}  // namespace
}  // namespace braid
