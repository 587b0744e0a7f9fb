// Half the width of released models: what two ranks have of the residual stream.
#include "kernels/row_dots/row_dots.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void row_squares(benchmark::State& state) {
  const Shape shape{state.range(1), state.range(0)};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape), y(arena, DType::f32, {shape[0]});
  bench_op(state, ctx, RowDots{.a = x.view(), .b = x.view(), .y = y.mut()});
}
// Nano-30B, 3-Nano-4B, Nemotron-H 47B.
BENCHMARK(row_squares)->ArgNames({"width", "tokens"})->ArgsProduct({{1344, 1568, 4096}, {512}})->UseRealTime();

}  // namespace
}  // namespace braid
