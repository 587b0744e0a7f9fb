// Every algorithm over MPI. The tests of this binary start themselves under mpirun; where that is missing they say so.
#include "comm/mpi.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

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
  run_under_mpi({.timeout = std::chrono::seconds(100), .per_node = ranks % 2 == 0 ? 2 : 1}, [&](Group& world) {
    for (const Algorithm& a : algorithms()) {
      // Ranks that have to take turns on a core are slow: more of them try less.
      if (ranks <= 4) try_algorithm(world, a);
      try_case(world, {a, DType::bf16, Reduction::sum, 37});
      // Larger than what MPI sends without asking.
      try_case(world, {a, DType::f32, Reduction::sum, 20001});
    }
  });
}

class MpiRanks : public testing::TestWithParam<int> {};
TEST_P(MpiRanks, EveryAlgorithmGivesTheSum) { start_ranks(GetParam(), "UnderMpirun.Ranks"); }
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
