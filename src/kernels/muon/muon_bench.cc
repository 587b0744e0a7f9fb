// The products of a step on matrices of real models: the attention of gpt2-124m, its fc, an expert of Nemotron 3 Nano.
#include "kernels/muon/muon.h"

#include "core/op_bench.h"

namespace braid {
namespace {

constexpr int64_t kShapes[][2] = {{768, 768}, {3072, 768}, {1856, 2688}};

void muon(benchmark::State& state) {
  const Shape shape{kShapes[state.range(0)][0], kShapes[state.range(0)][1]};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, shape);
  bench_op(state, ctx, Orthogonalize{.x = x.mut()});
}
BENCHMARK(muon)->ArgName("shape")->DenseRange(0, 2)->UseRealTime();

}  // namespace
}  // namespace braid
