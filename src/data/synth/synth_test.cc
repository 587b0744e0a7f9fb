#include "data/synth/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "data/synth/task.h"

namespace braid::synth {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The two operands of an arithmetic question, smaller first.
std::pair<int, int> operands_of(const std::string& question) {
  static const std::regex number("\\d+");
  std::vector<int> found;
  for (std::sregex_iterator it(question.begin(), question.end(), number), end; it != end; ++it)
    found.push_back(std::stoi(it->str()));
  EXPECT_EQ(found.size(), 2u) << question;
  return std::minmax(found.at(0), found.at(1));
}

// Every line of the schoolbook says something true, whoever wrote it.
void expect_true_lines(const Turn& t) {
  static const std::regex add("(\\d)\\+(\\d)\\+(\\d)=(\\d\\d);\\d+"), subtract("(\\d)-(\\d)-(\\d)=(\\d)-(\\d\\d);\\d+"),
      multiply("(\\d)\\*(\\d)=(\\d\\d)\\+(\\d)\\+(\\d)=(\\d\\d);\\d+");
  std::istringstream lines(t.reasoning);
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    const auto n = [&m](size_t i) { return std::stoi(m[i].str()); };
    if (std::regex_match(line, m, add))
      EXPECT_EQ(n(1) + n(2) + n(3), n(4)) << line;
    else if (std::regex_match(line, m, subtract))
      EXPECT_EQ(n(1) - n(2) - n(3), n(4) - n(5)) << line;
    else if (std::regex_match(line, m, multiply))
      EXPECT_TRUE(n(1) * n(2) == n(3) && n(3) + n(4) + n(5) == n(6)) << line;
    else
      continue;
    ++steps;
  }
  EXPECT_GT(steps, 0) << t.reasoning;
  // The thinking ends in the digits of the answer.
  const size_t from = t.reasoning.find_last_of(";\n") + 1;
  EXPECT_EQ(std::stoi(t.reasoning.substr(from)), std::abs(std::stoi(t.answer))) << t.reasoning;
}

TEST(Synth, ThinkingIsTrue) {
  for (uint64_t i = 0; i < 3000; ++i) {
    Draw draw({7, 1}, i);
    const Turn t = arithmetic(draw, i % 5 ? Split::train : Split::test, static_cast<int64_t>(i % 3));
    const auto [least, most] = operands_of(t.user);
    const int64_t results[] = {least + most, most - least, least * most};
    EXPECT_EQ(std::abs(std::stoll(t.answer)), results[i % 3]) << t.user;
    expect_true_lines(t);
  }
}

TEST(Synth, NoPairOfTheTestIsTrained) {
  std::set<std::pair<int, int>> tested;
  for (uint64_t i = 0; i < 2000; ++i) {
    Draw draw({1, 2}, i);
    tested.insert(operands_of(arithmetic(draw, Split::test, static_cast<int64_t>(i % 4)).user));
  }
  for (uint64_t i = 0; i < 20000; ++i) {
    Draw draw({2, 1}, i);
    EXPECT_FALSE(tested.contains(operands_of(arithmetic(draw, Split::train, static_cast<int64_t>(i % 4)).user)));
  }
}

TEST(Synth, PuzzlesAreRight) {
  for (uint64_t i = 0; i < 500; ++i) {
    Draw draw({3, 1}, i);
    const Turn t = strings(draw, Split::train, static_cast<int64_t>(i % 4));
    std::string word = t.reasoning.substr(0, t.reasoning.find('\n'));
    if (t.task == "sort letters") {
      EXPECT_TRUE(std::is_sorted(t.answer.begin(), t.answer.end())) << t.user;
    }
    if (t.task != "reverse") continue;
    std::string letters;
    std::copy_if(t.user.begin(), t.user.end(), std::back_inserter(letters),
                 [](char ch) { return ch >= 'A' && ch <= 'Z'; });
    const std::string forward(t.answer.rbegin(), t.answer.rend());
    EXPECT_TRUE(letters.ends_with(forward) || word == forward) << t.user << " " << t.answer;
  }
}

// Letters and digits alone: another mark, capital or space makes no other question.
std::string bare(const std::string& text) {
  std::string out;
  for (const char ch : text) {
    if (std::isalnum(static_cast<unsigned char>(ch))) out += static_cast<char>(std::tolower(ch));
  }
  return out;
}

TEST(Synth, QuestionsOfTheBenchAreNotTrained) {
  std::set<std::string> asked, said;
  for (const auto& [file, rows] : {std::pair{"tiny-qa.jsonl", 200}, {"tiny-off-topic.jsonl", 100}}) {
    std::ifstream in(std::filesystem::path(BRAID_BENCH_DATA) / file);
    int count = 0;
    for (std::string line; std::getline(in, line); ++count) {
      const auto row = nlohmann::json::parse(line);
      asked.insert(bare(row["messages"][0]["content"]));
      for (const auto& answer : row["answers"]) said.insert(answer);
    }
    EXPECT_EQ(count, rows) << file;
  }
  EXPECT_EQ(asked.size(), 300u);
  std::set<std::string> answers;
  for (uint64_t i = 0; i < 60000; ++i) {
    Draw draw({4, 1}, i);
    const Turn t = i % 2 ? about(draw) : off_topic(draw);
    answers.insert(t.answer);
    EXPECT_FALSE(asked.contains(bare(t.user))) << t.user;
  }
  EXPECT_EQ(answers, said);  // what is accepted is what is taught, word for word
}

TEST(Synth, SameOptionsSameBytes) {
  const auto root = std::filesystem::path(testing::TempDir()) / "braid_synth_test";
  const Options few{.seed = 5, .train = 200, .valid = 20, .tasks = 3};
  for (const char* name : {"a", "b"}) ASSERT_TRUE(write(root / name, few, [](int64_t) { return true; }));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "a")) {
    EXPECT_EQ(read(entry.path()), read(root / "b" / entry.path().filename()));
    ++files;
  }
  EXPECT_EQ(files, 6);
  EXPECT_FALSE(write(root / "c", few, [](int64_t) { return false; }));
  EXPECT_FALSE(std::filesystem::exists(root / "c" / "train.jsonl"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace braid::synth
