#include "train/forked_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "io/atomic_file.h"
#include "support/folder.h"
#include "sys/error.h"
#include "sys/parallel.h"
#include "sys/read.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

class ForkedWriterTest : public support::FolderTest {
 protected:
  // Waits for this file, so that a test decides how far the copy has got.
  static void wait_for(const fs::path& path) {
    while (!fs::exists(path)) std::this_thread::yield();
  }
};

TEST_F(ForkedWriterTest, TheCopySeesMemoryAsItWas) {
  const fs::path go = folder_ / "go", out = folder_ / "out";
  std::string value = "before";
  ForkedWriter writer;
  EXPECT_FALSE(writer.finished(true));
  const std::string refused = writer.start([&] {
    wait_for(go);
    io::write_text_file(out, value);
  });
  EXPECT_EQ(refused, "");
  value = "after";
  EXPECT_FALSE(writer.finished(false));
  io::write_text_file(go, "");
  const auto ended = writer.finished(true);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->lost, "");
  EXPECT_GT(ended->seconds, 0);
  EXPECT_EQ(sys::read_file(out), "before");
  EXPECT_FALSE(writer.finished(true));
}

// The threads of a team are not in the copy, which makes its own.
TEST_F(ForkedWriterTest, TheCopyMayUseThreads) {
  const auto sum = [] {
    std::array<int, 4> parts{};
    sys::parallel(4, [&](int part, int) { parts[static_cast<size_t>(part)] = part + 1; });
    return parts[0] + parts[1] + parts[2] + parts[3];
  };
  EXPECT_EQ(sum(), 10);
  ForkedWriter writer;
  writer.start([&] {
    if (sum() != 10) fail("test", {.what = "lost threads"});
  });
  EXPECT_TRUE(writer.finished(true));
  EXPECT_EQ(sum(), 10);
}

TEST_F(ForkedWriterTest, ItsErrorIsThrownHere) {
  ForkedWriter writer;
  writer.start([] { fail_environment("disk", {.what = "is full", .got = std::string(10000, 'x')}); });
  try {
    writer.finished(true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::environment);
    EXPECT_EQ(std::string(error.what()), "[disk] is full; got " + std::string(10000, 'x'));
  }
  EXPECT_FALSE(writer.finished(true));
  writer.start([] {});
  EXPECT_TRUE(writer.finished(true));
}

TEST_F(ForkedWriterTest, ACopyThatIsKilledIsLost) {
  ForkedWriter writer;
  writer.start([] { raise(SIGKILL); });
  EXPECT_EQ(writer.finished(true)->lost, "Killed");
}

// The time is that of the work, whenever somebody asks: no more than until the copy has ended.
TEST_F(ForkedWriterTest, TheTimeIsThatOfTheWork) {
  using Clock = std::chrono::steady_clock;
  ForkedWriter writer;
  const auto begin = Clock::now();
  writer.start([] {});
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0);
  const double until_its_end = std::chrono::duration<double>(Clock::now() - begin).count();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(writer.finished(true)->seconds, until_its_end);
}

TEST_F(ForkedWriterTest, RequestsToStopAreForTheProcessItself) {
  const fs::path ready = folder_ / "ready", go = folder_ / "go", out = folder_ / "out";
  ForkedWriter writer;
  writer.start([&] {
    io::write_text_file(ready, std::to_string(getpid()));
    wait_for(go);
    io::write_text_file(out, "whole");
  });
  wait_for(ready);
  const auto copy = static_cast<pid_t>(std::stol(sys::read_file(ready)));
  for (const int stop : {SIGINT, SIGTERM, SIGHUP}) kill(copy, stop);
  io::write_text_file(go, "");
  EXPECT_TRUE(writer.finished(true));
  EXPECT_EQ(sys::read_file(out), "whole");
}

}  // namespace
}  // namespace braid::train
