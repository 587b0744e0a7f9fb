// Tables as people and pandas write them, and every fault by line and column.
#include "law/runs.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace braid::law {
namespace {

std::string refusal(const std::string& text, const Columns& columns = {}) {
  return support::error_of([&] { read_runs(text, "r.csv", columns); });
}

TEST(RunsTable, ColumnsByNameInAnyOrder) {
  const Runs r = read_runs(
      "loss,width,run,tokens,params\r\n3.5,64,\"b, \"\"two\"\"\",2e9,1e8\r\n\r\n3,64,a,1e9,1e8\r\n2.8,64,a,2e9,1e8\r\n",
      "r");
  ASSERT_EQ(r.rows.size(), 3u);
  EXPECT_EQ(r.count, 2);
  EXPECT_FALSE(r.own_flops);
  EXPECT_EQ(r.rows[0].loss, 3);  // run a
  EXPECT_EQ(r.rows[0].flops, 6e17);
  EXPECT_EQ(r.rows[1].run, 0);
  EXPECT_EQ(r.rows[2].run, 1);
}

TEST(RunsTable, OtherNamesAndFlops) {
  const Runs r = read_runs("N,D,l,c\n1e8,2e9,3,7e17\n1e8,1e9,4,5e17\n", "r",
                           {.params = "N", .tokens = "D", .loss = "l", .run = "", .flops = "c"});
  EXPECT_TRUE(r.own_flops);
  EXPECT_EQ(r.count, 2);  // each row is a run
  EXPECT_EQ(r.rows[0].flops, 5e17);
}

TEST(RunsTable, FaultsNameLineAndColumn) {
  const std::string head = "params,tokens,loss\n1e8,1e9,3\n";
  EXPECT_EQ(refusal(head + "1e8,1e9,nan\n"),
            "[r.csv:3] loss is not a positive number; got \"nan\"; expected 1e-100 to 1e100");
  EXPECT_EQ(refusal(head + "\n1e8,-2,3\n"),
            "[r.csv:4] tokens is not a positive number; got \"-2\"; expected 1e-100 to 1e100");
  for (const char* bad : {"", "0", "1e8x", "inf", "1e400", "0x10", " ", "1 2"})
    EXPECT_NE(refusal(head + bad + ",1e9,3\n").find("[r.csv:3] params is not a positive number"), std::string::npos)
        << bad;
  EXPECT_EQ(refusal(head + "1e8,1e9\n"), "[r.csv:3] wrong number of fields; got 2; expected 3, as in the header");
  EXPECT_EQ(refusal(head + "1e8,1e9,3,\n"), "[r.csv:3] wrong number of fields; got 4; expected 3, as in the header");
  EXPECT_NE(refusal(head + "\"1e8,1e9,3\n").find("[r.csv:3] the quotes of field 1"), std::string::npos);
  EXPECT_EQ(refusal("params,loss\n1,1\n"),
            "[r.csv:1] no column tokens; got params, loss; expected a column of that name");
  EXPECT_EQ(refusal("params,tokens,loss,loss\n"), "[r.csv:1] column loss is there twice; expected it once");
  EXPECT_NE(refusal(head, {.run = "seed"}).find("[r.csv:1] no column seed"), std::string::npos);
  EXPECT_NE(refusal("params,tokens,loss\n").find("no rows"), std::string::npos);
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal(std::string(2000, ',')).find("too many fields"), std::string::npos);
}

}  // namespace
}  // namespace braid::law
