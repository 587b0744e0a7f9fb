// What the benches of ops share: values in an arena, as engines keep them (huge pages), and the loop with its counters.
// For *_bench.cc only.
#pragma once
#include <benchmark/benchmark.h>

#include "core/op.h"
#include "core/philox.h"
#include "core/tensor.h"

namespace braid {

// Numbers in [-scale, scale), F32 or BF16.
inline Tensor bench_tensor(Arena& arena, DType dtype, const Shape& shape, float scale = 1) {
  Tensor tensor(arena, dtype, shape);
  const MutView v = tensor.mut();
  for (int64_t i = 0; i < shape.count(); ++i) {
    const float value = scale * (2 * uniform(philox({.seed = 1}, static_cast<uint64_t>(i / 4))[i % 4]) - 1);
    if (dtype == DType::bf16) {
      reinterpret_cast<Bf16*>(v.data)[i] = to_bf16(value);
    } else {
      reinterpret_cast<float*>(v.data)[i] = value;
    }
  }
  return tensor;
}

// Whole calls, dispatch included. `bytes` is what a call must move; by default every field once.
template <class Op>
void bench_op(benchmark::State& state, Ctx& ctx, const Op& op, int64_t bytes) {
  for (auto _ : state) run(ctx, op);
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(static_cast<double>(bytes) * 1e-9, Counter::kIsIterationInvariantRate);
  if (op.flops() > 0) state.counters["GFLOP/s"] = Counter(op.flops() * 1e-9, Counter::kIsIterationInvariantRate);
}
template <class Op>
void bench_op(benchmark::State& state, Ctx& ctx, const Op& op) {
  bench_op(state, ctx, op, bytes_of(op));
}

}  // namespace braid
