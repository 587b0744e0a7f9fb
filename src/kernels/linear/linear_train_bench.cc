// The three products of a training step, forward (y = x W^T), data (dx = dy W) and weight (dW += dy^T x), at the shapes
// of GPT-2 124M (4 x 256 tokens) and of a hybrid of 8.5M parameters (8 x 256): dy is F32, as other ops pass it. Each
// line has GFLOP/s and the share of the unit's roof in this run. Before them comes the packed kernel alone, one thread,
// both operands in L2: on zeros and on other values, which draw more power and so lower the clock of tiles.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>

#include "core/op_bench.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_bench.h"
#include "math/packed.h"
#include "sys/roofs.h"

namespace braid {
namespace {

struct Problem {
  const char* what;
  int64_t sequences, rows, depth;  // tokens come in sequences of 256; rows and depth are those of w
};
constexpr Problem kProblems[] = {
    {"gpt2_proj", 4, 768, 768},  {"gpt2_qkv", 4, 2304, 768},       {"gpt2_up", 4, 3072, 768},
    {"gpt2_down", 4, 768, 3072}, {"gpt2_head", 4, 50257, 768},     {"hybrid_in_proj", 8, 1096, 256},
    {"hybrid_up", 8, 1024, 256}, {"hybrid_out_proj", 8, 256, 512},
};

struct Values {
  Arena arena;
  Ctx ctx{.arena = arena};
  SeqMap seqs;
  Tensor x, w, y, dy, dx, dw;
  Values(const Problem& p, DType type)
      : x(bench_tensor(arena, type, {p.sequences * 256, p.depth})),
        w(bench_tensor(arena, type, {p.rows, p.depth})),
        y(arena, type, {p.sequences * 256, p.rows}),
        dy(bench_tensor(arena, DType::f32, {p.sequences * 256, p.rows})),
        dx(arena, DType::f32, {p.sequences * 256, p.depth}),
        dw(bench_tensor(arena, DType::f32, {p.rows, p.depth})) {
    for (int64_t i = 0; i < p.sequences; ++i) seqs.add(256);
  }
  Weight weight() const { return dense_weight(w.view()); }
};

template <class Op>
void measure(benchmark::State& state, Values& v, DType type, const Op& op) {
  bench_op(state, v.ctx, op);
  const sys::Roofs& r = sys::roofs();
  const double roof = type == DType::bf16 && r.bf16_gflops > 0 ? r.bf16_gflops : r.fp32_gflops;
  // With one thread both rates use its CPU clock.
  state.counters["roof%"] =
      benchmark::Counter(100 * op.flops() * 1e-9 / roof, benchmark::Counter::kIsIterationInvariantRate);
}

template <class Make>
void add(const std::string& name, const Problem& p, DType type, Make make) {
  auto* one = benchmark::RegisterBenchmark(name.c_str(), [&p, type, make](benchmark::State& state) {
    Values v(p, type);
    measure(state, v, type, make(v));
  });
  if (sys::default_threads() > 1) one->UseRealTime();
  one->Unit(benchmark::kMicrosecond)->MinTime(0.1)->Repetitions(5)->ReportAggregatesOnly();
}

// 128 x 384 sums over `depth`, for the class that training takes here.
void measure_kernel(benchmark::State& state, bool zeros, int64_t depth) {
  using packed::Class, packed::Side;
  const packed::Kernel kernel = packed::kernel_of(!packed::refusal(Class::bf16_tile)  ? Class::bf16_tile
                                                  : !packed::refusal(Class::bf16_dot) ? Class::bf16_dot
                                                                                      : Class::bf16);
  constexpr int64_t kRows = 128, kCols = 384;
  Arena arena;
  const auto bytes_of = [](const Tensor& t) { return reinterpret_cast<std::byte*>(t.mut().as<uint8_t>()); };
  const auto operand = [&](Side side, int64_t n) {
    const Tensor values = zeros ? Tensor(arena, DType::bf16, {n, depth}) : bench_tensor(arena, DType::bf16, {n, depth});
    if (zeros) std::memset(values.mut().data, 0, static_cast<size_t>(n * depth * 2));
    Tensor panels(arena, DType::u8, {packed::packed_bytes(kernel, side, n, depth)});
    packed::pack(kernel, side, packed::along(values.view()), n, depth, bytes_of(panels));
    return panels;
  };
  const Tensor a = operand(Side::rows, kRows), b = operand(Side::cols, kCols), y(arena, DType::f32, {kRows, kCols});
  for (auto _ : state) {
    packed::product(kernel, {.a = bytes_of(a),
                             .b = bytes_of(b),
                             .m = kRows,
                             .n = kCols,
                             .depth = depth,
                             .y = y.mut().as<float>(),
                             .y_stride = kCols});
  }
  const double flops = 2.0 * kRows * kCols * static_cast<double>(depth);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void add_kernel() {
  for (const bool zeros : {true, false}) {
    for (const int64_t depth : {256, 512, 768}) {
      const std::string name = std::string("train/kernel/") + (zeros ? "zeros/" : "values/") + std::to_string(depth);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { measure_kernel(s, zeros, depth); })
          ->Unit(benchmark::kMicrosecond)
          ->Repetitions(5)
          ->ReportAggregatesOnly();
    }
  }
}

}  // namespace

void add_training_products() {
  add_kernel();
  for (const Problem& p : kProblems) {
    for (const DType type : {DType::bf16, DType::f32}) {
      const std::string name = std::string("train/") + p.what + "/" + name_of(type);
      add(name + "/fwd", p, type,
          [](const Values& v) { return LinearFwd{.x = v.x.view(), .w = v.weight(), .y = v.y.mut(), .train = true}; });
      add(name + "/data", p, type,
          [](const Values& v) { return LinearBwdData{.dy = v.dy.view(), .w = v.weight(), .dx = v.dx.mut()}; });
      add(name + "/weight", p, type, [](const Values& v) {
        return LinearBwdWeight{.dy = v.dy.view(), .x = v.x.view(), .dw = v.dw.mut(), .seqs = &v.seqs};
      });
    }
  }
}

}  // namespace braid
