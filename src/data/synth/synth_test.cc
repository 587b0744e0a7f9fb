#include "data/synth/synth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "data/synth/task.h"
#include "support/folder.h"
#include "sys/read.h"

namespace braid::synth {
namespace {

// The two operands of an arithmetic question, smaller first.
std::pair<int, int> operands_of(const std::string& question) {
  static const std::regex number("\\d+");
  std::vector<int> found;
  for (std::sregex_iterator it(question.begin(), question.end(), number), end; it != end; ++it)
    found.push_back(std::stoi(it->str()));
  EXPECT_EQ(found.size(), 2u) << question;
  return std::minmax(found.at(0), found.at(1));
}

// Every line of the written steps is correct.
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

std::vector<int64_t> numbers_of(const std::string& text) {
  static const std::regex number("\\d+");
  std::vector<int64_t> found;
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it)
    found.push_back(std::stoll(it->str()));
  return found;
}

// The answer to a comparison, from the text of its question alone.
std::string compared(const std::string& question) {
  const auto n = numbers_of(question);
  const auto says = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* w) { return question.find(w) != std::string::npos; });
  };
  const char* sign = n[0] < n[1] ? "<" : n[0] > n[1] ? ">" : "=";
  if (question.starts_with("Is ")) {
    const bool less = says({"less", "smaller", "<"});
    return (less ? n[0] < n[1] : n[0] > n[1]) ? "Yes" : "No";
  }
  if (question.starts_with("Compare") || question.starts_with("Put <"))
    return fmt::format("{} {} {}", n[0], sign, n[1]);
  if (n[0] == n[1]) return "They are equal.";
  return std::to_string(says({"smaller", "less"}) ? std::min(n[0], n[1]) : std::max(n[0], n[1]));
}

TEST(Synth, ComparisonsAreRight) {
  std::set<std::string> answers;
  for (uint64_t i = 0; i < 3000; ++i) {
    Draw draw({7, 1}, i);
    const Turn t = arithmetic(draw, Split::train, 3);
    EXPECT_EQ(t.answer, compared(t.user)) << t.user;
    answers.insert(t.answer);
  }
  EXPECT_TRUE(answers.contains("Yes") && answers.contains("No") && answers.contains("They are equal."));
}

// From left to right, products and quotients first.
int64_t value_of(const std::string& expression) {
  std::istringstream in(expression);
  int64_t sum = 0, term = 0, n = 0;
  char sign = '+';
  in >> term;
  for (char next; in >> next >> n;) {
    if (next == '*' || next == '/') {
      term = next == '*' ? term * n : term / n;
      continue;
    }
    sum = sign == '+' ? sum + term : sum - term;
    sign = next;
    term = n;
  }
  return sign == '+' ? sum + term : sum - term;
}

TEST(Synth, TheCalculatorIsRight) {
  for (uint64_t i = 0; i < 3000; ++i) {
    Draw draw({7, 1}, i);
    const Turn t = calculator(draw, Split::train);
    EXPECT_EQ(t.answer, std::to_string(value_of(t.expression))) << t.user;
    EXPECT_EQ(numbers_of(t.user), numbers_of(t.expression)) << t.user;
  }
}

// The letters that a question about a word is asked of, in capitals: its thinking spells them.
std::string word_of(const Turn& t) {
  std::string found, run;
  for (const char ch : t.user + " ") {
    if (std::isalpha(static_cast<unsigned char>(ch))) {
      run += static_cast<char>(std::toupper(ch));
      continue;
    }
    // Several words of a question are candidates; the right one has the letters of the answer.
    std::string sorted = run, wanted = t.answer;
    std::sort(sorted.begin(), sorted.end());
    std::sort(wanted.begin(), wanted.end());
    if (sorted == wanted) found = run;
    run.clear();
  }
  return found;
}

TEST(Synth, PuzzlesAreRight) {
  std::set<std::string> kinds;
  for (uint64_t i = 0; i < 2500; ++i) {
    Draw draw({3, 1}, i);
    const Turn t = strings(draw, Split::train, static_cast<int64_t>(i % 5));
    kinds.insert(t.task);
    const std::string last = t.reasoning.substr(t.reasoning.rfind('\n') + 1);
    if (t.task == "sort numbers") {
      auto numbers = numbers_of(t.user);
      std::sort(numbers.begin(), numbers.end());
      EXPECT_EQ(numbers_of(t.answer), numbers) << t.user;
      EXPECT_EQ(last, t.answer) << t.user;
    } else if (t.task == "count" || t.task == "length") {
      EXPECT_EQ(std::to_string(numbers_of(t.reasoning).back()), t.answer) << t.user << " " << t.reasoning;
      const size_t colon = last.find(": ");
      std::string spelled;
      for (const char ch : colon == std::string::npos ? last : last.substr(colon)) {
        if (ch >= 'A' && ch <= 'Z') spelled += ch;
      }
      EXPECT_EQ(t.task == "count" ? std::count(spelled.begin(), spelled.end(), last[0]) : std::ssize(spelled),
                std::stoll(t.answer))
          << t.user;
    } else {
      const std::string word = word_of(t);
      EXPECT_FALSE(word.empty()) << t.user << " " << t.answer;
      std::string answer = word;
      t.task == "reverse" ? std::reverse(answer.begin(), answer.end()) : std::sort(answer.begin(), answer.end());
      EXPECT_EQ(t.answer, answer) << t.user;
    }
  }
  EXPECT_EQ(kinds.size(), 5u);
}

// A problem is its task with the word, letter or numbers that it is asked of: what its thinking begins with.
TEST(Synth, NoPuzzleOfTheTestIsTrained) {
  const auto problem = [](const Turn& t) {
    std::string first = t.task == "sort numbers" ? fmt::format("{}", fmt::join(numbers_of(t.user), ",")) : t.reasoning;
    return t.task + " " + first;
  };
  std::set<std::string> tested;
  for (uint64_t i = 0; i < 4000; ++i) {
    Draw draw({1, 2}, i);
    const auto kind = static_cast<int64_t>(i % 6);
    tested.insert(kind == 5 ? calculator(draw, Split::test).expression : problem(strings(draw, Split::test, kind)));
  }
  EXPECT_GT(tested.size(), 1500u);
  for (uint64_t i = 0; i < 40000; ++i) {
    Draw draw({2, 1}, i);
    const auto kind = static_cast<int64_t>(i % 6);
    const std::string trained =
        kind == 5 ? calculator(draw, Split::train).expression : problem(strings(draw, Split::train, kind));
    EXPECT_FALSE(tested.contains(trained)) << trained;
  }
}

// Letters and digits only: punctuation, case and spaces make no new question.
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
  EXPECT_EQ(answers, said);  // accepted answers are taught word for word
}

TEST(Synth, SameOptionsSameBytes) {
  const support::Folder folder;
  const auto& root = folder.path();
  const Options few{.seed = 5, .train = 200, .valid = 20, .tasks = 3};
  for (const char* name : {"a", "b"}) ASSERT_TRUE(write(root / name, few, [](int64_t) { return true; }));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "a")) {
    EXPECT_EQ(sys::read_file(entry.path()), sys::read_file(root / "b" / entry.path().filename()));
    ++files;
  }
  EXPECT_EQ(files, 6);
  EXPECT_FALSE(write(root / "c", few, [](int64_t) { return false; }));
  EXPECT_FALSE(std::filesystem::exists(root / "c" / "train.jsonl"));
}

}  // namespace
}  // namespace braid::synth
