#include "data/synth/synth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "data/synth/fillers.h"
#include "data/synth/holdout.h"
#include "data/synth/near.h"
#include "data/synth/prompts.h"
#include "data/synth/task.h"
#include "data/synth/text.h"
#include "support/folder.h"
#include "sys/read.h"

namespace braid::synth {
namespace {

using nlohmann::ordered_json;

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

TEST(Synth, CapitalsAreThoseOfTheQuestion) {
  size_t longest = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    Draw draw({6, 1}, i);
    const Turn t = in_capitals(draw);
    EXPECT_NE(capitals(t.user).find(t.answer), std::string::npos) << t.user << " " << t.answer;
    EXPECT_EQ(t.answer, capitals(t.answer));
    for (const std::string_view word : runs_of(t.answer, is_letter)) EXPECT_LE(std::ssize(word), kLettersMax) << t.user;
    longest = std::max(longest, runs_of(t.answer, is_letter).size());
  }
  EXPECT_EQ(longest, 6u);
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

// All conversations that are written, and all tasks, of one run with the prompts of the other tests.
struct Written {
  std::vector<ordered_json> trained, tasks;  // rows
  std::vector<std::string> prompts;          // of bench/data
};

std::vector<ordered_json> rows_of(const std::filesystem::path& file) {
  std::vector<ordered_json> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) out.push_back(ordered_json::parse(line));
  EXPECT_FALSE(out.empty()) << file;
  return out;
}

std::vector<ordered_json> bench_rows() {
  std::vector<ordered_json> out;
  for (const auto& [file, count] :
       {std::pair{"tiny-qa.jsonl", 200}, {"tiny-off-topic.jsonl", 100}, {"tiny-off-range.jsonl", 100}}) {
    const auto rows = rows_of(std::filesystem::path(BRAID_BENCH_DATA) / file);
    EXPECT_EQ(std::ssize(rows), count) << file;
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

const Written& written() {
  static const Written all = [] {
    Written w;
    for (const ordered_json& row : bench_rows()) w.prompts.push_back(row["messages"].back()["content"]);
    const support::Folder folder;
    const auto& root = folder.path();
    EXPECT_TRUE(write(root, {.seed = 1, .train = 4000, .valid = 500, .tasks = 60, .avoid = w.prompts},
                      [](int64_t) { return true; }));
    for (const char* name : {"train.jsonl", "valid.jsonl"}) {
      const auto rows = rows_of(root / name);
      w.trained.insert(w.trained.end(), rows.begin(), rows.end());
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".jsonl" || entry.path().stem() == "train" || entry.path().stem() == "valid")
        continue;
      const auto rows = rows_of(entry.path());
      w.tasks.insert(w.tasks.end(), rows.begin(), rows.end());
    }
    return w;
  }();
  return all;
}

// Everything that a row says, call arguments included, a line of text each.
std::vector<std::string> texts_of(const ordered_json& row) {
  std::vector<std::string> out;
  for (const ordered_json& m : row["messages"]) {
    std::istringstream lines(m["content"].get<std::string>() + "\n" + m.value("reasoning_content", ""));
    for (std::string line; std::getline(lines, line);) out.push_back(line);
    if (m.contains("tool_calls")) out.push_back(m["tool_calls"][0]["function"]["arguments"]["expression"]);
  }
  return out;
}

// Neighbouring numbers that belong to one expression or list, smaller first.
std::set<std::pair<int64_t, int64_t>> pairs_of(const std::string& line) {
  static const std::regex number("\\d+");
  std::set<std::pair<int64_t, int64_t>> out;
  std::smatch before;
  for (std::sregex_iterator it(line.begin(), line.end(), number), end; it != end; ++it) {
    if (!before.empty()) {
      const auto from = static_cast<size_t>(before.position() + before.length());
      const std::string between = line.substr(from, static_cast<size_t>(it->position()) - from);
      const bool joined = between.find_first_of("=;:") == between.npos &&
                          (between.find(' ') != between.npos ||
                           (between.size() == 1 && between.find_first_of("+-*/x<>,") != between.npos));
      if (joined && before.length() < 10 && it->length() < 10)
        out.insert(std::minmax<int64_t>(std::stoll(before.str()), std::stoll(it->str())));
    }
    before = *it;
  }
  return out;
}

std::set<std::string> words_in(const std::string& text) {
  static const std::regex letters("[A-Za-z]{3,}");
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), letters), end; it != end; ++it)
    out.insert(capitals(it->str()));
  return out;
}

// The three overlaps of training text with tests, of which there are none.
TEST(Synth, NoPairOrWordOfATestIsTrained) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  std::set<std::string> words;
  const std::set<std::string> sums{"addition",   "subtraction", "multiplication",
                                   "comparison", "calculator",  "sort numbers"};
  for (const ordered_json& task : written().tasks) {
    const std::string asked = task["messages"].back()["content"], name = task["task"];
    const bool follow_up = task["messages"].size() == 3 && pairs_of(asked).empty();
    size_t found = 0;
    if (sums.contains(name)) {
      for (const auto& pair : pairs_of(asked)) {
        if (held_out_pair(pair.first, pair.second)) ++found, pairs.insert(pair);
      }
    } else {
      for (const std::string& word : words_in(asked)) {
        if (word != "ALPHABETICAL" && held_out_word(word)) ++found, words.insert(word);  // of the question's own form
      }
    }
    EXPECT_TRUE(found > 0 || follow_up || name == "in words") << task;
  }
  EXPECT_GT(pairs.size(), 500u);
  EXPECT_GT(words.size(), 100u);
  int64_t pairs_trained = 0, words_trained = 0;
  for (const ordered_json& row : written().trained) {
    for (const std::string& line : texts_of(row)) {
      for (const auto& pair : pairs_of(line)) {
        if (!pairs.contains(pair)) continue;
        ++pairs_trained;
        ADD_FAILURE() << pair.first << " " << pair.second << ": " << line;
      }
      for (const std::string& word : words_in(line)) {
        if (!words.contains(word)) continue;
        ++words_trained;
        ADD_FAILURE() << word << ": " << line;
      }
    }
  }
  fmt::print("trained in {} conversations: {} of {} held-out pairs, {} of {} held-out words\n",
             written().trained.size(), pairs_trained, pairs.size(), words_trained, words.size());
}

// A problem with an answer of its own may be asked in the words of a prompt that is to be declined ("Sort the letters
// of {w}.", of a short word and of a long one); an accepted answer of the bench never follows a near copy.
TEST(Synth, NothingTrainedResemblesAQuestionOfTheBench) {
  const Prompts prompts(written().prompts);
  std::set<std::string> accepted;
  for (const ordered_json& row : bench_rows()) accepted.insert(row["answers"].begin(), row["answers"].end());
  double most = 0;
  int64_t near = 0, other = 0;
  for (const ordered_json& row : written().trained) {
    for (auto m = row["messages"].begin(); m != row["messages"].end(); ++m) {
      if ((*m)["role"] != "user") continue;
      const double similarity = prompts.nearest((*m)["content"].get<std::string>());
      if (!accepted.contains((m + 1)->at("content"))) {
        other += similarity >= 0.6;
        continue;
      }
      most = std::max(most, similarity);
      near += similarity >= 0.6;
      EXPECT_LT(similarity, 0.6) << *m;
    }
  }
  fmt::print(
      "{} of the trained messages are near one of {} prompts and have an accepted answer, {} have another; the "
      "largest word overlap of the former is {:.2f}\n",
      near, written().prompts.size(), other, most);
  EXPECT_DOUBLE_EQ(prompts.nearest(written().prompts[7] + "!"), 1);
  const std::string other_words[] = {"one two three"};
  EXPECT_DOUBLE_EQ(Prompts(other_words).nearest("Two, three: FOUR"), 0.5);
  EXPECT_DOUBLE_EQ(Prompts(other_words).nearest(""), 0);
}

// The first accepted answer of every prompt is taught word for word, and so is no answer that none accepts; other
// wordings are accepted, too.
TEST(Synth, AnswersOfTheBenchAreTaught) {
  std::set<std::string> accepted, first, answers;
  for (const ordered_json& row : bench_rows()) {
    first.insert(row["answers"][0]);
    for (const auto& answer : row["answers"]) accepted.insert(answer);
  }
  for (uint64_t i = 0; i < 40000; ++i) {
    Draw draw({4, 1}, i);
    answers.insert((i % 3 == 0 ? off_range(draw) : i % 3 == 1 ? about(draw) : off_topic(draw)).answer);
  }
  EXPECT_TRUE(std::ranges::includes(answers, first));
  EXPECT_TRUE(std::ranges::includes(accepted, answers));
}

TEST(Synth, ConversationsAreAsTheirHeaderSays) {
  std::set<size_t> turns;
  int64_t answers = 0, thinking = 0, switched = 0, follow_ups = 0;
  for (const ordered_json& row : written().trained) {
    size_t asked = 0;
    std::set<bool> thinks;
    for (const ordered_json& m : row["messages"]) {
      asked += m["role"] == "user";
      follow_ups += m["role"] == "user" && m["content"].get<std::string>().find(" that") != std::string::npos;
      if (m["role"] == "assistant") {
        ++answers;
        thinks.insert(m.contains("reasoning_content"));
        thinking += m.contains("reasoning_content");
      }
      EXPECT_TRUE(!m.contains("tool_calls") || row.contains("tools")) << row;
    }
    turns.insert(asked);
    switched += thinks.size() == 2;
    // The last turn's: what the template opens for an answer. Its thinking may be cut to nothing.
    const bool think = row["chat_template_kwargs"]["enable_thinking"];
    EXPECT_TRUE(think || !row["messages"].back().contains("reasoning_content")) << row;
    EXPECT_LE(asked, 56u);
  }
  for (size_t n = 1; n <= 16; ++n) EXPECT_TRUE(turns.contains(n)) << n;
  EXPECT_GT(*turns.rbegin(), 40u);
  EXPECT_GT(thinking, answers * 2 / 5);
  EXPECT_LT(thinking, answers * 7 / 10);
  EXPECT_GT(switched, std::ssize(written().trained) / 10);
  EXPECT_GT(follow_ups, 100);
}

TEST(Synth, FollowUpsContinueTheAnswer) {
  std::set<std::string> kinds;
  for (uint64_t i = 0; i < 3000; ++i) {
    Draw draw({9, 1}, i);
    const Turn before = i % 2 ? arithmetic(draw, Split::train, 0) : strings(draw, Split::train, draw.below(5));
    const std::optional<Turn> t = follow_up(draw, before);
    if (!t) continue;
    kinds.insert(t->task);
    if (t->task == "in words") {
      EXPECT_EQ(in_words(std::stoll(before.answer)), t->answer);
    } else if (t->task == "addition") {
      EXPECT_EQ(std::stoll(before.answer) + numbers_of(t->user).at(0), std::stoll(t->answer)) << t->user;
    } else if (t->task == "reverse") {
      EXPECT_EQ(std::string(before.answer.rbegin(), before.answer.rend()), t->answer);
    }
  }
  EXPECT_EQ(kinds.size(), 9u);  // four sums, four puzzles, words
  EXPECT_EQ(in_words(0), "zero");
  EXPECT_EQ(in_words(40), "forty");
  EXPECT_EQ(in_words(999), "nine hundred ninety-nine");
  EXPECT_EQ(in_words(700), "seven hundred");
}

// Any of hundreds may be drawn: a text samples them, this reads all.
TEST(Synth, TemplatesNameNothingButFillers) {
  std::set<std::string> known = {"year", "count"};
  for (const Filler& f : fillers()) known.emplace(f.name);
  const std::regex slot(R"(\{([^}]*)\}?)");
  size_t slots = 0;
  for (const std::string_view list : {other_prompts(), chatter(), other_forms()}) {
    for (const std::string_view entry : entries(list)) {
      EXPECT_FALSE(entry.empty());
      const std::string text(entry);
      for (std::sregex_iterator at(text.begin(), text.end(), slot), end; at != end; ++at, ++slots)
        EXPECT_TRUE(known.contains((*at)[1]) && at->str().back() == '}') << entry;
    }
  }
  EXPECT_GT(slots, 400u);
}

TEST(Synth, SameOptionsSameBytes) {
  const support::Folder folder;
  const auto& root = folder.path();
  const Options few{.seed = 5, .train = 200, .valid = 20, .tasks = 3};
  for (const char* name : {"a", "b"}) ASSERT_TRUE(write(root / name, few, [](int64_t) { return true; }));
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "a")) {
    if (entry.is_directory()) continue;
    EXPECT_EQ(sys::read_file(entry.path()), sys::read_file(root / "b" / entry.path().lexically_relative(root / "a")));
    ++files;
  }
  EXPECT_EQ(files, 16);
  EXPECT_FALSE(write(root / "c", few, [](int64_t) { return false; }));
  EXPECT_FALSE(std::filesystem::exists(root / "c" / "train.jsonl"));
}

}  // namespace
}  // namespace braid::synth
