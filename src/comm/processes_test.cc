// Every algorithm over processes, by shared memory and by sockets, and what becomes of errors and deaths.
#include "comm/shm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "comm/cell_exchange.h"
#include "comm/comm_cases.h"
#include "comm/tcp.h"
#include "support/error_of.h"

namespace braid::comm {
namespace {

using support::error_of;

using Runner = void (*)(int, const Options&, const std::function<void(Group&)>&);
constexpr Runner kBoth[] = {&run_in_processes, &run_over_loopback};

// A child's failure becomes its error, which ends the others and fails the test.
template <class Body>
void in_processes(Runner run, int size, int per_node, Body body) {
  std::fflush(nullptr);
  run(size, {.timeout = kTestTimeout, .per_node = per_node, .compare_calls = true}, [&](Group& world) {
    body(world);
    if (testing::Test::HasFailure() && world.rank() != 0) {
      std::fflush(nullptr);
      fail("test", {.what = "failed in a child"});
    }
  });
}

class ProcessRanks : public testing::TestWithParam<int> {};

TEST_P(ProcessRanks, EveryAlgorithmGivesTheSum) {
  const int per_node = node_sizes(GetParam()).size() > 2 ? node_sizes(GetParam())[1] : 1;
  for (const Runner run : kBoth) {
    in_processes(run, GetParam(), per_node, [](Group& world) {
      for (const Algorithm& a : algorithms()) try_algorithm(world, a);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessRanks, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9));

// Messages larger than a ring or a socket's buffer, in both directions at once.
TEST(Processes, LargeVectors) {
  for (const Runner run : kBoth) {
    in_processes(run, 4, 2, [](Group& world) {
      for (const Algorithm& a : algorithms()) try_case(world, {a, DType::f32, Reduction::sum, 70001});
    });
  }
}

TEST(Processes, NvrarDoesNotMixRounds) {
  in_processes(&run_in_processes, 6, 2, [](Group& world) {
    for (int64_t call = 0; call < 2000; ++call) {
      if ((call * 7 + world.rank() * 13) % 64 == 0) usleep(static_cast<useconds_t>(call % 97));
      int64_t x[3] = {call, world.rank(), 7};
      const MutView v = mut_view_of(x, {1 + call % 3});
      world.all_reduce(v, v, Reduction::sum, "nvrar").wait();
      ASSERT_EQ(x[0], 6 * call);
      ASSERT_EQ(x[1], call % 3 > 0 ? 15 : world.rank());
    }
  });
}

TEST(Processes, TheErrorOfARankReachesTheOthers) {
  for (const Runner run : kBoth) {
    const std::string error = error_of([&] {
      run(3, {.timeout = kTestTimeout}, [](Group& world) {
        if (world.rank() == 1) fail("input", {.what = "cannot be read"});
        world.barrier().wait();
      });
    });
    EXPECT_NE(error.find("rank 1 ended: [input] cannot be read"), std::string::npos) << error;
  }
}

TEST(Processes, ADeadRankIsNamed) {
  for (const Runner run : kBoth) {
    const std::string error = error_of([&] {
      run(3, {.timeout = kTestTimeout}, [](Group& world) {
        if (world.rank() == 2) raise(SIGKILL);
        world.barrier().wait();
      });
    });
    EXPECT_NE(error.find("rank 2 was killed by signal 9"), std::string::npos) << error;
  }
}

TEST(Processes, ATimeOutNamesThePeer) {
  for (const Runner run : kBoth) {
    const std::string error = error_of([&] {
      run(2, {.timeout = std::chrono::milliseconds(50)}, [](Group& world) {
        int64_t x = 0;
        if (world.rank() == 0) world.recv(mut_view_of(&x, {1}), 1).wait();
        if (world.rank() == 1) usleep(300'000);
      });
    });
    EXPECT_NE(error.find("[comm recv] nothing from rank 1 for 0.05 s"), std::string::npos) << error;
  }
}

// Each with the list and its own place in it; the last starts late.
TEST(Processes, RanksStartedByHandFindEachOther) {
  const std::string base = "127.0.0.1:" + std::to_string(20000 + getpid() % 20000);
  std::vector<std::string> hosts = {base, base, base};
  for (size_t i = 1; i < 3; ++i) hosts[i] = "127.0.0." + std::to_string(i + 1) + base.substr(base.find(':'));
  run_in_processes(3, {.timeout = kTestTimeout}, [&](Group& started) {
    if (started.rank() == 0) usleep(300'000);
    run_over_hosts({hosts, started.rank()}, {.timeout = kTestTimeout, .compare_calls = true}, [](Group& world) {
      for (const Algorithm& a : algorithms()) try_case(world, {a, DType::f32, Reduction::sum, 37});
    });
    if (testing::Test::HasFailure() && started.rank() != 0) fail("test", {.what = "failed in a child"});
  });
}

// Each rank knows its own machine, whatever nodes all agree on.
TEST(Processes, RanksOfThisMachine) {
  const std::vector<std::string> hosts = {"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.1:3"};
  EXPECT_EQ(ranks_beside({hosts, 0}), 3);
  EXPECT_EQ(ranks_beside({hosts, 2}), 1);
  in_processes(&run_in_processes, 4, 2,
               [](Group& world) { EXPECT_EQ(world.split(world.rank()).on_this_machine(), 4); });
  run_in_processes(3, {.timeout = kTestTimeout, .on_machine = 2}, [](Group& world) {
    if (world.on_this_machine() != 2) fail("test", {.what = "another machine"});
  });
}

// The other process has to end, too.
TEST(Processes, TimingOfCellsEndsWithAnErrorOfOneSide) {
  const int64_t sizes[] = {64, 64};
  EXPECT_EQ(error_of([&] {
              time_cells(sizes, 1, 3, [](int64_t done) {
                if (done == 1) fail("input", {.what = "cannot be read"});
              });
            }),
            "[input] cannot be read");
}

TEST(Processes, NodesOfHosts) {
  EXPECT_EQ(node_ranks_of({"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.2:2"}), 2);
  EXPECT_EQ(node_ranks_of({"10.0.0.1:1", "10.0.0.2:1"}), 1);
  EXPECT_EQ(node_ranks_of({"10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2"}), 0);
  EXPECT_EQ(node_ranks_of({"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"}), 0);
  for (const char* host : {"10.0.0.1", "10.0.0.1:0", "10.0.0.1:70000", "10.0.0.1:1x", "node:80", ":1"})
    EXPECT_NE(error_of([&] {
                run_over_hosts({{host, "10.0.0.1:1"}, 0}, {}, [](Group&) {});
              }).find("is not an address"),
              std::string::npos)
        << host;
}

}  // namespace
}  // namespace braid::comm
