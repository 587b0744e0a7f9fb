#include "eval/tasks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::eval {
namespace {

class Tasks : public support::FolderTest {
 protected:
  std::filesystem::path file_of(const std::string& text) const { return write("tasks.jsonl", text); }
};

const std::string kSum = R"({"task":"sum","messages":[{"role":"user","content":"What is 17 + 25?"}],"answers":["42"]})";

TEST_F(Tasks, ThinkingIsSetAside) {
  engine::LanguageModel model(support::data("tiny-chat"), {.context = 512, .sequences = 2, .threads = 1});
  const std::string wrong =
      R"({"task":"wrong","messages":[{"role":"user","content":"What is 17 + 25?"}],"answers":["41"," 42 1"]})";
  const std::string either =
      R"({"task":"sum","messages":[{"role":"user","content":"What is 17 + 25?"}],"answers":["no","42\n"]})";
  const auto rows = read_tasks(file_of(kSum + "\n\n" + wrong + "\n" + either + "\n"));
  const auto results = run_tasks(model, rows, {.think = true}, [](int64_t) { return true; });
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].content, "42");
  EXPECT_FALSE(results[0].reasoning.empty());
  const auto scores = scores_of(results);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].task, "sum");
  EXPECT_EQ(scores[0].right, 2);
  EXPECT_EQ(scores[0].n, 2);
  EXPECT_EQ(scores[1].right, 0);
  EXPECT_TRUE(run_tasks(model, rows, {.think = false}, [](int64_t) { return true; })[0].reasoning.empty());
  EXPECT_TRUE(run_tasks(model, rows, {}, [](int64_t) { return false; }).empty());
}

// Its ends are the shares from which what was seen is 1.96 deviations away.
TEST_F(Tasks, IntervalsHoldSharesThatExplainWhatWasSeen) {
  for (const auto& [right, n] : {std::pair<int64_t, int64_t>{320, 500}, {0, 10}, {125, 125}, {1, 2}, {1, 1}}) {
    const TaskScore score{.task = "t", .right = right, .n = n};
    const auto [low, high] = score.interval();
    EXPECT_EQ(right == 0, low < 1e-12);
    EXPECT_EQ(right == n, high > 1 - 1e-12);
    for (const double end : {low, high}) {
      if (end < 1e-12 || end > 1 - 1e-12) continue;
      const double deviation = std::sqrt(end * (1 - end) / static_cast<double>(n));
      EXPECT_NEAR(std::fabs(score.accuracy() - end) / deviation, 1.959964, 1e-9) << right << " of " << n;
    }
  }
}

TEST_F(Tasks, BadLinesAreNamed) {
  const std::string user = R"({"task":"a","messages":[{"role":"user","content":"x"}],)";
  const std::pair<std::string, const char*> faults[] = {
      {"{", "is not valid JSON at column 2"},
      {std::string(100'000, '['), "is nested deeper than 64 levels"},
      {"[]", "is not a task: is not a JSON object"},
      {R"({"task":1,"messages":[{"role":"user"}],"answers":["1"]})", "'task' is not a text"},
      {R"({"task":"a","answers":["b"]})", "'messages' is not a list, or empty"},
      {R"({"task":"a","messages":[],"answers":["b"]})", "'messages' is not a list, or empty"},
      {R"({"task":"a","messages":[{"content":"x"}],"answers":["b"]})", "a message has no 'role'"},
      {user + R"("answers":[]})", "'answers' is not a list, or empty"},
      {user + R"("answers":[1]})", "an answer is not a text"},
      {user + R"("answers":["1"],"tools":{}})", "'tools' is not a list"},
      {'"' + std::string(1 << 20, 'a') + '"', "is too large for JSON; got 1048578 bytes; expected at most 1048576"},
  };
  for (const auto& [bad, fault] : faults) {
    const std::string error = support::error_of([&, &line = bad] { read_tasks(file_of(kSum + "\n" + line + "\n")); });
    EXPECT_NE(error.find("tasks.jsonl line 2] "), std::string::npos) << error;
    EXPECT_NE(error.find(fault), std::string::npos) << error;
  }
  EXPECT_THROW(read_tasks(file_of("\n")), Error);
  EXPECT_THROW(read_tasks("/nonexistent/tasks.jsonl"), Error);
}

}  // namespace
}  // namespace braid::eval
