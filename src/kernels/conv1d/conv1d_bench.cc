// The convolution at the widths of released models: 512 tokens of a prompt and one token of 16 sequences, and backward
// over 8 sequences of 256 tokens. GB/s of x, y and state (dy, x and dx) against the machine's read rate.
#include "kernels/conv1d/conv1d.h"

#include <vector>

#include "core/op_bench.h"

namespace braid {
namespace {

struct Model {
  const char* name;
  int64_t channels;
};
constexpr Model kModels[] = {{"nemotron-3-nano-4b", 9728}, {"nemotron-3-nano-30b", 6144}, {"nemotron-3-super", 10240}};

void conv1d(benchmark::State& state) {
  const auto& [name, channels] = kModels[state.range(0)];
  const int64_t sequences = state.range(1), tokens = state.range(2);
  SeqMap seqs;
  for (int64_t i = 0; i < sequences; ++i) seqs.add(tokens, 0, i);
  std::vector<float> x(static_cast<size_t>(seqs.tokens() * channels), 0.5f), y(x.size()),
      w(static_cast<size_t>(channels * 4), 0.25f), kept(static_cast<size_t>(sequences * 3 * channels));
  const Conv1dFwd op{.x = view_of(x.data(), {seqs.tokens(), channels}),
                     .w = view_of(w.data(), {channels, 4}),
                     .bias = view_of(w.data(), {channels}),
                     .state = mut_view_of(kept.data(), {sequences, 3, channels}),
                     .y = mut_view_of(y.data(), {seqs.tokens(), channels}),
                     .seqs = &seqs};
  Arena arena;
  Ctx ctx{.arena = arena};
  bench_op(state, ctx, op);
  state.SetLabel(name);
}
BENCHMARK(conv1d)->ArgsProduct({{0, 1, 2}, {1}, {512}})->ArgsProduct({{0, 1, 2}, {16}, {1}})->UseRealTime();

void conv1d_backward(benchmark::State& state) {
  const auto& [name, channels] = kModels[state.range(0)];
  const DType type = state.range(1) ? DType::bf16 : DType::f32;
  SeqMap seqs;
  for (int i = 0; i < 8; ++i) seqs.add(256);
  const Shape shape{seqs.tokens(), channels};
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor dy = bench_tensor(arena, DType::f32, shape), x = bench_tensor(arena, type, shape),
               w = bench_tensor(arena, DType::f32, {channels, 4}), bias = bench_tensor(arena, DType::f32, {channels}),
               dx(arena, DType::f32, shape), dw = bench_tensor(arena, DType::f32, {channels, 4}),
               dbias = bench_tensor(arena, DType::f32, {channels});
  bench_op(state, ctx,
           Conv1dBwd{.dy = dy.view(),
                     .x = x.view(),
                     .w = w.view(),
                     .bias = bias.view(),
                     .dx = dx.mut(),
                     .dw = dw.mut(),
                     .dbias = dbias.mut(),
                     .seqs = &seqs});
  state.SetLabel(name);
}
BENCHMARK(conv1d_backward)->ArgNames({"model", "bf16"})->ArgsProduct({{0, 1, 2}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace braid
