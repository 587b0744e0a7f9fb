// Speed of attention on real shapes: prefill of one prompt (GFLOP/s) and one step at depth (us per cached token, GB/s
// of cache read), by new tokens, depth, heads, KV heads, width, type of the pages (0 F32, 1 BF16, 2 FP8, 3 INT8); and
// both directions of training on packed sequences that are slices of one fused projection.
#include "kernels/attention/attention.h"

#include <numeric>
#include <vector>

#include "core/op_bench.h"

namespace braid {
namespace {

constexpr DType kPages[] = {DType::f32, DType::bf16, DType::f8_e4m3, DType::i8};

void attention(benchmark::State& state) {
  const int64_t tokens = state.range(0), depth = state.range(1), heads = state.range(2), groups = state.range(3),
                width = state.range(4), page = 64, pages = (depth + tokens + page - 1) / page;
  const DType dtype = kPages[state.range(5)];
  Arena arena;
  const Tensor q = bench_tensor(arena, DType::f32, {tokens, heads, width}),
               y(arena, dtype == DType::f32 ? dtype : DType::bf16, q.shape()),
               k = bench_tensor(arena, dtype, {pages, groups, page, width}),
               v = bench_tensor(arena, dtype, {pages, groups, page, width}),
               scales(arena, DType::f32, {pages, page, groups});
  fill(scales.mut(), 0.01);  // scores as large as with other types: larger ones would give subnormal exponentials
  std::vector<int32_t> table(static_cast<size_t>(pages));
  std::iota(table.rbegin(), table.rend(), 0);
  const SeqMap seqs = SeqMap::one(tokens, depth);
  const auto head_by_head = [](View all) {  // as in engine/state_pool.cc
    std::swap(all.shape[1], all.shape[2]);
    std::swap(all.strides[1], all.strides[2]);
    return all;
  };
  const AttentionFwd op{.q = q.view(),
                        .k_pages = head_by_head(k.view()),
                        .v_pages = head_by_head(v.view()),
                        .k_scales = dtype == DType::i8 ? scales.view() : View(),
                        .v_scales = dtype == DType::i8 ? scales.view() : View(),
                        .page_table = view_of(table.data(), {1, pages}),
                        .y = y.mut(),
                        .seqs = &seqs,
                        .scale = 0.088f};
  Ctx ctx{.arena = arena};
  for (auto _ : state) run(ctx, op);
  using benchmark::Counter;
  state.counters["flops"] = Counter(op.flops(), Counter::kIsIterationInvariantRate);
  state.counters["cache_bytes"] =
      Counter(static_cast<double>(k.view().bytes() + v.view().bytes()), Counter::kIsIterationInvariantRate);
  state.counters["s_per_cached_token"] =
      Counter(static_cast<double>(depth + tokens), Counter::kIsIterationInvariantRate | Counter::kInvert);
}
// Nano-30B (32 / 2), 9B-v2 (40 / 8), a Llama-8B (32 / 8), and one without groups.
BENCHMARK(attention)
    ->Args({512, 0, 32, 2, 128, 0})
    ->Args({512, 0, 32, 2, 128, 1})
    ->Args({512, 0, 40, 8, 128, 0})
    ->Args({512, 0, 40, 8, 128, 1})
    ->Args({512, 8192, 32, 2, 128, 1})
    ->Args({1, 511, 32, 2, 128, 1})
    ->Args({1, 8192, 32, 2, 128, 0})
    ->Args({1, 8192, 32, 2, 128, 1})
    ->Args({1, 32768, 32, 2, 128, 1})
    ->Args({1, 32768, 32, 2, 128, 2})
    ->Args({1, 32768, 32, 2, 128, 3})
    ->Args({4, 8192, 32, 2, 128, 1})
    ->Args({1, 8192, 32, 8, 128, 1})
    ->Args({1, 8192, 32, 8, 128, 2})
    ->Args({1, 8192, 32, 8, 128, 3})
    ->Args({1, 8192, 32, 32, 64, 1})
    ->UseRealTime();

void training(benchmark::State& state) {
  const int64_t count = state.range(0), length = state.range(1), heads = state.range(2), groups = state.range(3),
                width = state.range(4), tokens = count * length;
  const DType dtype = state.range(5) ? DType::bf16 : DType::f32;
  Arena arena;
  Ctx ctx{.arena = arena};
  const Tensor fused = bench_tensor(arena, dtype, {tokens, (heads + 2 * groups) * width}),
               y(arena, dtype, {tokens, heads, width}), lse(arena, DType::f32, {tokens, heads}),
               dy = bench_tensor(arena, DType::f32, {tokens, heads, width}), dfused(arena, DType::f32, fused.shape());
  const auto part = [&](const auto& all, int64_t begin, int64_t n) {
    return all.slice(1, begin * width, n * width).split_last(n, width);
  };
  const auto one_page = [](View rows) {
    rows.shape = {1, rows.dim(0), rows.dim(1), rows.dim(2)};
    rows.strides = {0, rows.strides[0], rows.strides[1], rows.strides[2]};
    return rows;
  };
  SeqMap seqs;
  for (int64_t i = 0; i < count; ++i) seqs.add(length);
  const View q = part(fused.view(), 0, heads), k = part(fused.view(), heads, groups),
             v = part(fused.view(), heads + groups, groups);
  const AttentionFwd fwd{.q = q,
                         .k_pages = one_page(k),
                         .v_pages = one_page(v),
                         .y = y.mut(),
                         .lse = lse.mut(),
                         .seqs = &seqs,
                         .train = true,
                         .scale = 0.125f};
  run(ctx, fwd);
  if (state.range(6) == 0) return bench_op(state, ctx, fwd);
  bench_op(state, ctx,
           AttentionBwd{.dy = dy.view(),
                        .q = q,
                        .k = k,
                        .v = v,
                        .y = y.view(),
                        .lse = lse.view(),
                        .dq = part(dfused.mut(), 0, heads),
                        .dk = part(dfused.mut(), heads, groups),
                        .dv = part(dfused.mut(), heads + groups, groups),
                        .seqs = &seqs,
                        .scale = 0.125f});
}
// GPT-2 124M, the hybrid of 8.5M parameters, and the attention of Nano-30B.
BENCHMARK(training)
    ->ArgNames({"sequences", "length", "heads", "groups", "width", "bf16", "backward"})
    ->ArgsProduct({{4}, {256}, {12}, {12}, {64}, {0, 1}, {0, 1}})
    ->ArgsProduct({{8}, {256}, {4}, {2}, {64}, {1}, {0, 1}})
    ->ArgsProduct({{1}, {1024}, {32}, {2}, {128}, {1}, {0, 1}})
    ->UseRealTime();

}  // namespace
}  // namespace braid
