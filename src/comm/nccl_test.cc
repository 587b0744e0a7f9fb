// NCCL's collectives: on a double of the library (tests/support/fake_nccl.cc), whose ranks need no GPU, and, where
// there are a GPU and the library, on the real one with one rank.
#include "comm/nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/comm_cases.h"
#include "comm/inproc.h"
#include "comm/shm.h"
#include "comm/tcp.h"
#include "support/error_of.h"

namespace braid::comm {
namespace {

using support::error_of;
using NcclRunner = void (*)(int, const Options&, const std::function<void(Group&)>&);

constexpr const char* kFakeNccl = BRAID_FAKE_NCCL;

// Of the double, for the length of a scope.
class FakeSetting {
 public:
  FakeSetting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  FakeSetting(const FakeSetting&) = delete;
  FakeSetting& operator=(const FakeSetting&) = delete;
  ~FakeSetting() { unsetenv(name_); }

 private:
  const char* name_;
};

Options nccl_options(std::chrono::milliseconds timeout = kTestTimeout) {
  return {.timeout = timeout, .compare_calls = true, .nccl = kFakeNccl};
}

// A child's failure becomes its error, which ends the others and fails the test.
template <class Body>
void on_fake(NcclRunner run, int ranks, Body body) {
  std::fflush(nullptr);
  run(ranks, nccl_options(), [&](Group& world) {
    body(world);
    if (testing::Test::HasFailure() && world.rank() != 0) {
      std::fflush(nullptr);
      fail("test", {.what = "failed in a child"});
    }
  });
  const auto left = reinterpret_cast<int (*)()>(dlsym(dlopen(kFakeNccl, RTLD_NOW), "fake_nccl_left"));
  ASSERT_NE(left, nullptr);
  EXPECT_EQ(left(), 0) << "memory, streams, events or communicators are left";
}

template <class Try>
void each_native(const Try& attempt) {
  for (const Algorithm& a : every_algorithm()) {
    if (a.name == std::string_view("native")) attempt(a);
  }
}

class NcclRanks : public testing::TestWithParam<int> {};

TEST_P(NcclRanks, EveryOperationGivesTheSum) {
  for (const NcclRunner run : {&run_in_process, &run_in_processes}) {
    on_fake(run, GetParam(), [](Group& world) {
      int natives = 0;
      each_native([&](const Algorithm& a) {
        ++natives;
        try_algorithm(world, a);
        // Other lengths than the first, which the buffers have to grow for, and which they are kept for.
        for (const int64_t size : {70001, 37, 90001}) try_case(world, {a, DType::f32, Reduction::sum, size});
        for (const DType type : {DType::f16, DType::i32}) {
          if (reduces(a.op)) try_case(world, {a, type, Reduction::min, 13, true});
        }
      });
      EXPECT_EQ(natives, 6);
      for (const Algorithm& a : algorithms()) try_case(world, {a, DType::bf16, Reduction::sum, 37});
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, NcclRanks, testing::Values(1, 2, 3, 4));

TEST(Nccl, GroupsSplitFromOthers) {
  on_fake(&run_over_loopback, 4, [](Group& world) {
    Group reversed = world.split(0, -world.rank()), halves = world.split(world.rank() % 2);
    Group three = world.split(world.rank() == 1 ? 1 : 0);
    for (Group* group : {&reversed, &halves, &three}) {
      each_native([&](const Algorithm& a) {
        for (const bool uneven : {false, true}) {
          if (uneven && !has_uneven(a.op)) continue;
          try_case(*group, {a, DType::bf16, Reduction::sum, 103, uneven, uneven});
          try_case(*group, {a, DType::i64, Reduction::max, 5, false, uneven});
        }
      });
    }
  });
}

// More calls at once than there are buffers, of groups that overlap, longer ones after shorter ones, beside a ring of
// ours that this rank has to help along meanwhile.
void try_many_at_once(Group& world, Group& halves) {
  const auto n = static_cast<float>(world.size());
  std::vector<std::vector<float>> x;
  x.reserve(8);
  for (int i = 0; i < 8; ++i) x.emplace_back(static_cast<size_t>(1000 << i), static_cast<float>(world.rank() + i));
  const auto all = [](std::vector<float>& v) { return mut_view_of(v.data(), {std::ssize(v)}); };
  std::vector<Handle> handles;
  handles.reserve(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    Group& group = i % 3 == 2 ? halves : world;
    handles.push_back(group.all_reduce(all(x[i]), all(x[i]), Reduction::sum, i % 4 == 1 ? "ring" : "native"));
  }
  while (!handles.back().done()) {
  }
  for (size_t i = handles.size(); i-- > 0;) handles[i].wait();
  for (size_t i = 0; i < x.size(); ++i) {
    const auto base = static_cast<float>(i);
    const bool half = i % 3 == 2;
    const float sum = half ? 2 * base + static_cast<float>(2 * (world.rank() % 2)) + 2 : n * base + n * (n - 1) / 2;
    EXPECT_EQ(x[i].front(), sum) << i;
    EXPECT_EQ(x[i].back(), sum) << i;
  }
}

TEST(Nccl, ManyCallsAtOnce) {
  for (const NcclRunner run : {&run_in_process, &run_in_processes}) {
    on_fake(run, 4, [](Group& world) {
      Group halves = world.split(world.rank() % 2);
      try_many_at_once(world, halves);
      world.drive(true);
      try_many_at_once(world, halves);
      world.drive(false);
    });
  }
}

// An all-to-all in which a rank sends and receives nothing, and one in which nobody does.
TEST(Nccl, ARankWithNothingToSend) {
  on_fake(&run_in_process, 3, [](Group& world) {
    const int r = world.rank();
    const auto amount = [](int from, int to) { return int64_t{from == 1 || to == 1 ? 0 : from + to + 1}; };
    std::vector<int64_t> sent, received;
    for (int peer = 0; peer < 3; ++peer) sent.push_back(amount(r, peer)), received.push_back(amount(peer, r));
    const Blocks out_blocks = Blocks::of_counts(received);
    std::vector<int64_t> in(static_cast<size_t>(Blocks::of_counts(sent).total()), r);
    std::vector<int64_t> out(static_cast<size_t>(out_blocks.total()), -1);
    world
        .all_to_all(view_of(in.data(), {std::ssize(in)}), mut_view_of(out.data(), {std::ssize(out)}), sent, received,
                    "native")
        .wait();
    for (int peer = 0; peer < 3; ++peer) {
      for (int64_t i = 0; i < out_blocks.count(peer); ++i)
        EXPECT_EQ(out[static_cast<size_t>(out_blocks.at(peer) + i)], peer);
    }
    const std::vector<int64_t> none(3, 0);
    world.all_to_all(view_of(in.data(), {0}), mut_view_of(out.data(), {0}), none, none, "native").wait();
  });
}

void expect_says(const std::string& error, std::initializer_list<const char*> texts) {
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  for (const char* text : texts) EXPECT_NE(error.find(text), std::string::npos) << text << " in: " << error;
}

// What a sum over NCCL fails with, over each of the transports.
void expect_error(int ranks, std::initializer_list<const char*> texts,
                  std::chrono::milliseconds timeout = kTestTimeout) {
  for (const NcclRunner run : {&run_in_process, &run_in_processes, &run_over_loopback}) {
    expect_says(error_of([&] {
                  run(ranks, nccl_options(timeout), [](Group& world) {
                    float x = 1;
                    const MutView v = mut_view_of(&x, {1});
                    world.all_reduce(v, v, Reduction::sum, "native").wait();
                  });
                }),
                texts);
  }
}

TEST(Nccl, TwoRanksOnOneGpuAreRefusedBeforeNcclIsAsked) {
  const FakeSetting gpus("FAKE_NCCL_GPUS", "2"), untouched("FAKE_NCCL_FAIL", "ncclGetUniqueId");
  expect_error(3, {"[comm nccl] ranks 0 and 2 would share GPU 0000:10:00.0", "3 ranks on a machine, and 2 GPUs",
                   "--nodes 1 --gpus 2"});
}

TEST(Nccl, WithoutAGpu) {
  const FakeSetting gpus("FAKE_NCCL_GPUS", "0");
  expect_error(2, {"[comm nccl] rank 0 has no GPU", "no CUDA-capable device is detected (100)", "nvidia-smi"});
}

TEST(Nccl, ErrorsOfTheLibrary) {
  for (const char* name : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclAllReduce", "cudaMalloc"}) {
    const FakeSetting fails("FAKE_NCCL_FAIL", name);
    expect_error(2, {name[0] == 'c' ? "out of memory (2)" : "unhandled system error (2)"});
  }
  const FakeSetting later("FAKE_NCCL_ASYNC", "ncclAllReduce");
  expect_error(2, {"[comm all_reduce native] NCCL failed among ranks 0, 1",
                   "remote process exited or there was a network error (6): a peer has gone", "NCCL_DEBUG"});
}

TEST(Nccl, ATimeOutNamesTheGroup) {
  const FakeSetting hangs("FAKE_NCCL_HANG", "ncclAllReduce");
  expect_error(2, {"[comm all_reduce native] the library has not finished among ranks 0, 1 for 0.3 s", "the logs of"},
               std::chrono::milliseconds(300));
}

TEST(Nccl, ADeadRankEndsTheOthers) {
  for (const NcclRunner run : {&run_in_processes, &run_over_loopback}) {
    expect_says(error_of([&] {
                  run(3, nccl_options(), [](Group& world) {
                    if (world.rank() == 2) raise(SIGKILL);
                    float x = 1;
                    const MutView v = mut_view_of(&x, {1});
                    world.all_reduce(v, v, Reduction::sum, "native").wait();
                  });
                }),
                {"rank 2 was killed by signal 9"});
  }
}

// A call that other ranks do not make.
TEST(Nccl, AnotherCallIsAnError) {
  const std::string error = error_of([] {
    run_in_processes(2, nccl_options(), [](Group& world) {
      std::vector<float> x(3, 1);
      const MutView v = mut_view_of(x.data(), {2 + world.rank()});
      world.all_reduce(v, v, Reduction::sum, "native").wait();
    });
  });
  expect_says(error, {"NCCL failed among ranks 0, 1", "invalid usage (5)"});
}

TEST(Nccl, WithoutTheLibrary) {
  expect_says(error_of([] { check_nccl("libnccl_that_is_not_there.so.2"); }),
              {"[comm nccl] NCCL is not installed; got libnccl_that_is_not_there.so.2: cannot open shared object file",
               "apt-get install libnccl2", "pip install nvidia-nccl-cu13", "LD_LIBRARY_PATH"});
  expect_says(error_of([] { check_nccl("libc.so.6"); }), {"the library is not NCCL 2.14 or later; got no nccl"});
}

// All operations with one rank, on the real library; BRAID_NCCL names another file of it.
TEST(NcclGpu, OneRank) {
  const char* named = std::getenv("BRAID_NCCL");
  const std::string file = named ? named : "libnccl.so.2";
  const std::string missing = error_of([&] { check_nccl(file); });
  if (!missing.empty()) GTEST_SKIP() << missing;
  const std::string error = error_of([&] {
    run_in_processes(1, {.timeout = std::chrono::seconds(120), .compare_calls = true, .nccl = file}, [](Group& world) {
      Group again = world.split(0);
      each_native([&](const Algorithm& a) {
        try_algorithm(world, a);
        try_case(again, {a, DType::f32, Reduction::sum, 1 << 20});
        try_case(world, {a, DType::bf16, Reduction::sum, 4 << 20});
      });
    });
  });
  if (error.find("has no GPU") != std::string::npos) GTEST_SKIP() << error;
  EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace braid::comm
