// Rows are copied or decoded: FP32 agrees to 1e-6 of the root mean square, BF16 results to 1/100.
#include "kernels/embedding/embedding.h"

#include <cstring>

#include "codec/fp8.h"
#include "core/op_sweep.h"

namespace braid {
namespace {

TEST(Embedding, EveryRowAgreesWithTheReference) {
  for (const int64_t width : {1, 17, 96}) {
    for (const int64_t tokens : {1, 7, 40}) {
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(t * 7 % 11));
      for (const DType table_type : {DType::f32, DType::bf16, DType::f16}) {
        for (const DType y_type : {DType::f32, DType::bf16}) {
          TestTensor table(table_type, {11, width}, 1), y(y_type, {tokens, width}, 2);
          sweep(EmbeddingFwd{.ids = view_of(ids.data(), {tokens}), .table = dense_weight(table.view()), .y = y.mut()},
                y_type == DType::f32 ? 1e-6 : 0.01);
        }
      }
    }
  }
}

TEST(Embedding, QuantisedTables) {
  const int64_t rows = 9, cols = 32, tokens = 5;
  TestTensor values(DType::f32, {rows, cols}, 1);
  const std::vector<int32_t> ids{8, 0, 3, 3, 1};
  const std::span<const float> all(values.view().as<float>(), static_cast<size_t>(rows * cols));
  std::vector<F8E4M3> codes(all.size());
  encode_fp8_row(all, fp8_global(4), codes.data());
  const Weight table{.rows = rows,
                     .cols = cols,
                     .spec = {Format::f8_e4m3, 0},
                     .codes = view_of(codes.data(), {rows, cols}),
                     .global = fp8_global(4)};
  for (const DType y_type : {DType::f32, DType::bf16}) {
    TestTensor y(y_type, {tokens, cols}, 2);
    sweep(EmbeddingFwd{.ids = view_of(ids.data(), {tokens}), .table = table, .y = y.mut()},
          y_type == DType::f32 ? 1e-6 : 0.01);
  }
}

// Its derivative is a sum over equal ids, of all rows but that of padding, added to the existing gradient.
TEST(Embedding, BackwardAddsToTheRowsOfTheIds) {
  const int64_t rows = 5, cols = 70, tokens = 9;
  const std::vector<int32_t> ids{4, 1, 1, 0, 4, 4, 1, 2, 4};  // 3 never
  TestTensor dy(DType::f32, {tokens, cols}, 1), dtable(DType::f32, {rows, cols}, 2);
  const EmbeddingBwd op{.ids = view_of(ids.data(), {tokens}), .dy = dy.view(), .dtable = dtable.mut(), .padding = 4};
  sweep(op, 1e-6);
  const TestTensor before = dtable;
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, op);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < cols; ++d) {
      double want = element(before.view(), r * cols + d);
      for (int64_t t = 0; t < tokens; ++t) {
        if (r != op.padding && ids[static_cast<size_t>(t)] == r) want += element(dy.view(), t * cols + d);
      }
      EXPECT_NEAR(element(dtable.view(), r * cols + d), want, 1e-5);
    }
  }
}

// A batch in one call and cut anywhere into two: the same bits.
TEST(Embedding, BackwardOfABatchIsThatOfItsParts) {
  const int64_t cols = 131;
  const std::vector<int32_t> ids{4, 1, 1, 0, 4, 4, 1, 2, 4};
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TestTensor dy(dtype, {9, cols}, 1), whole(DType::f32, {5, cols}, 2), parts = whole;
    sweep(EmbeddingBwd{.ids = view_of(ids.data(), {9}), .dy = dy.view(), .dtable = whole.mut()}, 1e-6);
    run(ctx, EmbeddingBwd{.ids = view_of(ids.data(), {9}), .dy = dy.view(), .dtable = whole.mut()});
    for (const auto& [at, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 4}}) {
      run(ctx,
          EmbeddingBwd{.ids = view_of(ids.data() + at, {n}), .dy = dy.view().slice(0, at, n), .dtable = parts.mut()});
    }
    EXPECT_EQ(whole.bytes, parts.bytes);
  }
}

TEST(EmbeddingDeathTest, AnIdOutsideTheTableIsABug) {
  for (const int32_t bad : {-1, 11}) {
    TestTensor table(DType::f32, {11, 4}, 1), y(DType::f32, {1, 4}, 2);
    Arena arena;
    Ctx ctx{.arena = arena};
    const EmbeddingFwd op{.ids = view_of(&bad, {1}), .table = dense_weight(table.view()), .y = y.mut()};
    EXPECT_DEATH(run(ctx, op), "id -?[0-9]+ of 11");
  }
}

}  // namespace
}  // namespace braid
