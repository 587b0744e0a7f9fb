// SSD at the shapes of released models: 512 tokens of a prompt (GFLOP/s of SsdFwd::flops), and one token for each of S
// sequences (GB/s of the state read and written, compared with a plain copy of as many bytes). Training: 8 sequences of
// 256 tokens forward and backward, without a state, backward with F32 and with BF16 activations.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/philox.h"
#include "kernels/ssd/ssd.h"

namespace braid {
namespace {

struct Model {
  const char* name;
  int64_t heads, width, groups, states, chunk;
};
constexpr Model kModels[] = {{"nemotron-3-nano-4b", 96, 80, 8, 128, 256},
                             {"nemotron-3-nano-30b", 64, 64, 8, 128, 128},
                             {"nemotron-3-super", 128, 64, 8, 128, 128},
                             {"nemotron-h-47b", 256, 64, 8, 256, 128},
                             {"hybrid-8.5m", 8, 64, 2, 64, 64}};

struct Problem {
  int64_t heads, width, groups, states;
  SeqMap seqs{};
  std::vector<float> fused, dt, heads_values, state, y;
  std::vector<Bf16> narrow_fused, narrow_y;
  Problem(const Model& m, int64_t sequences, int64_t tokens)
      : heads(m.heads), width(m.width), groups(m.groups), states(m.states) {
    for (int64_t i = 0; i < sequences; ++i) seqs.add(tokens, 0, i);
    const int64_t rows = sequences * tokens;
    fused = values(rows * (heads * width + 2 * groups * states));
    dt = values(rows * heads);
    heads_values = values(heads);
    state = values(sequences * heads * width * states);
    y = values(rows * heads * width);
  }
  static void narrow(const std::vector<float>& from, std::vector<Bf16>& to) {
    to.resize(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](float v) { return to_bf16(v); });
  }
  View fused_rows(DType type) {
    const Shape shape{seqs.tokens(), heads * width + 2 * groups * states};
    if (type == DType::f32) return view_of(fused.data(), shape);
    narrow(fused, narrow_fused);
    return view_of(narrow_fused.data(), shape);
  }
  MutView y_rows(DType type) {
    const Shape shape{seqs.tokens(), heads, width};
    if (type == DType::f32) return mut_view_of(y.data(), shape);
    narrow(y, narrow_y);
    return mut_view_of(narrow_y.data(), shape);
  }
  static std::vector<float> values(int64_t count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (size_t i = 0; i < v.size(); ++i) v[i] = normal4({.seed = 1}, i / 4)[i % 4];
    return v;
  }
  template <class Op>
  Op op(DType type = DType::f32) {
    const int64_t inner = heads * width, outer = groups * states, rows = seqs.tokens();
    const View row = fused_rows(type);
    Op op{};
    op.x = row.slice(1, 0, inner).split_last(heads, width);
    op.b = row.slice(1, inner, outer).split_last(groups, states);
    op.c = row.slice(1, inner + outer, outer).split_last(groups, states);
    op.dt = view_of(dt.data(), {rows, heads});
    op.dt_bias = op.a_log = op.d_skip = view_of(heads_values.data(), {heads});
    op.state = mut_view_of(state.data(), {std::ssize(seqs.seqs), heads, width, states});
    op.y = y_rows(type);
    op.seqs = &seqs;
    return op;
  }
};

void per_second(benchmark::State& state, const char* name, double amount) {
  state.counters[name] = benchmark::Counter(amount * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void prefill(benchmark::State& state) {
  const Model& model = kModels[state.range(0)];
  Problem problem(model, 1, 512);
  SsdFwd op = problem.op<SsdFwd>();
  op.chunk = model.chunk;
  Arena arena;
  Ctx ctx{.arena = arena};
  for (auto _ : state) run(ctx, op);
  state.SetLabel(model.name);
  per_second(state, "GFLOP/s", op.flops());
  per_second(state, "GB/s", static_cast<double>(bytes_of(op)));
}
BENCHMARK(prefill)->DenseRange(0, 3)->UseRealTime();

void train_forward(benchmark::State& state) {
  const Model& model = kModels[state.range(0)];
  Problem problem(model, 8, 256);
  SsdFwd op = problem.op<SsdFwd>();
  op.chunk = model.chunk;
  op.state = {};
  Arena arena;
  Ctx ctx{.arena = arena};
  for (auto _ : state) run(ctx, op);
  state.SetLabel(model.name);
  per_second(state, "GFLOP/s", op.flops());
}
BENCHMARK(train_forward)->DenseRange(0, 4)->UseRealTime();

void train_backward(benchmark::State& state) {
  const Model& model = kModels[state.range(0)];
  Problem problem(model, 8, 256);
  const DType type = state.range(1) ? DType::bf16 : DType::f32;
  const SsdFwd forward = problem.op<SsdFwd>(type);
  std::vector<float> grads(problem.fused.size()), ddt(problem.dt.size()), sums(3 * problem.heads_values.size());
  const int64_t heads = model.heads, inner = heads * model.width, outer = model.groups * model.states;
  const MutView row = mut_view_of(grads.data(), {problem.seqs.tokens(), inner + 2 * outer});
  const SsdBwd op{.dy = forward.y,
                  .x = forward.x,
                  .b = forward.b,
                  .c = forward.c,
                  .dt = forward.dt,
                  .dt_bias = forward.dt_bias,
                  .a_log = forward.a_log,
                  .d_skip = forward.d_skip,
                  .dx = row.slice(1, 0, inner).split_last(heads, model.width),
                  .db = row.slice(1, inner, outer).split_last(model.groups, model.states),
                  .dc = row.slice(1, inner + outer, outer).split_last(model.groups, model.states),
                  .ddt = mut_view_of(ddt.data(), {problem.seqs.tokens(), heads}),
                  .ddt_bias = mut_view_of(sums.data(), {heads}),
                  .da_log = mut_view_of(sums.data() + heads, {heads}),
                  .dd_skip = mut_view_of(sums.data() + 2 * heads, {heads}),
                  .seqs = &problem.seqs,
                  .chunk = model.chunk};
  Arena arena;
  Ctx ctx{.arena = arena};
  for (auto _ : state) run(ctx, op);
  state.SetLabel(std::string(model.name) + " " + name_of(type));
  per_second(state, "GFLOP/s", op.flops());
}
BENCHMARK(train_backward)->ArgsProduct({{0, 1, 2, 3, 4}, {0, 1}})->UseRealTime();

// 32 sequences, so that the states do not stay in the caches.
void step(benchmark::State& state) {
  const Model& model = kModels[state.range(0)];
  Problem problem(model, 32, state.range(1));
  const SsdStep op = problem.op<SsdStep>();
  Arena arena;
  Ctx ctx{.arena = arena};
  for (auto _ : state) run(ctx, op);
  state.SetLabel(model.name);
  per_second(state, "GFLOP/s", op.flops());
  per_second(state, "GB/s", 2 * static_cast<double>(op.state.bytes()));
}
BENCHMARK(step)->ArgsProduct({{0, 1, 2, 3}, {1}})->ArgsProduct({{0}, {4, 8}})->UseRealTime();

void copy_of_the_state(benchmark::State& state) {
  const Model& model = kModels[state.range(0)];
  Problem problem(model, 32, 1);
  std::vector<float> to(problem.state.size());
  for (auto _ : state) {
    sys::parallel_for(sys::default_threads(), std::ssize(to), 1 << 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, problem.state.data() + begin, static_cast<size_t>(end - begin) * sizeof(float));
    });
  }
  state.SetLabel(model.name);
  per_second(state, "GB/s", 2 * static_cast<double>(to.size() * sizeof(float)));
}
BENCHMARK(copy_of_the_state)->DenseRange(0, 3)->UseRealTime();

}  // namespace
}  // namespace braid
