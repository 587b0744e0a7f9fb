#include <gtest/gtest.h>

#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"

namespace braid::report {

TEST(Units, ThreeSignificantDigits) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(999), "999 B");
  EXPECT_EQ(bytes(1023), "1.00 KiB");
  EXPECT_EQ(bytes(8000000000), "7.45 GiB");
  EXPECT_EQ(bytes(INT64_MAX), "8.00 EiB");
  EXPECT_EQ(count(640), "640");
  EXPECT_EQ(count(999499), "999 K");
  EXPECT_EQ(count(999500), "1.00 M");
  EXPECT_EQ(count(31.6e9), "31.6 B");
  EXPECT_EQ(rate(82.4, 2, "tokens"), "41.2 tokens/s");
  EXPECT_EQ(rate(5.1e9, 1, "op"), "5.10 G op/s");
  EXPECT_EQ(rate(1, 0, "op"), "-");
}

TEST(Units, OneIsSingular) {
  EXPECT_EQ(counted(1, "thread"), "1 thread");
  EXPECT_EQ(counted(2, "thread"), "2 threads");
}

TEST(Units, DurationsChangeTheirUnit) {
  EXPECT_EQ(duration(85e-6), "85.0 us");
  EXPECT_EQ(duration(0.0123), "12.3 ms");
  EXPECT_EQ(duration(4.2), "4.20 s");
  EXPECT_EQ(duration(185), "3 min 05 s");
  EXPECT_EQ(duration(7620), "2 h 07 min");
}

TEST(Table, AlignsByColumnsNotBytes) {
  Table table({{"test"}, {"t/s", Align::right}});
  table.row({"pp512", "41.2 ± 0.3"});
  table.row({"tg128", "9.8 ± 0.1"});
  EXPECT_EQ(table.markdown(),
            "| test  |        t/s |\n"
            "| ----- | ----------:|\n"
            "| pp512 | 41.2 ± 0.3 |\n"
            "| tg128 |  9.8 ± 0.1 |\n");
  EXPECT_EQ(table.plain(),
            "test          t/s\n"
            "pp512  41.2 ± 0.3\n"
            "tg128   9.8 ± 0.1\n");
}

TEST(Progress, LineShowsPartAndTimeLeftWithinTheWidth) {
  EXPECT_EQ(progress_line("reading", 5, 10, 2.1, 80), "reading  [###############---------------]  50%  2.10 s left");
  EXPECT_EQ(progress_line("reading", 0, 10, 2, 80), "reading  [------------------------------]   0%  ");
  EXPECT_EQ(progress_line("reading", 20, 10, 2, 16), "reading  [#####");
  EXPECT_EQ(progress_line("reading", 1500, 0, 2.1, 80), "reading  1.50 K  2.10 s");
}

TEST(Progress, PrintsNothingWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    Progress progress("reading", 10);
    progress.at(5);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace braid::report
