// Rotary embedding of the queries of Llama-3.1-8B and Qwen3-30B-A3B (32 heads of 128), of keys (8), and of a partial
// rotation. Bytes: x read and written, and the rows of the tables that the positions need.
#include "kernels/rope/rope.h"

#include "core/op_bench.h"

namespace braid {
namespace {

void rope(benchmark::State& state) {
  const int64_t heads = state.range(0), half = state.range(1) / 2, tokens = state.range(2), depth = 4096;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, DType::f32, {tokens, heads, 128}),
               cos(arena, DType::f32, {depth + tokens, half}), sin(arena, DType::f32, cos.shape());
  rope_tables({}, cos.mut(), sin.mut());
  const SeqMap seqs = SeqMap::one(tokens, depth);
  bench_op(state, ctx, RopeFwd{.x = x.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs},
           2 * x.view().bytes() + tokens * half * 8);
}
BENCHMARK(rope)
    ->ArgNames({"heads", "rotated", "tokens"})
    ->ArgsProduct({{32}, {128, 64}, {1, 512}})
    ->Args({8, 128, 512})
    ->UseRealTime();

void rope_backward(benchmark::State& state) {
  const int64_t heads = state.range(0), tokens = state.range(1);
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor dx = bench_tensor(arena, DType::f32, {tokens, heads, 128}), cos(arena, DType::f32, {tokens, 64}),
               sin(arena, DType::f32, cos.shape());
  rope_tables({}, cos.mut(), sin.mut());
  const SeqMap seqs = SeqMap::one(tokens);
  bench_op(state, ctx, RopeBwd{.dx = dx.mut(), .cos = cos.view(), .sin = sin.view(), .seqs = &seqs},
           2 * dx.view().bytes() + tokens * 512);
}
BENCHMARK(rope_backward)->ArgNames({"heads", "tokens"})->ArgsProduct({{32, 8}, {1024}})->UseRealTime();

}  // namespace
}  // namespace braid
