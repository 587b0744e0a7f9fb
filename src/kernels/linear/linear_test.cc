// Tolerances, relative to the root mean square of the result: FP32 1e-5; BF16 operands are rounded before the test, so
// only the order of sums differs: 1e-5 too; BF16 results 1/128.
#include "kernels/linear/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/linear/linear_ref.h"
#include "kernels/linear/linear_rows.h"
#include "sys/machine.h"

namespace braid {
namespace {

struct Case {
  int64_t tokens, rows, depth;
};
constexpr Case kCases[] = {{1, 58, 96}, {5, 17, 83}, {7, 480, 96}, {33, 40, 1856}, {2, 1, 1}, {3, 260, 2688}};

TEST(Linear, EveryRowAgreesWithTheReference) {
  for (const Case& c : kCases) {
    for (const DType x_type : {DType::f32, DType::bf16}) {
      for (const DType w_type : {DType::f32, DType::bf16, DType::f16}) {
        if (x_type == DType::bf16 && w_type != DType::bf16) continue;  // rounding the weight is part of that class
        TestTensor x(x_type, {c.tokens, c.depth}, 1), w(w_type, {c.rows, c.depth}, 2), bias(DType::f32, {c.rows}, 3),
            y(DType::f32, {c.tokens, c.rows}, 4);
        LinearFwd op{.x = x.view(), .w = dense_weight(w.view()), .bias = bias.view(), .y = y.mut()};
        sweep(op, 2e-5, 2e-5);
        op.train = true;
        sweep(op, 2e-5, 2e-5);
      }
    }
  }
}

using RunLinear = void (*)(Ctx&, const LinearFwd&, std::span<std::byte>);

// Tiles, which this machine may not choose, against the reference; then some of its rows alone and in other teams,
// which must give the same bits.
void hold_tiles(const Case& c, RunLinear variant) {
  TestTensor x(DType::bf16, {c.tokens, c.depth}, 1), w(DType::bf16, {c.rows, c.depth}, 2),
      bias(DType::f32, {c.rows}, 3), want(DType::f32, {c.tokens, c.rows}, 4), all(DType::f32, {c.tokens, c.rows}, 5),
      one(DType::f32, {1, c.rows}, 6);
  Arena arena;
  Ctx ctx{.arena = arena};
  const auto compute = [&](const View& from, const MutView& to, int threads) {
    const LinearFwd op{.x = from, .w = dense_weight(w.view()), .bias = bias.view(), .y = to};
    const Tensor scratch(arena, DType::u8, {linear_engine_workspace(kSoftTiles, op, threads)});
    ctx.threads = threads;
    variant(ctx, op, {scratch.mut().data, static_cast<size_t>(scratch.view().bytes())});
  };
  const LinearFwd reference{.x = x.view(), .w = dense_weight(w.view()), .bias = bias.view(), .y = want.mut()};
  run_row(ctx, reference, LinearFwd::rows().back());
  compute(x.view(), all.mut(), 2);
  EXPECT_LE(distance(all.view(), want.view()), 2e-5) << c.tokens << " x " << c.rows << " x " << c.depth;
  for (int64_t t = 0; t < c.tokens; t += t < c.tokens - 3 ? 3 : 1) {
    compute(x.view().slice(0, t, 1), one.mut(), 1);
    EXPECT_EQ(std::memcmp(one.bytes.data(), all.view().slice(0, t, 1).data, one.bytes.size()), 0) << t;
  }
}

void soft_tiles(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  linear_fwd_engine(kSoftTiles, ctx, op, workspace);
}
void hard_tiles(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  linear_fwd_engine(kTiles, ctx, op, workspace);
}

// Edges of 16 rows, 32 columns, steps of 32 and chunks of 512 along k.
constexpr Case kTileCases[] = {{1, 32, 32}, {5, 17, 83}, {16, 33, 64}, {33, 70, 515}, {2, 1, 1}, {515, 3, 40}};

TEST(Linear, TilesInSoftwareAgreeWithTheReference) {
  for (const Case& c : kTileCases) hold_tiles(c, &soft_tiles);
}

TEST(Linear, TilesInHardwareAgreeWithTheReference) {
  if (!sys::machine().amx) GTEST_SKIP() << "no tiles on this machine";
  for (const Case& c : kTileCases) hold_tiles(c, &hard_tiles);
}

// Quantised weights on tiles, at edges of blocks, steps, strips and chunks; the same bits however rows are batched.
void hold_coded_tiles(const Case& c, const TestWeight& w) {
  TestTensor x(DType::bf16, {c.tokens, c.depth}, 1), want(DType::f32, {c.tokens, c.rows}, 4),
      soft(DType::f32, {c.tokens, c.rows}, 5), hard(DType::f32, {c.tokens, c.rows}, 6), one(DType::f32, {1, c.rows}, 7);
  Arena arena;
  Ctx ctx{.arena = arena};
  run_row(ctx, LinearFwd{.x = x.view(), .w = w.weight(), .y = want.mut()}, LinearFwd::rows().back());
  const auto compute = [&](RunLinear variant, const View& from, const MutView& to, int threads) {
    const LinearFwd op{.x = from, .w = w.weight(), .y = to};
    const Tensor scratch(arena, DType::u8, {linear_engine_workspace(kSoftTiles, op, threads)});
    ctx.threads = threads;
    variant(ctx, op, {scratch.mut().data, static_cast<size_t>(scratch.view().bytes())});
  };
  compute(&soft_tiles, x.view(), soft.mut(), 2);
  EXPECT_LE(distance(soft.view(), want.view()), 2e-5) << c.tokens << " x " << c.rows << " x " << c.depth;
  if (!sys::machine().amx) return;
  compute(&hard_tiles, x.view(), hard.mut(), 2);
  EXPECT_LE(distance(hard.view(), want.view()), 2e-5) << c.tokens << " x " << c.rows << " x " << c.depth;
  for (int64_t t = 0; t < c.tokens; t += t < c.tokens - 3 ? 3 : 1) {
    compute(&hard_tiles, x.view().slice(0, t, 1), one.mut(), 1);
    EXPECT_EQ(std::memcmp(one.bytes.data(), hard.view().slice(0, t, 1).data, one.bytes.size()), 0) << t;
  }
}

TEST(Linear, TilesDecodeWeights) {
  constexpr Case kCoded[] = {{1, 32, 32}, {5, 17, 80},    {16, 33, 64}, {33, 70, 528},
                             {2, 1, 16},  {37, 96, 1040}, {515, 3, 48}};
  for (const Case& c : kCoded) {
    for (const Format format : {Format::nvfp4, Format::f8_e4m3})
      hold_coded_tiles(c, TestWeight(format, c.rows, c.depth, 2, 0.05));
    const Case blocks{c.tokens, c.rows, (c.depth + 63) / 64 * 64};
    hold_coded_tiles(blocks, TestWeight(GgmlType::nvfp4, c.rows, blocks.depth, 2, 0.05));
  }
}

// Integer products: x of 16 bits relative to its row's largest value, or of 8 bits relative to that of a group. The
// same bits however rows are batched.
struct Whole {
  CodeDots codes;
  const char* row;
  double bound;

  // Null: the row takes it.
  const char* refusal(const LinearFwd& op) const {
    const auto rows = LinearFwd::rows();
    return std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return std::string_view(r.name) == row; })
        ->supports(op);
  }
};
constexpr Whole kStep{CodeDots::a16, "codes_dot", 2e-4}, kMany{CodeDots::a8, "codes_a8", 2e-2};

template <class Kind>  // Format or GgmlType
void hold_whole(const Whole& whole, const Case& c, Kind kind) {
  const TestWeight w(kind, c.rows, c.depth, 2, 0.05);
  TestTensor x(DType::bf16, {c.tokens, c.depth}, 1), bias(DType::f32, {c.rows}, 3),
      want(DType::f32, {c.tokens, c.rows}, 4), got(DType::f32, {c.tokens, c.rows}, 5), one(DType::f32, {1, c.rows}, 6);
  Arena arena;
  Ctx ctx{.arena = arena};
  run_row(ctx, LinearFwd{.x = x.view(), .w = w.weight(), .bias = bias.view(), .y = want.mut()},
          LinearFwd::rows().back());
  LinearFwd op{.x = x.view(), .w = w.weight(), .bias = bias.view(), .y = got.mut(), .codes = whole.codes};
  if (const char* reason = whole.refusal(op)) GTEST_SKIP() << reason;
  sweep(op, whole.bound);
  ctx.forced_rows[LinearFwd::name] = whole.row;
  ctx.threads = 3;
  run(ctx, op);
  EXPECT_LE(distance(got.view(), want.view()), whole.bound) << c.tokens << " x " << c.rows << " x " << c.depth;
  EXPECT_GT(distance(got.view(), want.view()), 1e-7) << "is this the right class?";
  ctx.threads = 1;
  for (int64_t t = 0; t < c.tokens; ++t) {
    op.x = x.view().slice(0, t, 1);
    op.y = one.mut();
    run(ctx, op);
    EXPECT_EQ(std::memcmp(one.bytes.data(), got.view().slice(0, t, 1).data, one.bytes.size()), 0) << t;
  }
  op.x = x.view();
  op.y = got.mut();
  op.codes = CodeDots::none;
  EXPECT_NE(whole.refusal(op), nullptr);
}

TEST(Linear, AStepMultipliesCodesAsIntegers) {
  constexpr Case kSteps[] = {{1, 32, 32},   {4, 17, 80},    {3, 70, 528}, {2, 1, 16},
                             {1, 96, 1040}, {4, 130, 2688}, {2, 64, 1856}};
  for (const Case& c : kSteps) hold_whole(kStep, c, Format::nvfp4);
}

TEST(Linear, AStepMultipliesBlocksOfGguf) {
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q4_0, GgmlType::q4_1, GgmlType::q5_0, GgmlType::q5_1,
                              GgmlType::iq4_nl, GgmlType::mxfp4}) {
    SCOPED_TRACE(ggml_type(static_cast<uint32_t>(type))->name);
    for (const Case& c : {Case{1, 32, 32}, {4, 17, 96}, {3, 70, 544}, {4, 130, 2688}, {2, 1, 1856}})
      hold_whole(kStep, c, type);
  }
  for (const GgmlType type : {GgmlType::q4_k, GgmlType::q5_k, GgmlType::q6_k, GgmlType::nvfp4}) {
    SCOPED_TRACE(ggml_type(static_cast<uint32_t>(type))->name);
    for (const Case& c : {Case{1, 32, 256}, {4, 17, 768}, {3, 1, 2560}}) hold_whole(kStep, c, type);
  }
}

// Also more rows than are packed at a time.
TEST(Linear, ManyRowsMultiplyCodesWithEightBits) {
  constexpr Case kMost[] = {{1, 32, 32}, {7, 17, 80}, {18, 150, 528}, {5, 64, 1856}, {1040, 9, 64}};
  for (const Case& c : kMost) hold_whole(kMany, c, Format::nvfp4);
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q4_1, GgmlType::mxfp4}) {
    SCOPED_TRACE(ggml_type(static_cast<uint32_t>(type))->name);
    for (const Case& c : {Case{3, 32, 32}, {13, 70, 544}}) hold_whole(kMany, c, type);
  }
  for (const GgmlType type : {GgmlType::q4_k, GgmlType::q6_k}) {
    SCOPED_TRACE(ggml_type(static_cast<uint32_t>(type))->name);
    hold_whole(kMany, {7, 130, 768}, type);
  }
}

TEST(Linear, QuantisedWeightsAreMultipliedInPlace) {
  const int64_t rows = 6, cols = 48, tokens = 3;
  TestTensor x(DType::f32, {tokens, cols}, 2), y(DType::f32, {tokens, rows}, 3);
  for (const Format format : {Format::nvfp4, Format::f8_e4m3}) {
    const TestWeight w(format, rows, cols, 1);
    sweep(LinearFwd{.x = x.view(), .w = w.weight(), .y = y.mut()}, 1e-5);
  }
}

// Depths that cut the blocks of 256 values where a product cuts its depth.
TEST(Linear, BlocksOfGgufAreMultipliedInPlace) {
  constexpr Case kBlocks[] = {{1, 5, 256}, {5, 17, 768}, {33, 70, 1280}};
  for (const GgmlType type :
       {GgmlType::q8_0, GgmlType::q4_0, GgmlType::q4_k, GgmlType::q6_k, GgmlType::iq4_nl, GgmlType::mxfp4}) {
    for (const Case& c : kBlocks) {
      const TestWeight w(type, c.rows, c.depth, 2, 0.05);
      for (const DType x_type : {DType::f32, DType::bf16}) {
        TestTensor x(x_type, {c.tokens, c.depth}, 1), y(DType::f32, {c.tokens, c.rows}, 4),
            dx(DType::f32, {c.tokens, c.depth}, 6);
        LinearFwd op{.x = x.view(), .w = w.weight(), .y = y.mut()};
        const LinearBwdData backward{.dy = y.view(), .w = w.weight(), .dx = dx.mut(), .wide = x_type == DType::f32};
        sweep(op, 1e-5, 0.01);
        sweep(backward, 1e-5);
        Arena arena;
        const Ctx ctx{.arena = arena};
        for (const bool train : {false, true}) {
          op.train = train;
          EXPECT_STRNE(choose(ctx, op).name, "ref") << ggml_type(static_cast<uint32_t>(type))->name;
        }
        EXPECT_STRNE(choose(ctx, backward).name, "ref");
      }
    }
  }
}

// Training over frozen weights of any format decodes them as inference does; a row other than the reference takes it.
TEST(Linear, TrainingDecodesQuantisedWeights) {
  constexpr Case kDecoded[] = {{5, 17, 48}, {3, 112, 1056}, {3, 1056, 112}};
  for (const Case& c : kDecoded) {
    for (const Format format : {Format::f16, Format::f8_e4m3, Format::nvfp4}) {
      const TestWeight w(format, c.rows, c.depth, 2);
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const DType out : {DType::f32, DType::bf16}) {
          TestTensor x(type, {c.tokens, c.depth}, 1), bias(DType::f32, {c.rows}, 3), y(out, {c.tokens, c.rows}, 4),
              dy(DType::f32, {c.tokens, c.rows}, 5), dx(out, {c.tokens, c.depth}, 6);
          const LinearFwd forward{.x = x.view(), .w = w.weight(), .bias = bias.view(), .y = y.mut(), .train = true};
          const LinearBwdData backward{.dy = dy.view(), .w = w.weight(), .dx = dx.mut(), .wide = type == DType::f32};
          Arena arena;
          const Ctx ctx{.arena = arena};
          EXPECT_STRNE(choose(ctx, forward).name, "ref") << name_of(format);
          EXPECT_STRNE(choose(ctx, backward).name, "ref") << name_of(format);
          const double tolerance = out == DType::bf16 ? 0.03 : 2e-5;
          sweep(forward, tolerance, 0.03);
          sweep(backward, tolerance, 0.03);
        }
      }
    }
  }
}

// F32 activations over a BF16 weight: the gradient keeps forward's precision.
TEST(Linear, AWideGradientIsNotRounded) {
  TestTensor w(DType::bf16, {40, 70}, 1), dy(DType::f32, {9, 40}, 2), dx(DType::f32, {9, 70}, 3);
  const LinearBwdData op{.dy = dy.view(), .w = dense_weight(w.view()), .dx = dx.mut(), .wide = true};
  Arena arena;
  EXPECT_STREQ(choose(Ctx{.arena = arena}, op).numerics, "f32_chain");
  sweep(op, 2e-5);
}

// Odd sizes, either type for every operand, rows that are slices of wider ones, documents of any length.
TEST(Linear, EveryRowOfBackwardAgreesWithTheReference) {
  constexpr Case kBwdCases[] = {{1, 1, 1},     {5, 17, 83},    {37, 503, 50},  {261, 49, 97},
                                {3, 1100, 33}, {37, 300, 800}, {300, 1100, 60}};
  for (const Case& c : kBwdCases) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        TestTensor wide(dtype, {c.tokens, c.rows + 3}, 1), w(type, {c.rows, c.depth}, 2),
            x(type, {c.tokens, c.depth}, 3), dx(dtype, {c.tokens, c.depth}, 4), dw(DType::f32, {c.rows, c.depth}, 5),
            dbias(DType::f32, {c.rows}, 6);
        const View dy = wide.view().slice(1, 2, c.rows);
        const double tolerance = dtype == DType::bf16 ? 0.03 : 2e-5;
        sweep(LinearBwdData{.dy = dy, .w = dense_weight(w.view()), .dx = dx.mut()}, tolerance, 0.03);
        SeqMap seqs;
        seqs.add(c.tokens / 3);
        seqs.add(0);
        seqs.add(c.tokens - c.tokens / 3);
        LinearBwdWeight op{.dy = dy, .x = x.view(), .dw = dw.mut(), .dbias = dbias.mut(), .seqs = &seqs};
        sweep(op, 2e-5, 0.03);
        op.seqs = nullptr;
        op.dbias = {};
        sweep(op, 2e-5, 0.03);
      }
    }
  }
}

// The same for training's forward, whose y may be BF16; sums of several depth blocks wait for the last.
TEST(Linear, ForwardOfTrainingRoundsOnce) {
  for (const auto& [tokens, rows] : {std::pair<int64_t, int64_t>{70, 101}, {200, 30}}) {
    TestTensor x(DType::bf16, {tokens, 1100}, 1), w(DType::bf16, {rows, 1100}, 2), bias(DType::f32, {rows}, 3),
        y(DType::bf16, {tokens, rows}, 4);
    sweep(LinearFwd{.x = x.view(), .w = dense_weight(w.view()), .bias = bias.view(), .y = y.mut(), .train = true}, 0.03,
          0.03);
  }
}

// Cutting a batch between sequences changes no bit, in any row, also where rows of a gradient take the pieces on both
// sides of the cut together (packed::Kernel::chain).
TEST(Linear, MicroBatchesAreBitIdenticalToTheBatch) {
  const int64_t lens[] = {3, 288, 64, 40}, tokens = 395, rows = 53, depth = 50;
  for (const DType type : {DType::f32, DType::bf16}) {
    TestTensor dy(DType::f32, {tokens, rows}, 1), x(type, {tokens, depth}, 2), w(type, {rows, depth}, 3);
    for (const Row<LinearBwdWeight>& row : LinearBwdWeight::rows()) {
      TestTensor dw(DType::f32, {rows, depth}, 4), dbias(DType::f32, {rows}, 5), dw_parts = dw, dbias_parts = dbias;
      SeqMap all;
      for (int64_t len : lens) all.add(len);
      const LinearBwdWeight op{.dy = dy.view(), .x = x.view(), .dw = dw.mut(), .dbias = dbias.mut(), .seqs = &all};
      if (refusal(row, op, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      run_row(ctx, op, row);
      LinearBwdWeight part = op;
      part.dw = dw_parts.mut();
      part.dbias = dbias_parts.mut();
      for (size_t cut : {size_t{0}, size_t{2}}) {
        SeqMap some;
        for (size_t i = cut; i < cut + 2; ++i) some.add(lens[i]);
        part.dy = op.dy.slice(0, cut == 0 ? 0 : 291, some.tokens());
        part.x = op.x.slice(0, cut == 0 ? 0 : 291, some.tokens());
        part.seqs = &some;
        run_row(ctx, part, row);
      }
      expect_outputs(part, op, 0, true, std::string("micro-batches in row ") + row.name);
    }
    for (const Row<LinearBwdData>& row : LinearBwdData::rows()) {
      TestTensor whole(DType::f32, {tokens, depth}, 4), parts(DType::f32, {tokens, depth}, 5);
      const LinearBwdData op{.dy = dy.view(), .w = dense_weight(w.view()), .dx = whole.mut()};
      if (refusal(row, op, Device::cpu)) continue;
      Arena arena;
      Ctx ctx{.arena = arena};
      run_row(ctx, op, row);
      for (const auto& [first, n] : {std::pair<int64_t, int64_t>{0, 291}, {291, 64}, {355, 40}}) {
        run_row(ctx, LinearBwdData{.dy = op.dy.slice(0, first, n), .w = op.w, .dx = parts.mut().slice(0, first, n)},
                row);
      }
      EXPECT_EQ(parts.bytes, whole.bytes) << row.name;
    }
  }
}

// Runs it `times` times and expects that nothing is written beyond the workspace.
template <class Op>
void stay_within(packed::Class c, const Op& op, int threads, int times) {
  constexpr size_t kGuard = 1 << 20;
  const auto bytes = static_cast<size_t>(linear_packed_workspace(c, op, threads));
  std::vector<std::byte> space(bytes + kGuard, std::byte{0xa5});
  Arena arena;
  Ctx ctx{.arena = arena, .threads = threads};
  for (int i = 0; i < times; ++i) linear_packed(c, ctx, op, {space.data(), bytes});
  const auto end = space.begin() + static_cast<int64_t>(bytes);
  EXPECT_EQ(std::count(end, space.end(), std::byte{0xa5}), static_cast<int64_t>(kGuard))
      << Op::name << ", " << threads << " threads";
}

// Ones among thousands of large values that cancel: FP32 sums lose them whatever their order, FP64 sums round once.
void hold_wide_sums(DType w_type) {
  for (const Case& c : {Case{1, 1, 1}, {9, 17, 83}, {20, 6, 2688}}) {
    TestTensor x(DType::f32, {c.tokens, c.depth}, 1), w(w_type, {c.rows, c.depth}, 2),
        y(DType::f32, {c.tokens, c.rows}, 3), again(DType::f32, {c.tokens, c.rows}, 4);
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t k = 0; k < c.depth; ++k) x.mut().as<float>(t)[k] *= k % 3 == 0 ? 1e6f : 1.0f;
    }
    const auto compute = [&](const View& from, const MutView& to, int threads) {
      const LinearFwd op{.x = from, .w = dense_weight(w.view()), .y = to, .train = true, .wide_sums = true};
      Arena arena;
      Ctx ctx{.arena = arena, .threads = threads};
      ASSERT_STREQ(choose(ctx, op).name, "wide_sums");
      braid::run(ctx, op);
    };
    compute(x.view(), y.mut(), 3);
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t n = 0; n < c.rows; ++n) {
        double sum = 0, most = 0;
        for (int64_t k = 0; k < c.depth; ++k) {
          const double product = static_cast<double>(x.view().as<float>(t)[k]) * element(w.view(), n * c.depth + k);
          sum += product;
          most += std::abs(product);
        }
        const double got = static_cast<double>(y.view().as<float>(t)[n]);
        EXPECT_NEAR(got, sum, 0x1p-24 * std::abs(sum) + 1e-14 * most) << t << " " << n << " of depth " << c.depth;
      }
      compute(x.view().slice(0, t, 1), again.mut().slice(0, t, 1), 1);
    }
    EXPECT_EQ(std::memcmp(y.view().data, again.view().data, static_cast<size_t>(y.view().bytes())), 0);
  }
}

TEST(Linear, WideSumsRoundOnce) {
  for (const DType w_type : {DType::f32, DType::bf16}) hold_wide_sums(w_type);
}

// Few operations use fewer threads than the workspace is for, once all threads; a last pass has fewer tokens than the
// others; without tokens there are no products.
TEST(Linear, TrainingProductsStayInTheirWorkspace) {
  for (const Case& c : {Case{128, 1152, 2}, {33, 2000, 40}, {2049, 300, 8}, {4000, 97, 40}, {1, 1, 1}, {0, 5, 3}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", c.tokens, c.rows, c.depth));
    TestTensor x(DType::f32, {c.tokens, c.depth}, 1), w(DType::f32, {c.rows, c.depth}, 2),
        y(DType::bf16, {c.tokens, c.rows}, 3);
    const LinearFwd op{.x = x.view(), .w = dense_weight(w.view()), .y = y.mut(), .train = true};
    for (int threads = 1; threads <= 16; ++threads) stay_within(packed::Class::f32, op, threads, 20);
  }
}

// Several depth blocks, tasks across and runs of pieces in every class. One thread has the last part of the workspace.
TEST(Linear, GradientsStayInTheirWorkspace) {
  using packed::Class;
  constexpr int64_t kTokens = 600, kRows = 250, kDepth = 1100;
  for (const Class c : {Class::f32, Class::bf16, Class::bf16_dot, Class::bf16_tile}) {
    if (packed::refusal(c)) continue;
    const DType type = c == Class::f32 ? DType::f32 : DType::bf16;
    TestTensor x(type, {kTokens, kDepth}, 1), w(type, {kRows, kDepth}, 2), dy(DType::f32, {kTokens, kRows}, 3),
        y(DType::bf16, {kTokens, kRows}, 4), dx(DType::bf16, {kTokens, kDepth}, 5), dw(DType::f32, {kRows, kDepth}, 6),
        dbias(DType::f32, {kRows}, 7);
    for (const int threads : {1, 3}) {
      const Weight weight = dense_weight(w.view());
      stay_within(c, LinearFwd{.x = x.view(), .w = weight, .y = y.mut(), .train = true}, threads, 1);
      stay_within(c, LinearBwdData{.dy = dy.view(), .w = weight, .dx = dx.mut()}, threads, 1);
      stay_within(c, LinearBwdWeight{.dy = dy.view(), .x = x.view(), .dw = dw.mut(), .dbias = dbias.mut()}, threads, 1);
    }
  }
}

TEST(Linear, BackwardIsTheDerivative) {
  const int64_t tokens = 2, rows = 3, depth = 4;
  TestTensor x(DType::f32, {tokens, depth}, 1), w(DType::f32, {rows, depth}, 2), dy(DType::f32, {tokens, rows}, 3);
  std::vector<double> inputs = to_doubles(x.view());
  const auto weights = to_doubles(w.view()), upstream = to_doubles(dy.view());
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  using Complex = std::complex<double>;
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& p) {
    std::vector<Complex> y(6);
    linear_fwd_ref<Complex>(tokens, rows, depth, {p.begin(), p.begin() + 8}, {p.begin() + 8, p.end()}, {}, y);
    Complex loss = 0;
    for (size_t i = 0; i < y.size(); ++i) loss += upstream[i] * y[i];
    return loss;
  });
  TestTensor dx(DType::f32, {tokens, depth}, 4), dw(DType::f32, {rows, depth}, 5, 0);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, LinearBwdData{.dy = dy.view(), .w = dense_weight(w.view()), .dx = dx.mut()});
  run(ctx, LinearBwdWeight{.dy = dy.view(), .x = x.view(), .dw = dw.mut()});
  for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(element(dx.view(), i), gradient[static_cast<size_t>(i)], 1e-6);
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(element(dw.view(), i), gradient[static_cast<size_t>(i + 8)], 1e-6);
}

}  // namespace
}  // namespace braid
