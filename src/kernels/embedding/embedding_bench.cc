// Rows of the tables of 3-Nano-4B (131072 x 3136) and GPT-2 (50257 x 768), BF16, ids all over the table. Bytes: the
// rows read and the result written; backward reads and writes the rows of the gradient as well.
#include "kernels/embedding/embedding.h"

#include <vector>

#include "core/op_bench.h"

namespace braid {
namespace {

std::vector<int32_t> scattered(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(t * 7919 % vocab));
  return ids;
}

void forward(benchmark::State& state) {
  const int64_t vocab = state.range(0), width = state.range(1), tokens = state.range(2);
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor table(arena, DType::bf16, {vocab, width}), y(arena, DType::f32, {tokens, width});
  fill(table.mut(), 1);
  const auto ids = scattered(tokens, vocab);
  bench_op(state, ctx,
           EmbeddingFwd{.ids = view_of(ids.data(), {tokens}), .table = dense_weight(table.view()), .y = y.mut()},
           y.view().bytes() * 3 / 2);
}
BENCHMARK(forward)->ArgNames({"vocab", "width", "tokens"})->Args({131072, 3136, 512})->Args({50257, 768, 512});

void backward(benchmark::State& state) {
  const int64_t vocab = state.range(0), width = state.range(1), tokens = state.range(2);
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor dtable(arena, DType::f32, {vocab, width}), dy = bench_tensor(arena, DType::f32, {tokens, width});
  fill(dtable.mut(), 0);
  const auto ids = scattered(tokens, vocab);
  bench_op(state, ctx, EmbeddingBwd{.ids = view_of(ids.data(), {tokens}), .dy = dy.view(), .dtable = dtable.mut()},
           3 * dy.view().bytes());
}
BENCHMARK(backward)->ArgNames({"vocab", "width", "tokens"})->Args({50257, 768, 512})->UseRealTime();

}  // namespace
}  // namespace braid
