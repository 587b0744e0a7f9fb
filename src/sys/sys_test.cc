#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "sys/check.h"
#include "sys/env.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/mapped_file.h"
#include "sys/parallel.h"
#include "sys/roofs.h"

namespace braid {

TEST(Error, SaysWhereWhatGotExpectedTry) {
  const std::string text =
      format_message("config.json", {.what = "no size", .got = "0", .expected = "1", .hint = "2\n3"});
  EXPECT_EQ(text, "[config.json] no size; got 0; expected 1; try 2 3");
}

TEST(Error, PrintableKeepsHostileTextOnOneShortLine) {
  EXPECT_EQ(printable("a\n\x1b[31m\xff"), "a\\x0a\\x1b[31m\\xff");
  EXPECT_LT(printable(std::string(5000, 'x')).size(), 250u);
}

TEST(Profile, LinesAreChoicesAndAnythingElseIsNamed) {
  using Rows = std::map<std::string, std::string>;
  EXPECT_EQ(sys::parse_profile("p", ""), Rows());
  EXPECT_EQ(sys::parse_profile("p", "# measured 2026\n\n  linear_fwd = panel_f32 # 1.4x\r\nssd_fwd=ref"),
            (Rows{{"linear_fwd", "panel_f32"}, {"ssd_fwd", "ref"}}));
  for (const char* bad :
       {"linear_fwd", "a =", "= b", "=", "a = b c", "a = b = c", "A = b", "a = \x1b[2J", "a = b\na = c"}) {
    try {
      sys::parse_profile("p", std::string("\n") + bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("[p:")) << e.what();
      EXPECT_EQ(std::string(e.what()).find_first_of("\n\x1b"), std::string::npos) << e.what();
    }
  }
}

TEST(Check, EndsTheProcessWith70) {
  EXPECT_EXIT(CHECK(1 > 2, "{}", 5), testing::ExitedWithCode(70), "1 > 2 does not hold: 5");
}

TEST(Parallel, EveryIndexOnceWhateverTheTeam) {
  for (int threads : {1, 2, 3, 7}) {
    for (int64_t n : {0, 1, 5, 64, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      sys::parallel_for(threads, n, 8, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % 8, 0);
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      sys::parallel_tasks(threads, n, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
      for (const auto& hit : hits) EXPECT_EQ(hit, 2);
    }
  }
}

TEST(MappedFile, MissingFileIsTheUsersError) { EXPECT_THROW(sys::MappedFile("/nonexistent/x"), Error); }

TEST(Machine, ClassFollowsFromTheFlags) {
  const sys::Machine& m = sys::machine();
  EXPECT_GE(m.cores, 1);
  EXPECT_GT(m.memory_gib, 0.1);
  EXPECT_FALSE(m.cpu_class == sys::CpuClass::amx && m.bf16_dot_fast);
}

TEST(Roofs, EveryUnitOfThisMachineHasOne) {
  const sys::Machine& m = sys::machine();
  const sys::Roofs& r = sys::roofs();
  EXPECT_EQ(&r, &sys::roofs());
  EXPECT_GT(r.read_gbs_1, 0);
  EXPECT_GT(r.read_gbs, 0);  // no comparison of rates: on a busy machine one thread may have had more of it
  EXPECT_GT(r.fp32_gflops, 0);
  EXPECT_EQ(r.bf16_gflops > 0, m.amx || m.bf16_dot_fast);
  EXPECT_EQ(r.int8_gops > 0, m.amx || m.avx512_vnni);
}

}  // namespace braid
