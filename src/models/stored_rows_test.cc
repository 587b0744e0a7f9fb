// Whatever ranks hold of a tensor and however that is cut again, its bytes land where the whole tensor has them, and
// come back from there.
#include "models/stored_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace braid::models {
namespace {

MasterTensor held_tensor(Shape shape, std::vector<Range> held, bool by_cols = false, Range within = {}) {
  MasterTensor t{.name = "t", .shape = shape, .held = std::move(held), .by_cols = by_cols, .within = within};
  t.rows = shape.rank > 1 ? shape.count() / shape[shape.rank - 1] : 1;
  t.cols = shape.rank > 1 ? shape[shape.rank - 1] : shape.count();
  return t;
}

MasterTensor transposed(MasterTensor t) {
  t.transposed = true;
  std::swap(t.rows, t.cols);  // as blocks read it
  return t;
}

// What is put in pieces of `step` elements covers `count` elements of the file, with the bytes of the whole tensor.
void expect_places(const MasterTensor& t, int64_t step, DType dtype, float plus = 0) {
  MasterTensor whole = t;
  whole.held.clear();
  whole.plus = plus;
  std::vector<float> all(static_cast<size_t>(t.shape.count()));
  std::iota(all.begin(), all.end(), 1.0f);
  const auto size = static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> stored(all.size() * size), got(stored.size()), f32(all.size() * 4);
  to_stored(whole, all, true, dtype, stored);
  to_stored(whole, all, true, DType::f32, f32);
  MasterTensor part = t;
  part.plus = plus;
  std::vector<float> held(static_cast<size_t>(part.count()));
  take_held(part, all, held);
  int64_t count = 0;
  std::vector<uint8_t> seen(all.size());
  for (int64_t begin = 0; begin < part.count(); begin += step) {
    const Range of{begin, std::min(step, part.count() - begin)};
    const std::span<float> values = std::span(held).subspan(static_cast<size_t>(begin), static_cast<size_t>(of.count));
    put_stored(part, of, values, true, dtype, [&](int64_t at, std::span<const std::byte> bytes) {
      ASSERT_LE(std::ssize(bytes), kStoredBytesMost);
      ASSERT_LE(static_cast<size_t>(at) * size + bytes.size(), got.size());
      std::memcpy(&got[static_cast<size_t>(at) * size], bytes.data(), bytes.size());
      for (size_t i = 0; i < bytes.size() / size; ++i) ASSERT_EQ(seen[static_cast<size_t>(at) + i]++, 0);
      count += std::ssize(bytes) / static_cast<int64_t>(size);
    });
    std::vector<float> back(values.size());
    take_stored(part, of, f32, true, back);
    ASSERT_EQ(back, std::vector<float>(values.begin(), values.end()));
  }
  EXPECT_EQ(count, part.count());
  for (size_t i = 0; i < all.size(); ++i) {
    if (seen[i] != 0) {
      ASSERT_EQ(std::memcmp(&got[i * size], &stored[i * size], size), 0) << i;
    }
  }
}

void expect_places(const MasterTensor& t) {
  for (const int64_t step : {1, 2, 3, 5, 7, 16, 64, 100'000}) {
    expect_places(t, step, DType::f32);
    expect_places(t, step, DType::bf16);
    expect_places(t, step, DType::f32, 1);
  }
}

TEST(StoredRows, WholeTensors) {
  expect_places(held_tensor({6}, {}));
  expect_places(held_tensor({4, 6}, {}));
  expect_places(held_tensor({2, 3, 5}, {}));
  expect_places(transposed(held_tensor({7, 5}, {})));
  expect_places(transposed(held_tensor({20, 33}, {})));
  expect_places(held_tensor({0, 6}, {}));
}

TEST(StoredRows, PartsOfTensors) {
  expect_places(held_tensor({10, 6}, {{0, 2}, {5, 1}, {8, 2}}));         // segments
  expect_places(held_tensor({6, 10}, {{3, 4}}, true));                   // columns
  expect_places(held_tensor({6, 10}, {{1, 2}, {7, 3}}, true));           // of segments
  expect_places(held_tensor({10, 6}, {{2, 3}, {6, 2}}, false, {1, 4}));  // rows, of which some columns
  expect_places(held_tensor({12, 6}, {{1, 3}}, true, {4, 8}));           // columns of some experts
  expect_places(held_tensor({10}, {{2, 3}, {7, 2}}, true));              // a vector
  expect_places(held_tensor({10, 6}, {{0, 10}}));                        // all of it
  expect_places(transposed(held_tensor({10, 6}, {{2, 3}})));             // GPT-2's
  expect_places(transposed(held_tensor({10, 6}, {{1, 2}, {7, 3}}, true)));
  expect_places(transposed(held_tensor({24, 36}, {{2, 17}}, false, {3, 19})));
}

// Larger than what is copied at a time, along both sides.
TEST(StoredRows, InPieces) {
  expect_places(held_tensor({3, 400'000}, {}), 100'000'000, DType::f32);
  expect_places(held_tensor({3, 400'000}, {{5, 300'000}}, true), 100'000'000, DType::f32);
  expect_places(held_tensor({600, 3000}, {{500, 900}}, true), 333'333, DType::bf16);
  expect_places(transposed(held_tensor({2, 700'000}, {{3, 650'000}})), 100'000'000, DType::f32);
}

}  // namespace
}  // namespace braid::models
