#include "engine/state_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "sys/error.h"

namespace braid::engine {
namespace {

const nn::StateShape kMamba{.conv_columns = 3, .conv_channels = 10, .heads = 2, .head_dim = 4, .state = 6, .chunk = 8};
const nn::StateShape kAttention{.kv_heads = 2, .kv_dim = 5};

std::vector<int32_t> pages_of(StatePool& pool, int64_t slot) {
  std::vector<int32_t> pages;
  const View row = pool.view().page_table.slice(0, slot, 1);
  for (int64_t i = 0; i < row.dim(1); ++i) {
    if (row.as<int32_t>()[i] >= 0) pages.push_back(row.as<int32_t>()[i]);
  }
  return pages;
}

TEST(StatePool, BytesAreThoseOfTheFormulas) {
  const auto bytes = sequence_bytes({kMamba, kAttention, kMamba}, DType::bf16, false);
  EXPECT_EQ(bytes.fixed, 2 * 4 * (3 * 10 + 2 * 4 * 6));
  EXPECT_EQ(bytes.per_token, 2 * 2 * 5 * 2);
}

// What is counted is what the pool reserves, with --exact too: its chunk inputs are larger than the state itself.
TEST(StatePool, BytesAreThoseThatAreReserved) {
  for (const auto& [exact, kv] : {std::pair{false, DType::f32}, {true, DType::f32}, {true, DType::bf16}}) {
    const std::vector<nn::StateShape> shapes = {kMamba, kAttention, kMamba};
    StatePool pool(shapes, {.slots = 3, .context = 64, .kv = kv, .exact = exact});
    int64_t reserved = 0;
    for (const nn::BlockState& b : pool.view().blocks) {
      for (const MutView& v : {b.conv, b.ssm, b.chunk_ssm, b.chunk_inputs, b.k_pages, b.v_pages})
        reserved += v ? v.bytes() : 0;
    }
    const auto bytes = sequence_bytes(shapes, kv, exact);
    EXPECT_EQ(reserved, 3 * (bytes.fixed + 64 * bytes.per_token)) << "exact " << exact;
  }
}

TEST(StatePool, PagesComeAsASequenceGrowsAndGoBack) {
  StatePool pool({kMamba, kAttention}, {.slots = 3, .context = 200});
  pool.grow(1, 1);
  EXPECT_EQ(pages_of(pool, 1).size(), 1u);
  pool.grow(1, 64);
  EXPECT_EQ(pages_of(pool, 1).size(), 1u);
  pool.grow(1, 65);
  pool.grow(0, 200);
  pool.grow(2, 200);
  pool.grow(1, 200);
  std::set<int32_t> all;
  for (int64_t slot : {0, 1, 2}) {
    for (int32_t page : pages_of(pool, slot)) EXPECT_TRUE(all.insert(page).second) << "page " << page << " twice";
  }
  EXPECT_EQ(all.size(), 12u);  // four pages each, and there are no others
  const auto old = pages_of(pool, 0);
  pool.reset(0);
  EXPECT_TRUE(pages_of(pool, 0).empty());
  pool.grow(0, 200);
  const auto again = pages_of(pool, 0);
  EXPECT_EQ(std::set<int32_t>(again.begin(), again.end()), std::set<int32_t>(old.begin(), old.end()));
}

TEST(StatePool, ResetForgetsOneSlot) {
  StatePool pool({kMamba}, {.slots = 2, .context = 64, .exact = true});
  const nn::BlockState& block = pool.view().blocks[0];
  for (const MutView& v : {block.conv, block.ssm, block.chunk_ssm}) fill(v, 1);
  pool.reset(1);
  for (const MutView& v : {block.conv, block.ssm, block.chunk_ssm}) {
    const int64_t half = v.count() / 2;
    for (int64_t i = 0; i < v.count(); ++i) ASSERT_EQ(element(v, i), i < half ? 1.0 : 0.0);
  }
}

TEST(StatePool, WithoutExactNothingIsKeptOfChunks) {
  StatePool pool({kMamba}, {.slots = 1, .context = 64});
  EXPECT_FALSE(pool.view().blocks[0].chunk_ssm);
  EXPECT_FALSE(pool.view().blocks[0].chunk_inputs);
}

TEST(StatePool, TheContextIsALimit) {
  StatePool pool({kAttention}, {.slots = 1, .context = 100});
  EXPECT_EQ(pool.context(), 100);
  pool.grow(0, 100);
  EXPECT_THROW(pool.grow(0, 101), Error);
}

}  // namespace
}  // namespace braid::engine
