// Experts at published shapes: 3 Nano (2688 wide, 1856 hidden, 6 active) and the latent ones of 3 Super (1024 wide,
// 2688 hidden, 22 active). Weight bytes per second for decode, which they bound; FLOP/s for prefill. Only some of the
// experts are allocated, enough to exceed any cache; each call uses different ones, as decoding does.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "core/op_bench.h"
#include "kernels/experts/experts.h"

namespace braid {
namespace {

struct Shape3 {
  int64_t width, hidden, k, count;
};
constexpr Shape3 kShapes[] = {{2688, 1856, 6, 24}, {1024, 2688, 22, 66}};

// Realistic weights for the multiplier: BF16 numbers in [1, 2) and (-2, -1].
std::vector<Bf16> numbers(int64_t n, uint32_t seed) {
  std::vector<Bf16> values(static_cast<size_t>(n));
  for (Bf16& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v.bits = static_cast<uint16_t>(0x3f80u | (seed >> 16 & 0x807fu));
  }
  return values;
}

void experts(benchmark::State& state) {
  const Shape3 s = kShapes[state.range(0)];
  const int64_t tokens = state.range(1);
  std::deque<std::vector<Bf16>> bytes;
  std::vector<Weight> up, down;
  for (int64_t e = 0; e < s.count; ++e) {
    const auto seed = static_cast<uint32_t>(e);
    up.push_back(
        dense_weight(view_of(bytes.emplace_back(numbers(s.hidden * s.width, seed)).data(), {s.hidden, s.width})));
    down.push_back(
        dense_weight(view_of(bytes.emplace_back(numbers(s.width * s.hidden, seed)).data(), {s.width, s.hidden})));
  }
  const std::vector<Bf16> x = numbers(tokens * s.width, 1);
  std::vector<int32_t> chosen(static_cast<size_t>(tokens * s.k));
  const std::vector<float> weights(chosen.size(), 0.1f);
  std::vector<float> y(static_cast<size_t>(tokens * s.width));
  Arena arena;
  Ctx ctx{.arena = arena};
  const ExpertsFwd op{.x = view_of(x.data(), {tokens, s.width}),
                      .experts = view_of(chosen.data(), {tokens, s.k}),
                      .weights = view_of(weights.data(), {tokens, s.k}),
                      .up = up,
                      .down = down,
                      .y = mut_view_of(y.data(), {tokens, s.width})};
  int32_t next = 0;
  int64_t read = 0;
  for (auto _ : state) {
    for (int32_t& e : chosen) e = next++ % static_cast<int32_t>(s.count);
    run(ctx, op);
    read += std::min(s.count, tokens * s.k) * (up[0].bytes() + down[0].bytes());
  }
  state.SetBytesProcessed(read);
  state.counters["FLOP/s"] = benchmark::Counter(op.flops() * static_cast<double>(state.iterations()),
                                                benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}
BENCHMARK(experts)->ArgNames({"shape", "tokens"})->ArgsProduct({{0, 1}, {1, 4, 32, 512}})->UseRealTime();

// Backward of a training batch, sequences of 256 tokens: Nano's shapes with fewer experts, and hybrid-8.5m's.
struct Training {
  int64_t width, hidden, k, count, tokens;
};
constexpr Training kTraining[] = {{2688, 1856, 6, 16, 512}, {128, 192, 4, 16, 2048}, {1024, 2688, 22, 64, 256}};

void experts_backward(benchmark::State& state) {
  const Training s = kTraining[state.range(0)];
  const bool saved = state.range(1) == 1;
  Arena arena;
  Ctx ctx{.arena = arena};
  std::vector<Tensor> keep;
  std::vector<Weight> up, down;
  std::vector<MutView> dup, ddown;
  for (int64_t e = 0; e < s.count; ++e) {
    up.push_back(dense_weight(keep.emplace_back(bench_tensor(arena, DType::bf16, {s.hidden, s.width})).view()));
    down.push_back(dense_weight(keep.emplace_back(bench_tensor(arena, DType::bf16, {s.width, s.hidden})).view()));
    dup.push_back(keep.emplace_back(bench_tensor(arena, DType::f32, {s.hidden, s.width})).mut());
    ddown.push_back(keep.emplace_back(bench_tensor(arena, DType::f32, {s.width, s.hidden})).mut());
  }
  const Tensor x = bench_tensor(arena, DType::bf16, {s.tokens, s.width}),
               dy = bench_tensor(arena, DType::f32, {s.tokens, s.width}),
               weights = bench_tensor(arena, DType::f32, {s.tokens, s.k}), dx(arena, DType::f32, {s.tokens, s.width}),
               dweights(arena, DType::f32, {s.tokens, s.k}), experts(arena, DType::i32, {s.tokens, s.k}),
               u = bench_tensor(arena, DType::bf16, {s.tokens, s.k, s.hidden});
  for (int64_t i = 0; i < s.tokens * s.k; ++i)
    experts.mut().as<int32_t>()[i] = static_cast<int32_t>((i * 7 + i / s.k * 5) % s.count);
  SeqMap seqs;
  for (int64_t t = 0; t < s.tokens; t += 256) seqs.add(256);
  bench_op(state, ctx,
           ExpertsBwd{.dy = dy.view(),
                      .x = x.view(),
                      .experts = experts.view(),
                      .weights = weights.view(),
                      .up = up,
                      .down = down,
                      .u = saved ? u.view() : View(),
                      .dx = dx.mut(),
                      .dweights = dweights.mut(),
                      .dup = dup,
                      .ddown = ddown,
                      .seqs = &seqs});
}
BENCHMARK(experts_backward)->ArgNames({"shape", "saved"})->ArgsProduct({{0, 1, 2}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace braid
