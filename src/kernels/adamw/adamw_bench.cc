// One step over 16 Mi elements, against the memory roof: 30 bytes per element with a working copy.
#include "kernels/adamw/adamw.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void adamw(benchmark::State& state) {
  const int64_t n = int64_t{16} << 20;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor g = bench_tensor(arena, DType::f32, {n}, 1), w = bench_tensor(arena, DType::f32, {n}, 1),
               m = bench_tensor(arena, DType::f32, {n}, 1), v(arena, DType::f32, {n}), working(arena, DType::bf16, {n});
  fill(v.mut(), 1);
  bench_op(state, ctx,
           AdamwStep{.g = g.view(), .w = w.mut(), .m = m.mut(), .v = v.mut(), .working = working.mut(), .lr = 1e-3});
}
BENCHMARK(adamw)->UseRealTime();

void squares(benchmark::State& state) {
  const int64_t n = int64_t{16} << 20;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor g = bench_tensor(arena, DType::f32, {n}, 1);
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares(ctx, g.view()));
  state.SetBytesProcessed(state.iterations() * n * 4);
}
BENCHMARK(squares)->UseRealTime();

}  // namespace
}  // namespace braid
