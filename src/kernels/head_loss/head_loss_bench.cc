// The head of a training step: GPT-2 124M with 4 x 256 tokens, and a hybrid of 8.5M parameters with 8 x 256. Evaluation
// is one product, training three; bytes are those of w, x and the gradients, once.
#include "kernels/head_loss/head_loss.h"

#include <vector>

#include "core/op_bench.h"

namespace braid {
namespace {

void head(benchmark::State& state, DType type, bool train) {
  const int64_t sequences = state.range(0), vocab = state.range(1), depth = state.range(2), tokens = sequences * 256;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor x = bench_tensor(arena, type, {tokens, depth}), w = bench_tensor(arena, type, {vocab, depth}, 0.1f);
  const Tensor loss(arena, DType::f32, {tokens}), dx(arena, DType::f32, {tokens, depth}),
      dw = bench_tensor(arena, DType::f32, {vocab, depth});
  std::vector<int32_t> targets(static_cast<size_t>(tokens), 17);
  SeqMap seqs;
  for (int64_t i = 0; i < sequences; ++i) seqs.add(256);
  HeadLoss op{.x = x.view(),
              .w = dense_weight(w.view()),
              .targets = view_of(targets.data(), {tokens}),
              .loss = loss.mut(),
              .seqs = &seqs};
  if (train) {
    op.dx = dx.mut();
    op.dw = dw.mut();
  }
  bench_op(state, ctx, op);
}

void train_bf16(benchmark::State& state) { head(state, DType::bf16, true); }
void train_f32(benchmark::State& state) { head(state, DType::f32, true); }
void evaluate_bf16(benchmark::State& state) { head(state, DType::bf16, false); }

void shapes(benchmark::internal::Benchmark* one) {
  one->ArgNames({"sequences", "vocab", "depth"})->Args({4, 50257, 768})->Args({8, 4096, 256});
  if (sys::default_threads() > 1) one->UseRealTime();
  one->Unit(benchmark::kMillisecond);
}
BENCHMARK(train_bf16)->Apply(shapes);
BENCHMARK(train_f32)->Apply(shapes);
BENCHMARK(evaluate_bf16)->Apply(shapes);

}  // namespace
}  // namespace braid
