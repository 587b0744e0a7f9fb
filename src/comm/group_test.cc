// Every algorithm over threads, against sums in FP64: all types and operations, sizes that do not divide, in place and
// out of place, uneven blocks, every size of node.
#include "comm/group.h"

#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include <thread>

#include "comm/comm_cases.h"
#include "comm/inproc.h"
#include "comm/same_words.h"
#include "core/philox.h"
#include "support/error_of.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

using support::error_of;

class InProcessRanks : public testing::TestWithParam<int> {};

TEST_P(InProcessRanks, EveryAlgorithmGivesTheSum) {
  for (const int per_node : node_sizes(GetParam())) {
    run_in_process(GetParam(), {.timeout = kTestTimeout, .per_node = per_node, .compare_calls = true},
                   [&](Group& world) {
                     for (const Algorithm& a : algorithms()) {
                       const bool by_nodes = a.refuses({.op = a.op, .per_node = 0}) != nullptr;
                       if (by_nodes || per_node == 1) try_algorithm(world, a);
                     }
                   });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InProcessRanks, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9));

// Ranks 1 and 2 need what rank 0 passes on, who neither waits nor polls until they are done.
TEST(Group, ADrivenRankPassesOnWhileItComputes) {
  std::latch others(2);
  run_in_process(3, {.timeout = kTestTimeout}, [&](Group& world) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x(5000, 1), y(3, static_cast<float>(world.rank()));
      const MutView all = mut_view_of(x.data(), {5000}), few = mut_view_of(y.data(), {3});
      if (world.rank() == 0) world.drive(round % 2 == 0);
      Handle first = world.all_reduce(all, all, Reduction::sum, "ring");
      if (round == 0 && world.rank() == 0) others.wait();
      if (round == 0 && world.rank() > 0) first.wait(), others.count_down();
      Handle second = world.all_reduce(few, few, Reduction::sum, "recursive");  // beside the driver
      second.wait();
      first.wait();
      ASSERT_TRUE(x[0] == 3 && x[4999] == 3 && y[2] == 3);
    }
  });
}

TEST(Group, NativeIsRefusedWithoutALibrary) {
  run_in_process(2, {.timeout = kTestTimeout, .alone = true}, [&](Group& world) {
    float x = 1;
    const MutView v = mut_view_of(&x, {1});
    for (const char* name : {"native", "native_blocking"})
      EXPECT_NE(
          error_of([&] { (void)world.all_reduce(v, v, Reduction::sum, name); }).find("those over mpi and nccl do"),
          std::string::npos);
  });
}

TEST(Group, SixteenAndSixtyFourRanks) {
  for (const int ranks : {16, 64}) {
    run_in_process(ranks, {.timeout = kTestTimeout, .per_node = 4}, [&](Group& world) {
      for (const Algorithm& a : algorithms()) try_case(world, {a, DType::f32, Reduction::sum, 131});
    });
  }
}

// Several segments of a tree, several pieces of a slot, and a tail that fills no cell.
TEST(Group, LargeVectors) {
  for (const int ranks : {4, 6}) {
    run_in_process(ranks, {.timeout = kTestTimeout, .per_node = 2}, [&](Group& world) {
      for (const Algorithm& a : algorithms()) {
        for (const DType type : {DType::f32, DType::i64})
          if (a.op == Op::all_reduce) try_case(world, {a, type, Reduction::sum, 70001});
        if (ranks == 4 && a.name == std::string_view("nvrar"))
          try_case(world, {a, DType::u8, Reduction::sum, 2 * cells::kPayloadMost + 7});
      }
    });
  }
}

// Whatever the size of a vector, where in it an element is, and which of the two algorithms sums it.
TEST(Group, RecursiveSumsHaveOneOrder) {
  constexpr int64_t kMost = 1003;
  for (const int ranks : {2, 3, 4, 6, 8, 9}) {
    run_in_process(ranks, {.timeout = kTestTimeout}, [&](Group& world) {
      const RandomKey key{.seed = 3, .stream = static_cast<uint32_t>(world.rank())};
      std::vector<float> x(kMost), want(kMost), got(kMost);
      for (size_t i = 0; i < x.size(); ++i) x[i] = uniform(philox(key, i)[0]) - 0.5f;
      world.all_reduce(view_of(x.data(), {kMost}), mut_view_of(want.data(), {kMost}), Reduction::sum, "recursive")
          .wait();
      for (const char* name : {"recursive", "rabenseifner"}) {
        for (const int64_t begin : {0, 1, 500, 1001}) {
          const int64_t n = kMost - begin;
          const MutView out = mut_view_of(got.data(), {n});
          world.all_reduce(view_of(x.data() + begin, {n}), out, Reduction::sum, name).wait();
          ASSERT_EQ(std::memcmp(got.data(), want.data() + begin, static_cast<size_t>(n) * sizeof(float)), 0)
              << name << " of " << n << " on " << ranks;
        }
      }
    });
  }
}

// Ranks stall at random between and before calls; a number of another round in a slot would give another sum.
void expect_rounds_apart(int ranks, uint32_t calls) {
  run_in_process(ranks, {.timeout = kTestTimeout, .per_node = 2}, [&](Group& world) {
    std::vector<int64_t> x(37);
    for (uint32_t call = 0; call < calls; ++call) {
      const RandomKey key{.seed = 5, .stream = static_cast<uint32_t>(world.rank())};
      if (const uint32_t draw = philox(key, call)[0]; draw % 64 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draw >> 8 & 255));
      const int64_t n = 1 + call % 37;
      for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = int64_t{call} * 1000 + i + world.rank();
      const MutView v = mut_view_of(x.data(), {n});
      world.all_reduce(v, v, Reduction::sum, "nvrar").wait();
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(x[static_cast<size_t>(i)], ranks * (int64_t{call} * 1000 + i) + ranks * (ranks - 1) / 2)
            << "call " << call;
    }
  });
}

TEST(Group, NvrarDoesNotMixRounds) {
  for (const int ranks : {4, 6, 10}) expect_rounds_apart(ranks, 3000);  // 2, 3 and 5 nodes
}
// The slow suite's.
TEST(Group, DISABLED_NvrarDoesNotMixRoundsOfAHundredThousandCalls) {
  for (const int ranks : {4, 6}) expect_rounds_apart(ranks, 100'000);
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

// What ranks were told is compared as a whole, and every rank says the same.
TEST(SameWords, TheFirstDifferenceIsNamedByAll) {
  const auto told = [](const Words& third) {
    std::vector<std::string> errors(3);
    run_in_process(3, {}, [&](Group& world) {
      const Words words = {{"seed", "1"}, {"lr", "0.5"}, {"out", ""}};
      errors[static_cast<size_t>(world.rank())] =
          error_of([&] { check_same_words(world, world.rank() == 2 ? third : words); });
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_EQ(errors[0], errors[2]);
    return errors[0];
  };
  EXPECT_EQ(told({{"seed", "1"}, {"lr", "0.5"}, {"out", ""}}), "");
  const std::string different = "[ranks] were started with different options; got ";
  EXPECT_EQ(told({{"seed", "1"}, {"lr", "0.25"}, {"out", "x"}}),
            different + "lr = 0.25 on rank 2; expected lr = 0.5, as on rank 0");
  EXPECT_EQ(told({{"seed", "1"}}), different + "nothing on rank 2; expected lr = 0.5, as on rank 0");
  EXPECT_EQ(told({}), different + "nothing on rank 2; expected seed = 1, as on rank 0");
  EXPECT_EQ(told({{"seed", "1"}, {"lr", "0.5"}, {"out", ""}, {"more", "2"}}),
            different + "more = 2 on rank 2; expected nothing, as on rank 0");
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

// Remembers where messages are to go; some cannot be sent.
class FailingTransport final : public Transport {
 public:
  FailingTransport(bool sends, std::vector<const Message*>& waiting) : sends_(sends), waiting_(waiting) {}
  int rank() const override { return 0; }
  int size() const override { return 3; }
  void send(Message& m) override {
    if (!sends_) fail_environment("wire", {.what = "is cut"});
    m.done = true;
  }
  void recv(Message& m) override { waiting_.push_back(&m); }
  void progress(std::chrono::microseconds) override {
    if (!waiting_.empty()) fail_environment("wire", {.what = "is cut"});
  }
  void forget() noexcept override { waiting_.clear(); }
  std::byte* window(uint64_t, int, int64_t) override { return nullptr; }

 private:
  bool sends_;
  std::vector<const Message*>& waiting_;
};

// Its messages are gone with it, and nothing may be written there.
TEST(Group, ACallThatCannotStartIsForgotten) {
  std::vector<const Message*> waiting;
  Group world(std::make_unique<FailingTransport>(false, waiting), {.timeout = kTestTimeout});
  float x[3] = {};
  EXPECT_EQ(error_of([&] { (void)world.all_gather(view_of(x, {1}), mut_view_of(x, {3}), {}, "linear"); }),
            "[wire] is cut");
  EXPECT_TRUE(waiting.empty());
}

TEST(Group, ALookAtACallThrowsWhatTheDriverMet) {
  std::vector<const Message*> waiting;
  Group world(std::make_unique<FailingTransport>(true, waiting), {.timeout = kTestTimeout});
  float x[3] = {};
  Handle call = world.all_gather(view_of(x, {1}), mut_view_of(x, {3}), {}, "linear");
  world.drive(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  world.drive(false);
  waiting.clear();  // another look would find nothing wrong
  EXPECT_EQ(error_of([&] { (void)call.done(); }), "[wire] is cut");
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
