// Every algorithm over threads, against sums in FP64: all types and operations, sizes that do not divide, in place and
// out of place, uneven blocks, every size of node.
#include "comm/group.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/comm_fixture.h"
#include "comm/inproc.h"
#include "core/philox.h"
#include "support/error_of.h"

namespace braid::comm {
namespace {

using support::error_of;

struct Case {
  const Algorithm& algorithm;
  DType type = DType::f32;
  Reduction op = Reduction::sum;
  int64_t size = 0;
  bool in_place = false, uneven = false;

  std::string text() const {
    return std::string(name_of(algorithm.op)) + " " + algorithm.name + " " + braid::name_of(type) + " " + name_of(op) +
           " of " + std::to_string(size) + (in_place ? " in place" : "") + (uneven ? " uneven" : "");
  }
};

void expect_reduced(const Case& c, const MutView& out, int ranks, int64_t first = 0) {
  for (int64_t i = 0; i < out.count(); ++i) {
    const Expected e = reduced(c.type, c.op, ranks, first + i);
    const double error = std::fabs(element(out, i) - e.value);
    const bool right = error <= (c.op == Reduction::sum ? bound(c.type, ranks, e.magnitude) : 0);  // false for NaN
    ASSERT_TRUE(right) << c.text() << " at " << i << ": " << element(out, i) << ", expected " << e.value;
  }
}

void expect_unchanged(const Case& c, Guarded& in, int rank) {
  for (int64_t i = 0; i < in.view().count(); ++i)
    ASSERT_EQ(element(in.view(), i), input_value(c.type, rank, i)) << c.text() << ": the input changed";
}

void try_all_reduce(Group& world, const Case& c, std::vector<std::vector<std::byte>>& all) {
  Guarded in(c.type, c.size), out(c.type, c.size);
  in.fill_from(world.rank());
  if (c.in_place) out.fill_from(world.rank());
  world.all_reduce(c.in_place ? View(out.view()) : in.view(), out.view(), c.op, c.algorithm.name).wait();
  expect_reduced(c, out.view(), world.size());
  expect_unchanged(c, in, world.rank());
  ASSERT_TRUE(in.guards_intact() && out.guards_intact()) << c.text();
  const MutView v = out.view();
  all[static_cast<size_t>(world.rank())].assign(v.data, v.data + v.bytes());
  world.barrier().wait();
  ASSERT_EQ(all[static_cast<size_t>(world.rank())], all[0]) << c.text() << ": ranks differ";
  world.barrier().wait();
}

void try_reduce(Group& world, const Case& c) {
  for (const int root : {0, world.size() - 1}) {
    Guarded in(c.type, c.size), out(c.type, c.size);
    const bool is_root = world.rank() == root, in_place = c.in_place && is_root;
    in.fill_from(world.rank());
    if (in_place) out.fill_from(world.rank());
    world
        .reduce(in_place ? View(out.view()) : in.view(), is_root ? out.view() : MutView(), c.op, root, c.algorithm.name)
        .wait();
    if (is_root) expect_reduced(c, out.view(), world.size());
    expect_unchanged(c, in, world.rank());
    ASSERT_TRUE(out.guards_intact()) << c.text();
  }
}

void try_broadcast(Group& world, const Case& c) {
  for (const int root : {0, world.size() / 2}) {
    Guarded x(c.type, c.size);
    if (world.rank() == root) x.fill_from(root);
    world.broadcast(x.view(), root, c.algorithm.name).wait();
    expect_unchanged(c, x, root);
    ASSERT_TRUE(x.guards_intact()) << c.text();
  }
}

std::vector<int64_t> counts_of(const Case& c, int ranks) {
  return c.uneven ? uneven_counts(ranks, c.size) : std::vector<int64_t>(static_cast<size_t>(ranks), c.size);
}

void try_all_gather(Group& world, const Case& c) {
  const std::vector<int64_t> counts = counts_of(c, world.size());
  const Blocks blocks = Blocks::of_counts(counts);
  Guarded in(c.type, blocks.count(world.rank())), out(c.type, blocks.total());
  in.fill_from(world.rank());
  const MutView own = out.view().slice(0, blocks.at(world.rank()), blocks.count(world.rank()));
  if (c.in_place) std::memcpy(own.data, in.view().data, static_cast<size_t>(own.bytes()));
  world
      .all_gather(c.in_place ? View(own) : in.view(), out.view(), c.uneven ? counts : std::vector<int64_t>{},
                  c.algorithm.name)
      .wait();
  for (int r = 0; r < world.size(); ++r) {
    for (int64_t i = 0; i < blocks.count(r); ++i)
      ASSERT_EQ(element(out.view(), blocks.at(r) + i), input_value(c.type, r, i)) << c.text() << " of " << r;
  }
  ASSERT_TRUE(out.guards_intact()) << c.text();
}

void try_reduce_scatter(Group& world, const Case& c) {
  const std::vector<int64_t> counts = counts_of(c, world.size());
  const Blocks blocks = Blocks::of_counts(counts);
  Guarded in(c.type, blocks.total()), apart(c.type, blocks.count(world.rank()));
  in.fill_from(world.rank());
  const int64_t first = blocks.at(world.rank());
  const MutView out = c.in_place ? MutView(in.view().slice(0, first, apart.view().count())) : apart.view();
  world.reduce_scatter(in.view(), out, c.op, c.uneven ? counts : std::vector<int64_t>{}, c.algorithm.name).wait();
  expect_reduced(c, out, world.size(), first);
  if (!c.in_place) expect_unchanged(c, in, world.rank());
  ASSERT_TRUE(in.guards_intact() && apart.guards_intact()) << c.text();
}

// Rank r sends size + (r + d) % 3 elements to rank d when uneven, numbered by (r, d).
void try_all_to_all(Group& world, const Case& c) {
  const auto count = [&](int r, int d) { return c.size + (c.uneven ? (r + d) % 3 : 0); };
  std::vector<int64_t> counts;  // symmetric, so that in place is possible
  for (int d = 0; d < world.size(); ++d) counts.push_back(count(world.rank(), d));
  const Blocks blocks = Blocks::of_counts(counts);
  Guarded in(c.type, blocks.total()), out(c.type, blocks.total());
  const auto value = [&](int r, int d, int64_t i) { return input_value(c.type, r * 64 + d, i); };
  for (int d = 0; d < world.size(); ++d) {
    for (int64_t i = 0; i < blocks.count(d); ++i)
      set_element(c.in_place ? out.view() : in.view(), blocks.at(d) + i, value(world.rank(), d, i));
  }
  const auto listed = c.uneven ? counts : std::vector<int64_t>{};
  world.all_to_all(c.in_place ? View(out.view()) : in.view(), out.view(), listed, listed, c.algorithm.name).wait();
  for (int r = 0; r < world.size(); ++r) {
    for (int64_t i = 0; i < blocks.count(r); ++i)
      ASSERT_EQ(element(out.view(), blocks.at(r) + i), value(r, world.rank(), i)) << c.text() << " from " << r;
  }
  ASSERT_TRUE(in.guards_intact() && out.guards_intact()) << c.text();
}

bool has_uneven(Op op) { return op == Op::all_gather || op == Op::reduce_scatter || op == Op::all_to_all; }
bool reduces(Op op) { return op == Op::reduce || op == Op::all_reduce || op == Op::reduce_scatter; }

void try_case(Group& world, const Case& c, std::vector<std::vector<std::byte>>& all) {
  switch (c.algorithm.op) {
    case Op::barrier:
      return world.barrier(c.algorithm.name).wait();
    case Op::broadcast:
      return try_broadcast(world, c);
    case Op::reduce:
      return try_reduce(world, c);
    case Op::all_reduce:
      return try_all_reduce(world, c, all);
    case Op::all_gather:
      return try_all_gather(world, c);
    case Op::reduce_scatter:
      return try_reduce_scatter(world, c);
    case Op::all_to_all:
      return try_all_to_all(world, c);
  }
}

void try_algorithm(Group& world, const Algorithm& a, std::vector<std::vector<std::byte>>& all) {
  for (const bool uneven : {false, true}) {
    if (uneven && !has_uneven(a.op)) continue;
    if (a.refuses({.op = a.op, .uniform = !uneven})) continue;
    for (const bool in_place : {false, true}) {
      for (const int64_t size : {0, 1, 5, 64, 1031})
        try_case(world, {a, DType::f32, Reduction::sum, size, in_place, uneven}, all);
    }
    for (const DType type : {DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8})
      try_case(world, {a, type, Reduction::sum, 37, false, uneven}, all);
    for (const Reduction op : {Reduction::max, Reduction::min}) {
      if (!reduces(a.op)) continue;
      for (const DType type : {DType::f32, DType::bf16, DType::i64, DType::u8})
        try_case(world, {a, type, op, 13, true, uneven}, all);
    }
  }
}

class InProcessRanks : public testing::TestWithParam<int> {};

TEST_P(InProcessRanks, EveryAlgorithmGivesTheSum) {
  for (const int per_node : node_sizes(GetParam())) {
    std::vector<std::vector<std::byte>> all(static_cast<size_t>(GetParam()));
    run_in_process(GetParam(), {.timeout = kTestTimeout, .per_node = per_node, .compare_calls = true},
                   [&](Group& world) {
                     for (const Algorithm& a : algorithms()) {
                       const bool by_nodes = a.refuses({.op = a.op, .per_node = 0}) != nullptr;
                       if (by_nodes || per_node == 1) try_algorithm(world, a, all);
                     }
                   });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InProcessRanks, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9));

TEST(Group, SixteenAndSixtyFourRanks) {
  for (const int ranks : {16, 64}) {
    std::vector<std::vector<std::byte>> all(static_cast<size_t>(ranks));
    run_in_process(ranks, {.timeout = kTestTimeout, .per_node = 4}, [&](Group& world) {
      for (const Algorithm& a : algorithms()) try_case(world, {a, DType::f32, Reduction::sum, 131}, all);
    });
  }
}

// Several segments of a tree, several pieces of a slot, and a tail that fills no cell.
TEST(Group, LargeVectors) {
  for (const int ranks : {4, 6}) {
    std::vector<std::vector<std::byte>> all(static_cast<size_t>(ranks));
    run_in_process(ranks, {.timeout = kTestTimeout, .per_node = 2}, [&](Group& world) {
      for (const Algorithm& a : algorithms()) {
        for (const DType type : {DType::f32, DType::bf16, DType::i64})
          if (a.op == Op::all_reduce) try_case(world, {a, type, Reduction::sum, 70001}, all);
        if (a.name == std::string_view("nvrar"))
          try_case(world, {a, DType::u8, Reduction::sum, 2 * cells::kPayloadMost + 7}, all);
      }
    });
  }
}

// Ranks stall at random between and before calls; a number of another round in a slot would give another sum.
TEST(Group, NvrarDoesNotMixRounds) {
  for (const int ranks : {4, 6, 10}) {  // 2, 3 and 5 nodes
    run_in_process(ranks, {.timeout = kTestTimeout, .per_node = 2}, [&](Group& world) {
      std::vector<int64_t> x(37);
      for (uint32_t call = 0; call < 3000; ++call) {
        const RandomKey key{.seed = 5, .stream = static_cast<uint32_t>(world.rank())};
        if (const uint32_t draw = philox(key, call)[0]; draw % 64 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(draw >> 8 & 255));
        const int64_t n = 1 + call % 37;
        for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = call * 1000 + i + world.rank();
        const MutView v = mut_view_of(x.data(), {n});
        world.all_reduce(v, v, Reduction::sum, "nvrar").wait();
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(x[static_cast<size_t>(i)], ranks * (call * 1000 + i) + ranks * (ranks - 1) / 2) << "call " << call;
      }
    });
  }
}

TEST(Group, CallsInFlightTogetherDoNotMix) {
  run_in_process(4, {.timeout = kTestTimeout, .per_node = 2}, [](Group& world) {
    std::vector<Guarded> outs(8, Guarded(DType::f32, 100));
    std::vector<Handle> handles;
    for (int k = 0; k < 8; ++k) {
      Guarded& out = outs[static_cast<size_t>(k)];
      for (int64_t i = 0; i < 100; ++i) set_element(out.view(), i, k * 100 + world.rank());
      handles.push_back(world.all_reduce(out.view(), out.view(), Reduction::max, k % 2 ? "nvrar" : "ring"));
    }
    // Ranks wait in different orders.
    for (int k = 0; k < 8; ++k) handles[static_cast<size_t>(world.rank() % 2 ? k : 7 - k)].wait();
    for (int k = 0; k < 8; ++k) ASSERT_EQ(element(outs[static_cast<size_t>(k)].view(), 99), k * 100 + 3);
  });
}

TEST(Group, ASplitGroupHasItsOwnRanksAndMessages) {
  run_in_process(6, {.timeout = kTestTimeout, .per_node = 3}, [](Group& world) {
    Group odd_even = world.split(world.rank() % 2, -world.rank());  // the last rank first
    ASSERT_EQ(odd_even.size(), 3);
    ASSERT_EQ(odd_even.rank(), (5 - world.rank()) / 2);
    ASSERT_EQ(odd_even.per_node(), 0);
    Group node = world.split(world.rank() / 3);
    ASSERT_EQ(node.per_node(), 3);
    int64_t a = world.rank(), b = world.rank();
    // Both in flight at once.
    Handle first = odd_even.all_reduce(view_of(&a, {1}), mut_view_of(&a, {1}));
    node.all_reduce(view_of(&b, {1}), mut_view_of(&b, {1})).wait();
    first.wait();
    ASSERT_EQ(a, world.rank() % 2 ? 1 + 3 + 5 : 0 + 2 + 4);
    ASSERT_EQ(b, world.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
  });
}

TEST(Group, MessagesOfATagArriveInOrder) {
  run_in_process(2, {}, [](Group& world) {
    for (int64_t i = 0; i < 50; ++i) {
      int64_t x = i, other = 1000 + i;
      if (world.rank() == 0) {
        world.send(view_of(&other, {1}), 1, 7).wait();
        world.send(view_of(&x, {1}), 1).wait();
      } else {
        int64_t y = 0;
        world.recv(mut_view_of(&y, {1}), 0).wait();
        ASSERT_EQ(y, i);
        world.recv(mut_view_of(&y, {1}), 0, 7).wait();
        ASSERT_EQ(y, other);
      }
    }
  });
}

TEST(Group, ATimeOutNamesThePeer) {
  const std::string error = error_of([] {
    run_in_process(3, {.timeout = std::chrono::milliseconds(50)}, [](Group& world) {
      float x = 1;
      if (world.rank() != 2) world.all_reduce(view_of(&x, {1}), mut_view_of(&x, {1}), Reduction::sum, "linear").wait();
    });
  });
  // Rank 0 hears rank 1 and not rank 2; rank 1 waits for rank 0. Either may be the first to give up.
  EXPECT_TRUE(error.find("nothing from rank 2 for 0.05 s") != std::string::npos ||
              error.find("nothing from rank 0 for 0.05 s") != std::string::npos)
      << error;
  EXPECT_NE(error.find("[comm all_reduce linear]"), std::string::npos) << error;
}

TEST(Group, AnotherCallIsNamed) {
  const std::string error = error_of([] {
    run_in_process(2, {.compare_calls = true}, [](Group& world) {
      std::vector<float> x(4, 1);
      world.barrier().wait();
      if (world.rank() == 0)
        world.all_reduce(view_of(x.data(), {4}), mut_view_of(x.data(), {4}), Reduction::sum, "linear").wait();
      else
        world.all_gather(view_of(x.data(), {2}), mut_view_of(x.data(), {4}), {}, "linear").wait();
    });
  });
  EXPECT_NE(error.find("makes another call"), std::string::npos) << error;
}

TEST(Group, ADifferentReductionIsFound) {
  const std::string error = error_of([] {
    run_in_process(2, {.compare_calls = true}, [](Group& world) {
      float x = 1;
      const Reduction op = world.rank() == 0 ? Reduction::sum : Reduction::max;
      world.all_reduce(view_of(&x, {1}), mut_view_of(&x, {1}), op).wait();
    });
  });
  EXPECT_NE(error.find("all_reduce with other arguments"), std::string::npos) << error;
}

TEST(Group, AnotherSizeIsAnError) {
  const std::string error = error_of([] {
    run_in_process(2, {.compare_calls = false}, [](Group& world) {
      std::vector<float> x(5, 1);
      const int64_t n = 4 + world.rank();
      world.all_reduce(view_of(x.data(), {n}), mut_view_of(x.data(), {n}), Reduction::sum, "recursive").wait();
    });
  });
  EXPECT_NE(error.find("has another size"), std::string::npos) << error;
}

TEST(Group, TheErrorOfARankReachesTheOthers) {
  const std::string error = error_of([] {
    run_in_process(3, {}, [](Group& world) {
      if (world.rank() == 1) fail("input", {.what = "cannot be read"});
      world.barrier().wait();
    });
  });
  EXPECT_EQ(error, "[input] cannot be read");
}

TEST(Group, NamesOfAlgorithmsAreChecked) {
  Group self = self_group();
  EXPECT_NE(error_of([&] { self.barrier("ring").wait(); }).find("expected linear, binomial, recursive"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              algorithm_for({.op = Op::all_reduce, .per_node = 0}, "nvrar");
            }).find("nodes do not hold equally many"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::comm
