#include "engine/state_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/philox.h"
#include "support/error_of.h"

namespace braid::engine {
namespace {

const nn::StateShape kMamba{.conv_columns = 3, .conv_channels = 10, .heads = 2, .head_dim = 4, .state = 6, .chunk = 8};
const nn::StateShape kAttention{.kv_heads = 2, .kv_dim = 5};

std::vector<int32_t> pages_of(StatePool& pool, int64_t sequence) {
  std::vector<int32_t> pages;
  const View row = pool.view().page_table.slice(0, sequence, 1);
  for (int64_t i = 0; i < row.dim(1); ++i) {
    if (row.as<int32_t>()[i] >= 0) pages.push_back(row.as<int32_t>()[i]);
  }
  return pages;
}

TEST(StatePool, BytesAreThoseOfTheFormulas) {
  const auto bytes = sequence_bytes({kMamba, kAttention, kMamba}, {.kv = DType::bf16}, false);
  EXPECT_EQ(bytes.fixed, 2 * 4 * (3 * 10 + 2 * 4 * 6));
  EXPECT_EQ(bytes.per_token, 2 * 2 * 5 * 2);
}

// What is counted is what the pool reserves, with --exact too: its chunk inputs are larger than the state itself.
TEST(StatePool, BytesAreThoseThatAreReserved) {
  struct Choice {
    bool exact;
    CacheTypes types;
  };
  const Choice choices[] = {{false, {}},
                            {true, {}},
                            {true, {.kv = DType::bf16}},
                            {false, {.kv = DType::f8_e4m3}},
                            {false, {.kv = DType::i8}},
                            {false, {.ssm = DType::f16}},
                            {false, {.ssm = DType::i8}}};
  for (const auto& [exact, types] : choices) {
    const std::vector<nn::StateShape> shapes = {kMamba, kAttention, kMamba};
    StatePool pool(shapes, {.sequences = 3, .context = 64, .types = types, .exact = exact});
    int64_t reserved = 0;
    for (const nn::BlockState& b : pool.view().blocks) {
      for (const MutView& v : b.by_slot()) reserved += v ? v.bytes() : 0;
      for (const MutView& v : b.by_page()) reserved += v ? v.bytes() : 0;
    }
    const auto bytes = sequence_bytes(shapes, types, exact);
    EXPECT_EQ(reserved, 3 * (bytes.fixed + 64 * bytes.per_token)) << "exact " << exact;
  }
}

// A pool with the context that its ops run in.
struct Pool : StatePool {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Pool(const std::vector<nn::StateShape>& shapes, const PoolOptions& options) : StatePool(shapes, options) {}
  void grow(int64_t sequence, int64_t begin, int64_t end) { prepare(ctx, sequence, begin, end); }
};

TEST(StatePool, PagesComeAsASequenceGrowsAndGoBack) {
  Pool pool({kMamba, kAttention}, {.sequences = 3, .context = 200});
  pool.grow(1, 0, 1);
  EXPECT_EQ(pages_of(pool, 1).size(), 1u);
  pool.grow(1, 1, 64);
  EXPECT_EQ(pages_of(pool, 1).size(), 1u);
  pool.grow(1, 64, 65);
  pool.grow(0, 0, 200);
  pool.grow(2, 0, 200);
  pool.grow(1, 65, 200);
  std::set<int32_t> all;
  for (int64_t sequence : {0, 1, 2}) {
    for (int32_t page : pages_of(pool, sequence)) EXPECT_TRUE(all.insert(page).second) << "page " << page << " twice";
  }
  EXPECT_EQ(all.size(), 12u);  // four pages each, and there are no others
  EXPECT_EQ(pool.pages_free(), 0);
  const auto old = pages_of(pool, 0);
  pool.truncate(0, 65);
  EXPECT_EQ(pages_of(pool, 0), (std::vector<int32_t>{old[0], old[1]}));
  pool.truncate(0, 64);
  EXPECT_EQ(pages_of(pool, 0), std::vector<int32_t>{old[0]});
  pool.truncate(0, 0);
  EXPECT_TRUE(pages_of(pool, 0).empty());
  pool.grow(0, 0, 200);
  const auto again = pages_of(pool, 0);
  EXPECT_EQ(std::set<int32_t>(again.begin(), again.end()), std::set<int32_t>(old.begin(), old.end()));
}

// With I8, whose scales have their own pages.
TEST(StatePool, ASharedPageIsCopiedByTheFirstToWriteIt) {
  Pool pool({kAttention}, {.sequences = 2, .context = 200, .types = {.kv = DType::i8}});
  const nn::BlockState& block = pool.view().blocks[0];
  for (const MutView& v : block.by_page()) EXPECT_TRUE(v);
  pool.grow(0, 0, 100);
  const std::vector<int32_t> old = pages_of(pool, 0);
  for (const MutView& v : block.by_page()) fill(v.slice(0, old[1], 1), 7);
  pool.share(0, 1, 100);
  EXPECT_EQ(pages_of(pool, 1), old);
  EXPECT_EQ(pool.readers(old[0]), 2);
  EXPECT_EQ(pool.pages_free(), 6);
  pool.grow(1, 100, 101);
  const std::vector<int32_t> fresh = pages_of(pool, 1);
  EXPECT_EQ(fresh[0], old[0]);
  EXPECT_NE(fresh[1], old[1]);
  EXPECT_EQ(pages_of(pool, 0), old);
  for (const MutView& v : block.by_page()) EXPECT_EQ(element(v.slice(0, fresh[1], 1), 5), 7);
  pool.grow(0, 100, 101);  // its last page is no longer shared
  EXPECT_EQ(pages_of(pool, 0), old);
  pool.truncate(0, 0);
  EXPECT_EQ(pool.readers(old[0]), 1);
  EXPECT_EQ(pages_of(pool, 1), fresh);
}

// Every position that a sequence has is in its pages as it was written, through thousands of random forks, writes, cuts
// and resets; the pages in use are those that page tables name, with matching reference counts. Checked against plain
// vectors.
TEST(StatePool, RandomForksAndWritesAgainstPlainVectors) {
  constexpr int64_t kSequences = 6, kContext = 300, kPages = 11, kPage = 64;
  Pool pool({kAttention}, {.sequences = kSequences, .pages = kPages, .context = kContext});
  const nn::BlockState& block = pool.view().blocks[0];
  const auto cell = [&](const MutView& pages, int64_t sequence, int64_t position) {
    const int32_t page = pool.view().page_table.as<int32_t>(sequence)[position / kPage];
    return pages.as<float>(page) + position % kPage * pages.stride(1);
  };
  std::vector<std::vector<float>> model(kSequences);
  std::map<std::string, int> done;
  float next = 1;
  for (uint64_t round = 0; round < 4000; ++round) {
    const auto draw = philox({.seed = 11}, round);
    const auto a = static_cast<int64_t>(draw[0] % kSequences), b = static_cast<int64_t>(draw[1] % kSequences);
    auto& own = model[static_cast<size_t>(a)];
    const int64_t length = std::ssize(own);
    if (const auto what = draw[2] % 16; what == 0) {
      pool.truncate(a, 0);
      own.clear();
      ++done["reset"];
    } else if (what < 3) {
      const int64_t left = static_cast<int64_t>(draw[3]) % (length + 1);
      pool.truncate(a, left);
      own.resize(static_cast<size_t>(left));
      ++done["cut"];
    } else if (what < 6 && a != b) {
      const int64_t shared = static_cast<int64_t>(draw[3]) % (length + 1);
      pool.truncate(b, 0);
      pool.share(a, b, shared);
      model[static_cast<size_t>(b)].assign(own.begin(), own.begin() + shared);
      ++done["fork"];
    } else {
      const int64_t end = length + 1 + static_cast<int64_t>(draw[3] % (what < 12 ? 3 : 90));
      if (support::caught([&] { pool.grow(a, length, end); })) {
        ++done[end > kContext ? "too long" : "full"];
        continue;
      }
      for (int64_t p = length; p < end; ++p, next += 1) {
        own.push_back(next);
        *cell(block.k_pages, a, p) = next;
        *cell(block.v_pages, a, p) = -next;
      }
      ++done["write"];
    }
    std::map<int32_t, int64_t> named;
    for (int64_t s = 0; s < kSequences; ++s) {
      const auto& values = model[static_cast<size_t>(s)];
      for (int64_t p = 0; p < std::ssize(values); ++p) {
        ASSERT_EQ(*cell(block.k_pages, s, p), values[static_cast<size_t>(p)])
            << "round " << round << ", sequence " << s;
        ASSERT_EQ(*cell(block.v_pages, s, p), -values[static_cast<size_t>(p)]) << "round " << round;
      }
      for (const int32_t page : pages_of(pool, s)) ++named[page];
    }
    ASSERT_EQ(pool.pages_free(), kPages - std::ssize(named)) << "round " << round;
    for (const auto& entry : named) ASSERT_EQ(pool.readers(entry.first), entry.second) << "round " << round;
  }
  for (const char* what : {"reset", "cut", "fork", "write", "full", "too long"}) EXPECT_GT(done[what], 5) << what;
}

TEST(StatePool, SlotsAreTakenCopiedAndCleared) {
  const PoolOptions kinds[] = {{.sequences = 1, .slots = 3, .context = 64, .exact = true},
                               {.sequences = 1, .slots = 3, .context = 64, .types = {.ssm = DType::i8}}};
  for (const PoolOptions& kind : kinds) {
    Pool pool({kMamba, kAttention}, kind);
    std::set<int64_t> taken;
    for (int i = 0; i < 3; ++i) taken.insert(pool.take_slot());
    EXPECT_EQ(taken, (std::set<int64_t>{0, 1, 2}));
    EXPECT_EQ(pool.take_slot(), -1);
    pool.give_slot(2);
    EXPECT_EQ(pool.slots_free(), 1);
    EXPECT_EQ(pool.take_slot(), 2);
    const nn::BlockState& block = pool.view().blocks[0];
    EXPECT_EQ(static_cast<bool>(block.ssm_scales), !kind.exact);
    for (const MutView& v : block.by_slot()) {
      for (int64_t slot = 0; v && slot < 3; ++slot) fill(v.slice(0, slot, 1), static_cast<double>(slot + 1));
    }
    pool.copy_slot(pool.ctx, 2, 0);
    pool.clear_slot(1);
    for (const MutView& v : block.by_slot()) {
      if (!v) continue;
      EXPECT_EQ(element(v.slice(0, 0, 1), 3), 3);
      EXPECT_EQ(element(v.slice(0, 2, 1), 3), 3);
      if (v.data != block.chunk_inputs.data) {
        EXPECT_EQ(element(v.slice(0, 1, 1), 3), 0);
      }
    }
  }
}

// Under a budget: pages that were used and freed are returned to the system when slots need their bytes, and the
// other way round. Counted by what is resident, not by what the pool believes.
TEST(StatePool, FreedMemoryOfOneKindIsGivenBackForTheOther) {
  const nn::StateShape mamba{.conv_columns = 3, .conv_channels = 4096, .heads = 4, .head_dim = 64, .state = 128};
  const nn::StateShape attention{.kv_heads = 4, .kv_dim = 128};
  const auto bytes = sequence_bytes({mamba, attention}, {}, false);
  const int64_t budget = 128 * bytes.fixed;
  Pool pool({mamba, attention}, {.slots = 128, .pages = 200, .context = 64 * 200, .budget = budget});
  const auto resident = [&] {
    int64_t sum = 0;
    for (const nn::BlockState& block : pool.view().blocks) {
      for (const MutView& v : {block.conv, block.ssm, block.k_pages, block.v_pages}) {
        if (!v) continue;
        std::vector<unsigned char> touched(static_cast<size_t>((v.bytes() + 4095) / 4096));
        EXPECT_EQ(mincore(v.data, static_cast<size_t>(v.bytes()), touched.data()), 0);
        for (const unsigned char t : touched) sum += 4096 * (t & 1);
      }
    }
    return sum;
  };
  constexpr int64_t kHuge = 4 * (int64_t{2} << 20);  // the system may round each tensor up to one of its large pages
  int64_t next_page = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<int64_t> slots;
    for (int64_t slot = pool.take_slot(); slot >= 0; slot = pool.take_slot()) {
      slots.push_back(slot);
      pool.for_each_part_of_slot(slot, [](std::span<std::byte> part) { std::ranges::fill(part, std::byte{1}); });
    }
    EXPECT_EQ(slots.size(), 128U);
    EXPECT_LE(resident(), budget + kHuge);
    for (const int64_t slot : slots) pool.give_slot(slot);
    std::vector<int32_t> pages;
    for (int32_t page = pool.take_page(); page >= 0; page = pool.take_page()) {
      pages.push_back(page);
      pool.for_each_part_of_page(page, [](std::span<std::byte> part) { std::ranges::fill(part, std::byte{1}); });
    }
    next_page = std::ssize(pages);
    EXPECT_LE(resident(), budget + kHuge);
    EXPECT_LE(pool.bytes_resident(), budget);
    for (const int32_t page : pages) pool.release(page);
  }
  EXPECT_EQ(next_page, budget / (64 * bytes.per_token));
  EXPECT_TRUE(pool.charge(budget));
  EXPECT_FALSE(pool.charge(1));
  EXPECT_EQ(pool.take_slot(), -1);
}

TEST(StatePool, ClearForgetsOneSlot) {
  StatePool pool({kMamba}, {.sequences = 2, .context = 64, .exact = true});
  const nn::BlockState& block = pool.view().blocks[0];
  for (const MutView& v : {block.conv, block.ssm, block.chunk_ssm}) fill(v, 1);
  pool.clear_slot(1);
  for (const MutView& v : {block.conv, block.ssm, block.chunk_ssm}) {
    const int64_t half = v.count() / 2;
    for (int64_t i = 0; i < v.count(); ++i) ASSERT_EQ(element(v, i), i < half ? 1.0 : 0.0);
  }
}

TEST(StatePool, WithoutExactNothingIsKeptOfChunks) {
  StatePool pool({kMamba}, {.sequences = 1, .context = 64});
  EXPECT_FALSE(pool.view().blocks[0].chunk_ssm);
  EXPECT_FALSE(pool.view().blocks[0].chunk_inputs);
}

TEST(StatePool, TheContextIsALimit) {
  Pool pool({kAttention}, {.sequences = 1, .context = 100});
  EXPECT_EQ(pool.context(), 100);
  pool.grow(0, 0, 100);
  EXPECT_THROW(pool.grow(0, 100, 101), Error);
}

}  // namespace
}  // namespace braid::engine
