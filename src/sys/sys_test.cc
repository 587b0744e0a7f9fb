#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/error_of.h"
#include "support/folder.h"
#include "sys/check.h"
#include "sys/env.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/machine.h"
#include "sys/mapped_file.h"
#include "sys/memory.h"
#include "sys/pages.h"
#include "sys/parallel.h"
#include "sys/profile.h"
#include "sys/read.h"
#include "sys/roofs.h"
#include "sys/utf8.h"

namespace braid {

TEST(Error, SaysWhereWhatGotExpectedTry) {
  const std::string text =
      format_message("config.json", {.what = "no size", .got = "0", .expected = "1", .hint = "2\n3"});
  EXPECT_EQ(text, "[config.json] no size; got 0; expected 1; try 2 3");
  EXPECT_EQ(format_message("", {.what = "cannot be read"}), "[\"\"] cannot be read");
}

TEST(Error, PrintableKeepsHostileTextOnOneShortLine) {
  EXPECT_EQ(printable("a\n\x1b[31m\xff"), "a\\x0a\\x1b[31m\\xff");
  EXPECT_LT(printable(std::string(5000, 'x')).size(), 250u);
  EXPECT_EQ(printable("mod\u00e8le \u4e00 \U0001f600"), "mod\u00e8le \u4e00 \U0001f600");
  EXPECT_EQ(printable("a\u009b\u202eb\xe4\xb8"), "a\\xc2\\x9b\\xe2\\x80\\xaeb\\xe4\\xb8");
  EXPECT_EQ(printable("\u4e00\u4e00\u4e00", 4), "\u4e00\u4e00...");  // cut between characters
}

TEST(Utf8, EveryCharacterRoundTrips) {
  for (char32_t value = 0; value <= 0x10ffff; ++value) {
    if (value == 0xd800) value = 0xe000;  // surrogates are not characters
    std::string text = "\u20ac";
    sys::append_utf8(value, text);
    const sys::Utf8Step step = sys::utf8_step(text, 3);
    ASSERT_EQ(step.kind, sys::Utf8::valid) << std::hex << uint32_t{value};
    ASSERT_EQ(step.value, value);
    ASSERT_EQ(step.length, text.size() - 3);
    ASSERT_EQ(sys::utf8_previous(text, text.size()), 3u);
    ASSERT_EQ(sys::utf8_count(text), 2);
    ASSERT_EQ(sys::utf8_valid_prefix(text), text.size());
  }
}

TEST(Utf8, EachBrokenPartIsOneReplacement) {
  struct Case {
    const char *bytes, *shown;
  };
  for (const auto& [bytes, shown] : {
           Case{"a\x80z", "a?z"},          // a stray continuation byte
           Case{"a\xc1\xbfz", "a??z"},     // overlong
           Case{"\xe0\x9f\xbfz", "???z"},  // overlong
           Case{"\xed\xa0\x80z", "???z"},  // a surrogate
           Case{"\xf4\x90\x80\x80", "????"},
           Case{"\xe2\x82z", "?z"},
           Case{"\xf0\x9f\x98", "?"},
           Case{"\xf5\xff", "??"},
       }) {
    std::string expected, got;
    for (const char* c = shown; *c; ++c) *c == '?' ? expected.append(sys::kReplacement) : expected.append(1, *c);
    EXPECT_EQ(sys::append_lossy(bytes, false, got), std::string_view(bytes).size());
    EXPECT_EQ(got, expected);
  }
  std::string got;
  EXPECT_EQ(sys::append_lossy("ab\xe2\x82", true, got), 2u);
  EXPECT_EQ(got, "ab");
}

TEST(Profile, LinesAreChoicesAndAnythingElseIsNamed) {
  using Rows = std::map<std::string, std::string>;
  EXPECT_EQ(sys::parse_profile("p", ""), Rows());
  EXPECT_EQ(sys::parse_profile("p", "# measured 2026\n\n  linear_fwd = panel_f32 # 1.4x\r\nssd_fwd=ref"),
            (Rows{{"linear_fwd", "panel_f32"}, {"ssd_fwd", "ref"}}));
  for (const char* bad :
       {"linear_fwd", "a =", "= b", "=", "a = b c", "a = b = c", "A = b", "a = \x1b[2J", "a = b\na = c"}) {
    const std::string error = support::error_of([&] { sys::parse_profile("p", std::string("\n") + bad); });
    EXPECT_TRUE(error.starts_with("[p:")) << bad << ": " << error;
    EXPECT_EQ(error.find_first_of("\n\x1b"), std::string::npos) << error;
  }
}

TEST(Profile, CountsOnlyOnItsMachine) {
  using Rows = std::map<std::string, std::string>;
  const std::string here = sys::machine_line("");
  EXPECT_NE(here.find(" cores, braid "), std::string::npos) << here;
  const Rows parsed = sys::parse_profile("p", "machine = " + here + "  # measured\na = b");
  EXPECT_EQ(parsed, (Rows{{"machine", here}, {"a", "b"}}));
  Rows rows = parsed;
  sys::keep_if_of(here, rows);
  EXPECT_EQ(rows, (Rows{{"a", "b"}}));
  sys::keep_if_of("another", rows);  // without the line they count everywhere
  EXPECT_EQ(rows, (Rows{{"a", "b"}}));
  rows = parsed;
  sys::keep_if_of("another", rows);
  EXPECT_EQ(rows, Rows());
  EXPECT_EQ(sys::machine_line("avx2") == here, !sys::machine().avx512);
  EXPECT_NE(support::error_of([] { sys::parse_profile("p", "machine ="); }), "");
}

TEST(Check, EndsTheProcessWith70) {
  EXPECT_EXIT(CHECK(1 > 2, "{}", 5), testing::ExitedWithCode(70), "1 > 2 does not hold: 5");
}

TEST(Parallel, EveryIndexOnceForAnyTeamSize) {
  for (int threads : {1, 2, 3, 7}) {
    for (int64_t n : {0, 1, 5, 64, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      sys::parallel_for(threads, n, 8, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % 8, 0);
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      sys::parallel_tasks(threads, n, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
      std::vector<std::atomic<bool>> busy(static_cast<size_t>(threads));  // no two tasks at once have a part
      sys::parallel_tasks(threads, n, [&](int part, int64_t i) {
        ASSERT_LT(part, threads);
        EXPECT_FALSE(busy[static_cast<size_t>(part)].exchange(true));
        ++hits[static_cast<size_t>(i)];
        busy[static_cast<size_t>(part)] = false;
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 3);
    }
  }
}

// Numbers of this process' threads.
std::set<std::string> threads_alive() {
  std::set<std::string> ids;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ids.insert(task.path().filename());
  return ids;
}

TEST(Parallel, RegionsOfManySizesRunEveryPartOnce) {
  std::vector<int> hits(7);  // not atomic: only one thread may have a part
  for (int round = 0; round < 20000; ++round) {
    const int parts = 1 + round * 5 % 7;
    sys::parallel(parts, [&](int part, int members) {
      EXPECT_EQ(members, parts);
      ++hits[static_cast<size_t>(part)];
    });
  }
  int total = 0;
  for (const int hit : hits) total += hit;
  EXPECT_EQ(hits[0], 20000);
  EXPECT_EQ(total, 20000 / 7 * (1 + 2 + 3 + 4 + 5 + 6 + 7) + 1);
}

TEST(Parallel, TheTeamIsConstant) {
  sys::parallel(7, [](int, int) {});
  const std::set<std::string> before = threads_alive();
  for (const int parts : {2, 7, 3, 1, 5, 2, 7}) sys::parallel(parts, [](int, int) {});
  EXPECT_EQ(threads_alive(), before);
}

// Each part waits for the other, so one thread alone would wait forever.
TEST(Parallel, TwoPartsRunAtOnce) {
  std::atomic<int> here = 0;
  sys::parallel(2, [&](int, int) {
    ++here;
    for (int ms = 0; here < 2 && ms < 60000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(here, 2);
  });
}

int64_t voluntary_switches(const std::string& id) {
  std::ifstream status("/proc/self/task/" + id + "/status");
  const std::string wanted = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(wanted)) return std::stoll(line.substr(wanted.size()));
  }
  return 0;
}

// A pause as between two answers: a thread that spins through it would take a core from others. A worker that sleeps
// has yielded its core each time.
TEST(Parallel, WorkersSleepInEveryPause) {
  constexpr int kPauses = 20;
  if (sys::machine().cores < 2) GTEST_SKIP() << "a team that is larger than the machine never spins";
  sys::parallel(2, [](int, int) {});
  const std::string self = std::to_string(gettid());
  const auto all = [&] {
    int64_t sum = 0;
    for (const std::string& id : threads_alive()) sum += id == self ? 0 : voluntary_switches(id);
    return sum;
  };
  const int64_t before = all();
  for (int i = 0; i < kPauses; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sys::parallel(2, [](int, int) {});
  }
  EXPECT_GE(all() - before, kPauses / 2);
}

TEST(Parallel, WaitingThreadsSleep) {
  sys::parallel(4, [](int, int) {});
  const std::string self = std::to_string(gettid());
  for (const std::string& id : threads_alive()) {
    char state = 0;
    while (id != self && state != 'S') {  // one that spins forever hangs here
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::string line;
      std::getline(std::ifstream("/proc/self/task/" + id + "/stat"), line);
      state = line[line.rfind(')') + 2];
    }
  }
}

TEST(Parallel, SleepersAreWokenOrTheirPartsAreTaken) {
  std::atomic<int> parts = 0;
  for (int round = 0; round < 1000; ++round) {
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // long enough to fall asleep
    sys::parallel(3, [&](int, int) { ++parts; });
  }
  EXPECT_EQ(parts, 3000);
}

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define BRAID_TSAN 1
#endif
#endif

TEST(Parallel, AChildProcessHasItsOwnTeam) {
#ifdef BRAID_TSAN
  GTEST_SKIP() << "TSan ends a forked child that starts threads";
#endif
  sys::parallel(3, [](int, int) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends one that waits for threads of its parent
    std::atomic<int> parts = 0;
    sys::parallel(3, [&](int, int) { ++parts; });
    _exit(parts == 3 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ParallelDeathTest, BodiesNeitherNestNorThrow) {
  const auto nothing = [](int, int) {};
  EXPECT_EXIT(sys::parallel(2, [&](int, int) { sys::parallel(2, nothing); }), testing::ExitedWithCode(70), "team of 2");
  for (const int threads : {1, 2}) {
    EXPECT_EXIT(sys::parallel(threads, [&](int, int) { throw std::runtime_error("so"); }), testing::ExitedWithCode(70),
                "threw: so");
  }
}

// The first Ctrl-C is recorded; the second does not wait.
TEST(InterruptDeathTest, TheSecondEndsTheProcess) {
  const auto ask = [](std::initializer_list<int> signals) {
    for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);  // which the caller may ignore
    sys::catch_requests_to_stop();
    sys::end_at_second_interrupt();
    for (const int signal : signals) std::raise(signal);
    std::_Exit(sys::caught_signal());
  };
  EXPECT_EXIT(ask({SIGINT}), testing::ExitedWithCode(SIGINT), "");
  EXPECT_EXIT(ask({SIGTERM, SIGTERM}), testing::ExitedWithCode(SIGTERM), "");
  EXPECT_EXIT(ask({SIGINT, SIGINT}), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(ask({SIGTERM, SIGINT}), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(ask({SIGHUP, SIGINT}), testing::ExitedWithCode(SIGHUP), "");  // of a pipe whose reader it ended first
  const auto later = [&](int first, int second) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGHUP, SIG_DFL);
    sys::catch_requests_to_stop();
    sys::end_at_second_interrupt();
    std::raise(first);
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    std::raise(second);
    std::_Exit(sys::caught_signal());
  };
  EXPECT_EXIT(later(SIGTERM, SIGTERM), testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(later(SIGINT, SIGHUP), testing::ExitedWithCode(128 + SIGHUP), "");
  const auto told_twice = [] {  // before and after, as a server that drains
    sys::catch_requests_to_stop();
    std::raise(SIGTERM);
    sys::end_at_second_interrupt();
    std::raise(SIGTERM);
    std::_Exit(sys::caught_signal());
  };
  EXPECT_EXIT(told_twice(), testing::ExitedWithCode(SIGTERM), "");
  const auto interrupts_alone = [] {
    sys::catch_interrupts();
    sys::end_at_second_interrupt();
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(interrupts_alone(), testing::KilledBySignal(SIGTERM), "");
  const auto ignored = [] {  // as a shell without job control starts a command with `&`
    for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
    sys::catch_requests_to_stop();
    sys::end_at_second_interrupt();
    for (const int signal : {SIGINT, SIGINT, SIGHUP}) std::raise(signal);
    if (sys::caught_signal() != 0) std::_Exit(1);
    std::raise(SIGTERM);
    std::_Exit(sys::caught_signal());
  };
  EXPECT_EXIT(ignored(), testing::ExitedWithCode(SIGTERM), "");
}

TEST(Read, FilesPipesAndDevicesWholeOrNotAtAll) {
  const support::Folder folder;
  const std::string text(200'000, 'x');  // more than one chunk
  const auto path = folder.write("x", text);
  EXPECT_EQ(sys::read_file(path), text);
  EXPECT_EQ(sys::read_file(path, text.size()), text);
  EXPECT_THROW(sys::read_file(path, text.size() - 1), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(sys::read_file(path), Error);
  EXPECT_THROW(sys::read_file(folder.path()), Error);
  EXPECT_EQ(sys::read_file("/dev/null"), "");
  EXPECT_THROW(sys::read_file("/dev/zero", 1 << 20), Error);  // endless
}

TEST(Read, LinesComeWithTheirNumbers) {
  const support::Folder folder;
  const auto path = folder.write("lines", "\n{}\r\n \t\r\nlast");
  std::vector<std::pair<std::string, int64_t>> seen;
  const auto read = [&] {
    sys::for_each_line(path, [&](const std::string& line, int64_t number) { seen.emplace_back(line, number); });
  };
  read();
  EXPECT_EQ(seen, (std::vector<std::pair<std::string, int64_t>>{{"{}\r", 2}, {"last", 4}}));
  std::filesystem::remove(path);
  EXPECT_THROW(read(), Error);
  std::filesystem::create_directory(path);
  EXPECT_THROW(read(), Error);
}

TEST(Pages, ClearedOnesGiveTheirMemoryBack) {
  constexpr size_t kPage = 4096, kPages = 64;
  sys::Pages pages(kPages * kPage);
  EXPECT_EQ(pages.resident(), 0u);
  std::memset(pages.data(), 1, kPages * kPage);
  EXPECT_EQ(pages.resident(), kPages * kPage);
  pages.clear(100, 200);                       // within a page
  pages.clear(3 * kPage - 7, 10 * kPage + 5);  // seven pages, and bytes of two others
  EXPECT_EQ(pages.resident(), (kPages - 7) * kPage);
  for (size_t i = 0; i < kPages * kPage; ++i) {
    const bool cleared = (i >= 100 && i < 200) || (i >= 3 * kPage - 7 && i < 10 * kPage + 5);
    ASSERT_EQ(pages.data()[i], std::byte(cleared ? 0 : 1)) << i;
  }
  pages.clear(0, kPages * kPage);
  EXPECT_EQ(pages.resident(), 0u);
}

TEST(MappedFile, MissingFileIsTheUsersError) { EXPECT_THROW(sys::MappedFile("/nonexistent/x"), Error); }

class GivenBack : public support::FolderTest {};

TEST_F(GivenBack, PagesOfAFileAreReadAgain) {
  constexpr size_t kBytes = size_t{32} << 20;
  const std::filesystem::path path = folder_ / "x";
  std::ofstream(path) << std::string(kBytes, 'a');
  const sys::MappedFile file(path);
  const auto sum = [&] {
    int64_t all = 0;
    for (const std::byte b : file.bytes()) all += static_cast<int64_t>(b);
    return all;
  };
  const int64_t want = static_cast<int64_t>(kBytes) * 'a';
  EXPECT_EQ(sum(), want);
  const int64_t before = sys::memory_resident();
  file.give_back(file.bytes().subspan(1, kBytes - 2));
  EXPECT_LT(sys::memory_resident(), before - static_cast<int64_t>(kBytes) / 2);
  EXPECT_EQ(sum(), want);
  // What is not of the file keeps its bytes: dropped pages of other memory would be zeros.
  std::vector<char> own(kBytes / 4, 'b');
  file.give_back(std::as_bytes(std::span(own)));
  file.give_back({});
  EXPECT_EQ(std::count(own.begin(), own.end(), 'b'), std::ssize(own));
}

TEST(Machine, ClassFollowsFromTheFlags) {
  const sys::Machine& m = sys::machine();
  EXPECT_GE(m.cores, 1);
  EXPECT_GT(m.memory_gib, 0.1);
  EXPECT_FALSE(m.cpu_class == sys::CpuClass::amx && m.bf16_dot_fast);
  EXPECT_TRUE(!m.bf16_dot_fast || m.avx512_bf16);
}

TEST(Roofs, CachesAreNamedAndMeasured) {
  const sys::Caches sizes = sys::caches();
  EXPECT_GE(sizes.l1_bytes, 8 << 10);
  EXPECT_GT(sizes.l2_bytes, sizes.l1_bytes);
  EXPECT_GT(sizes.l3_bytes, 0);
  const sys::CacheRates& rates = sys::cache_rates();
  for (const double rate : {rates.l1_gbs, rates.l2_gbs, rates.l3_gbs, rates.memory_gbs}) EXPECT_GT(rate, 0);
}

TEST(Roofs, EveryUnitOfThisMachineHasOne) {
  const sys::Machine& m = sys::machine();
  const sys::Roofs& r = sys::roofs();
  EXPECT_EQ(&r, &sys::roofs());
  EXPECT_EQ(&sys::roofs(m.cores + 1), &sys::roofs(m.cores));
  // The reads before a short run are shorter than it; a long run does not lengthen them.
  EXPECT_EQ(sys::ReadRate::seconds_before(0.001), sys::ReadRate::kShortest);
  EXPECT_EQ(sys::ReadRate::seconds_before(0.4), 0.1);
  EXPECT_EQ(sys::ReadRate::seconds_before(60), sys::ReadRate::kLongest);
  EXPECT_GT(sys::ReadRate().measure(1, sys::ReadRate::kShortest), 0);
  EXPECT_GT(r.read_gbs_1, 0);
  EXPECT_GT(r.read_gbs, 0);  // no comparison of rates: on a busy machine one thread may have had more bandwidth
  EXPECT_GT(r.fp32_gflops, 0);
  EXPECT_EQ(r.bf16_gflops > 0, m.amx || m.bf16_dot_fast);
  EXPECT_EQ(r.int8_gops > 0, m.amx || m.avx2);
  // One alone is the same measurement.
  EXPECT_EQ(sys::product_roof(false), 1e9 * r.fp32_gflops);
  EXPECT_EQ(sys::product_roof(true), 1e9 * (r.bf16_gflops > 0 ? r.bf16_gflops : r.fp32_gflops));
  EXPECT_EQ(sys::read_roof(), 1e9 * r.read_gbs);
}

}  // namespace braid
