// Every algorithm over MPI. The tests of this binary start themselves under mpirun; where that is missing they say so.
#include "comm/mpi.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "comm/comm_cases.h"
#include "support/error_of.h"

namespace braid::comm {
namespace {

bool under_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }
bool has_mpirun() { return std::system("command -v mpirun > /dev/null 2>&1") == 0; }

// This binary's tests of a name, by so many ranks. One line of output, whatever they print.
void start_ranks(int ranks, const std::string& name) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun; apt-get install openmpi-bin";
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
      "OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
      "ASAN_OPTIONS=detect_leaks=0 "  // Open MPI keeps what it allocates
      "OMPI_MCA_btl=self,vader timeout 120 mpirun -np " +
      std::to_string(ranks) + " /proc/" + std::to_string(getpid()) + "/exe --gtest_color=no --gtest_filter=" + name +
      " 2>&1";
  std::FILE* output = popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  for (int c = 0; (c = std::fgetc(output)) != EOF;) text += static_cast<char>(c);
  ASSERT_EQ(pclose(output), 0) << text;
  ASSERT_NE(text.find("[  PASSED  ] 1 test."), std::string::npos) << text;
}

TEST(UnderMpirun, Ranks) {
  if (!under_mpirun()) GTEST_SKIP() << "started by other tests";
  const int ranks = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  const Options options{.timeout = std::chrono::seconds(100), .per_node = ranks % 2 == 0 ? 2 : 1, .alone = true};
  run_under_mpi(options, [&](Group& world) {
    for (const Algorithm& a : every_algorithm()) {
      // Ranks that have to take turns on a core are slow: more of them try less.
      if (ranks <= 4) try_algorithm(world, a);
      try_case(world, {a, DType::bf16, Reduction::sum, 37});
      // Larger than what MPI sends without asking.
      try_case(world, {a, DType::f32, Reduction::sum, 20001});
    }
  });
}

// The library's own collectives on all ranks, on groups split from them, and several in flight beside ours.
TEST(UnderMpirun, Native) {
  if (!under_mpirun()) GTEST_SKIP() << "started by other tests";
  run_under_mpi({.timeout = std::chrono::seconds(100), .alone = true}, [&](Group& world) {
    Group reversed = world.split(0, -world.rank()), halves = world.split(world.rank() % 2);
    for (Group* group : {&world, &reversed, &halves}) {
      for (const Algorithm& a : every_algorithm()) {
        if (a.make) continue;
        if (group != &world) {
          try_case(*group, {a, DType::bf16, Reduction::sum, 1031});
          continue;
        }
        for (const bool uneven : {false, true}) {
          if (uneven && !has_uneven(a.op)) continue;
          for (const bool in_place : {false, true}) {
            for (const int64_t size : {0, 5, 1031, 20001})
              try_case(*group, {a, DType::f32, Reduction::sum, size, in_place, uneven});
            for (const DType type : {DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8})
              try_case(*group, {a, type, Reduction::sum, 37, in_place, uneven});
            for (const DType type : {DType::f32, DType::bf16, DType::i64, DType::u8}) {
              if (!reduces(a.op)) continue;
              try_case(*group, {a, type, Reduction::max, 13, in_place, uneven});
              try_case(*group, {a, type, Reduction::min, 13, in_place, uneven});
            }
          }
        }
      }
    }
    std::vector<float> x(1000, static_cast<float>(world.rank() + 1)), y(1000, 1), z(1000, 2);
    const auto all = [](std::vector<float>& v) { return mut_view_of(v.data(), {std::ssize(v)}); };
    Handle first = world.all_reduce(all(x), all(x), Reduction::sum, "ring");
    Handle second = halves.all_reduce(all(y), all(y), Reduction::sum, "native");
    Handle third = world.all_reduce(all(z), all(z), Reduction::sum, "native");
    third.wait(), second.wait(), first.wait();
    const auto n = static_cast<float>(world.size());
    EXPECT_TRUE(x[999] == n * (n + 1) / 2 && y[999] == static_cast<float>(halves.size()) && z[999] == 2 * n);
    // NaN wins, as in every other algorithm.
    float extreme = world.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1;
    world.all_reduce(mut_view_of(&extreme, {1}), mut_view_of(&extreme, {1}), Reduction::max, "native").wait();
    EXPECT_TRUE(std::isnan(extreme));
  });
}

TEST(UnderMpirun, NativeRefuses) {
  if (!under_mpirun()) GTEST_SKIP() << "started by other tests";
  run_under_mpi({}, [&](Group& world) {
    float x = 1;
    const MutView v = mut_view_of(&x, {1});
    EXPECT_NE(support::error_of([&] {
                (void)world.all_reduce(v, v, Reduction::sum, "native_blocking");
              }).find("other calls may be in flight"),
              std::string::npos);
    world.all_reduce(v, v, Reduction::sum, "native").wait();
    EXPECT_EQ(x, static_cast<float>(world.size()));
  });
}

TEST(UnderMpirun, AnotherCallIsNamed) {
  if (!under_mpirun()) GTEST_SKIP() << "started by other tests";
  run_under_mpi({.timeout = std::chrono::seconds(100), .compare_calls = true}, [&](Group& world) {
    for (const Algorithm& a : every_algorithm()) {
      if (a.make) try_case(world, {a, DType::f32, Reduction::sum, 37});
    }
    Group pair = world.split(0);
    const std::string error = support::error_of([&] {
      float x = 1;
      const MutView v = mut_view_of(&x, {1});
      pair.all_reduce(v, v, world.rank() == 0 ? Reduction::sum : Reduction::max, "recursive").wait();
    });
    EXPECT_NE(error.find("all_reduce with other arguments"), std::string::npos) << error;
  });
}

// As on machines with two ranks and one: each rank knows how many its own has, and all have to choose alike.
TEST(UnderMpirun, UnevenNodes) {
  if (!under_mpirun()) GTEST_SKIP() << "started by other tests";
  const bool apart = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")) == 2;
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", apart ? "1" : "2", 1);
  const int local = local_ranks_of_mpirun();
  run_under_mpi({.timeout = std::chrono::seconds(20), .per_node = local, .on_machine = local}, [&](Group& world) {
    EXPECT_EQ(world.per_node(), 1);
    EXPECT_EQ(world.on_this_machine(), apart ? 1 : 2);
    for (const int64_t size : {1, 1000, 100'000}) {
      for (const Op op : {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::all_to_all}) {
        const Algorithm unnamed{.op = op, .name = "", .refuses = nullptr, .make = nullptr};
        try_case(world, {unnamed, DType::f32, Reduction::sum, size});
      }
    }
  });
}

class MpiRanks : public testing::TestWithParam<int> {};
TEST_P(MpiRanks, EveryAlgorithmGivesTheSum) { start_ranks(GetParam(), "UnderMpirun.Ranks"); }
TEST_P(MpiRanks, NativeOnes) { start_ranks(GetParam(), "UnderMpirun.Native"); }
TEST(Mpi, AnotherCallIsNamed) { start_ranks(2, "UnderMpirun.AnotherCallIsNamed"); }
TEST(Mpi, UnevenNodes) { start_ranks(3, "UnderMpirun.UnevenNodes"); }
TEST(Mpi, NativeRefuses) { start_ranks(2, "UnderMpirun.NativeRefuses"); }
// Starting ranks takes a second each; the slow suite tries all numbers of them.
INSTANTIATE_TEST_SUITE_P(Ranks, MpiRanks, testing::Values(1, 3));
INSTANTIATE_TEST_SUITE_P(DISABLED_Ranks, MpiRanks, testing::Values(2, 4, 5, 6, 7, 8, 9));

TEST(Mpi, WithoutMpirunOrTheLibraryItSaysWhatToDo) {
  if (under_mpirun()) GTEST_SKIP() << "under mpirun";
  const std::string error = support::error_of([] { run_under_mpi({}, [](Group&) {}); });
  EXPECT_TRUE(error.find("mpirun -np 4 braid") != std::string::npos ||
              error.find("apt-get install openmpi-bin") != std::string::npos)
      << error;
}

}  // namespace
}  // namespace braid::comm
