// Built-in environments: answers computed here from the text of the question are right, others are not; and commands
// that answer, end, are silent or write nonsense.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <set>
#include <sstream>

#include "data/synth/holdout.h"
#include "environments/environment.h"
#include "support/error_of.h"

namespace braid::environments {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kSamples = 200;

Problem problem_of(Environment& environment, int64_t level, uint64_t sample) {
  synth::Draw draw({.seed = 5, .stream = 1}, sample);
  return environment.problem(draw, level);
}

std::string question_of(const Problem& problem) { return problem.messages.back()["content"].get<std::string>(); }

std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < text.size();) {
    if (!isdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    size_t used = 0;
    out.push_back(std::stoll(text.substr(i), &used));
    i += used;
  }
  return out;
}

// The right answer, from the question alone; for problems with one.
std::string solved(const std::string& name, const std::string& question) {
  std::vector<int64_t> n = numbers_in(question);
  if (name == "addition") return std::to_string(n.at(0) + n.at(1));
  if (name == "multiplication") return std::to_string(n.at(0) * n.at(1));
  if (name == "sorting") {
    std::multiset<int64_t> sorted(n.begin(), n.end());
    std::ostringstream out;
    for (const int64_t v : sorted) out << (out.tellp() > 0 ? ", " : "") << v;
    return out.str();
  }
  if (name == "brackets") {
    std::string text = question.substr(question.find(": ") + 2), closing;
    for (bool found = true; found;) {  // pairs cancel until only open ones are left
      found = false;
      for (const char* pair : {"()", "[]", "{}"}) {
        const size_t at = text.find(pair);
        if (at == std::string::npos) continue;
        text.erase(at, 2);
        found = true;
      }
    }
    for (auto ch = text.rbegin(); ch != text.rend(); ++ch) closing += *ch == '(' ? ')' : *ch == '[' ? ']' : '}';
    return closing;
  }
  std::string words;  // exact-length
  for (int64_t i = 0; i < n.at(0); ++i) words += i % 2 == 0 ? " yes " : "no\n";
  return words;
}

TEST(EnvironmentsTest, AnswersThatAreRightEarnTheReward) {
  for (const std::string name : {"addition", "multiplication", "sorting", "brackets", "exact-length"}) {
    const auto environment = make(name, 1, "test");
    ASSERT_GT(environment->levels(), 1);
    for (int64_t level = 0; level < environment->levels(); ++level) {
      for (uint64_t i = 0; i < kSamples; ++i) {
        const Problem problem = problem_of(*environment, level, i);
        const std::string question = question_of(problem), right = solved(name, question);
        ASSERT_EQ(environment->judge(problem, {.text = " " + right + "\n"}).reward, 1) << question << ": " << right;
        EXPECT_EQ(environment->judge(problem, {.text = right, .cut = true}).reward, 0);
        for (const std::string& wrong : {"x " + right, right + ", 1", right + right, std::string()})
          EXPECT_EQ(environment->judge(problem, {.text = wrong}).reward, 0) << question << ": " << wrong;
      }
    }
  }
}

// However the numbers are set apart.
TEST(EnvironmentsTest, ListsAreComparedAsNumbers) {
  const auto environment = make("sorting", 1, "test");
  const Problem problem{.messages = ordered_json::array(), .secret = "1, 20, 20, 3"};
  for (const char* right : {"1, 20, 20, 3", "1,20,20,3", "1 20 20 3", "1\n20\n20\n3\n", "1 ,\n20, 20,\t3"})
    EXPECT_EQ(environment->judge(problem, {.text = right}).reward, 1) << right;
  for (const char* wrong :
       {"1, 20, 3", "1, 20, 20, 3, 4", "12020 3", "1,, 20, 20, 3", "1, 20, 20, 3,", ", 1, 20, 20, 3", "1; 20; 20; 3",
        "1, 20, 20, 3.0", "-1, 20, 20, 3", "[1, 20, 20, 3]", "", "1, 20, 20, 00000000000000000000000000000003"})
    EXPECT_EQ(environment->judge(problem, {.text = wrong}).reward, 0) << wrong;
}

TEST(EnvironmentsTest, ProblemsAreFunctionsOfTheirNumberAndNotThoseOfTests) {
  for (const std::string& name : names()) {
    const auto environment = make(name, 1, "test");
    std::set<std::string> questions;
    for (uint64_t i = 0; i < kSamples; ++i) {
      const Problem problem = problem_of(*environment, static_cast<int64_t>(i) % environment->levels(), i);
      const Problem again = problem_of(*environment, static_cast<int64_t>(i) % environment->levels(), i);
      EXPECT_EQ(problem.messages, again.messages) << name;
      questions.insert(question_of(problem));
      const std::vector<int64_t> n = numbers_in(question_of(problem));
      const bool pair = name == "addition" || name == "multiplication";
      EXPECT_FALSE(pair && synth::held_out_pair(n.at(0), n.at(1)));
    }
    EXPECT_GT(questions.size(), name == "exact-length" ? 10u : 40u) << name;
  }
}

TEST(EnvironmentsTest, FormsAreJudgedByTheirGrammar) {
  const auto schema = make("json-schema", 1, "test"), regex = make("regex", 1, "test"),
             call = make("tool-call", 1, "test");
  Problem problem{.messages = ordered_json::array(), .secret = ordered_json::parse(R"({"type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 120}, "done": {"type": "boolean"}},
    "required": ["age", "done"], "additionalProperties": false})")};
  const auto reward = [&](const auto& environment, const char* text) {
    return environment->judge(problem, {.text = text}).reward;
  };
  EXPECT_EQ(reward(schema, R"({"age": 7, "done": true})"), 1);
  EXPECT_EQ(reward(schema, R"({"done":false,"age":120})"), 1);
  EXPECT_EQ(reward(schema, R"({"age": 30.0, "done": true})"), 1);
  EXPECT_EQ(reward(schema, R"({"age": 3e1, "done": true})"), 1);
  EXPECT_EQ(reward(schema, R"({"age": 130.0, "done": true})"), 0);
  for (const char* wrong : {R"({"age": 7})", R"({"age": 121, "done": true})", R"({"age": 7.5, "done": true})", "{",
                            "[]", R"({"age": 7, "age": 8, "done": true})", R"({"age": 7, "done": true, "x": 1})",
                            R"({"age": "7", "done": true})", R"({"age": 7, "done": true} x)"})
    EXPECT_EQ(reward(schema, wrong), 0) << wrong;
  problem.secret = "[a-z]{2}-(cat|dog)";
  EXPECT_EQ(reward(regex, "ab-dog"), 1);
  for (const char* wrong : {"ab-do", "ab-dogs", "Ab-cat", "abc-cat", ""}) EXPECT_EQ(reward(regex, wrong), 0) << wrong;
  problem = problem_of(*call, 0, 0);
  problem.secret = "12+34";
  const auto called = [&](const std::string& name, const std::string& key, const std::string& value) {
    const std::string text = "<tool_call>\n<function=" + name + ">\n<parameter=" + key + ">\n" + value +
                             "\n</parameter>\n</function>\n</tool_call>";
    return call->judge(problem, {.text = text}).reward;
  };
  EXPECT_EQ(called("calculator", "expression", "12 + 34"), 1);
  EXPECT_EQ(called("calculator", "expression", "12 + 35"), 0);
  EXPECT_EQ(called("calculator", "sum", "12 + 34"), 0);
  EXPECT_EQ(called("adder", "expression", "12 + 34"), 0);
  EXPECT_EQ(called("calculator", "expression", "12 + 34\n</parameter>\n<parameter=expression>\n12 + 34"), 0);
  const auto called_twice = [&](const char* arguments) {
    const std::string text =
        std::string("<tool_call>\n{\"name\": \"calculator\", \"arguments\": ") + arguments + "}\n</tool_call>";
    return call->judge(problem, {.text = text}).reward;
  };
  EXPECT_EQ(called_twice(R"({"expression": "12+34"})"), 1);
  EXPECT_EQ(called_twice(R"({"expression": "1", "expression": "12+34"})"), 0);
  EXPECT_EQ(call->judge(problem, {.text = "46"}).reward, 0);
}

// Every problem of a form has an answer: one that its own words describe.
TEST(EnvironmentsTest, FormsCanBeSatisfied) {
  const auto schema = make("json-schema", 1, "test");
  const ordered_json values = {{"name", "Ann"}, {"age", 7}, {"done", true}, {"color", "red"}, {"scores", {1, -2}}};
  for (uint64_t i = 0; i < kSamples; ++i) {
    const Problem problem = problem_of(*schema, static_cast<int64_t>(i % 3), i);
    ordered_json answer;
    for (const auto& [name, value] : values.items()) {
      if (question_of(problem).find("\"" + name + "\"") != std::string::npos) answer[name] = value;
    }
    EXPECT_EQ(schema->judge(problem, {.text = answer.dump()}).reward, 1) << question_of(problem) << answer;
    answer["more"] = 1;
    EXPECT_EQ(schema->judge(problem, {.text = answer.dump()}).reward, 0);
  }
}

TEST(EnvironmentsTest, UnknownNamesAreRefused) {
  EXPECT_NE(support::error_of([] { make("adition", 1, "rollout.environments"); }).find("try addition"),
            std::string::npos);
  EXPECT_NE(support::error_of([] { make("command: ", 1, "rollout.environments"); }).find("no such environment"),
            std::string::npos);
}

// A program that answers problems with their seed, and judgements by a table of misbehaviours.
constexpr const char* kScript = R"(command:while read -r line; do case "$line" in
  *'"problem"'*) echo '{"prompt": "say yes", "secret": {"n": 3}}';;
  *'"answer":"yes"'*'"n":3'*|*'"n":3'*'"answer":"yes"'*) echo '{"reward": 0.5}';;
  *'"answer":"end"'*) exit 3;;
  *'"answer":"hang"'*) sleep 600;;
  *'"answer":"nan"'*) echo '{"reward": NaN}';;
  *'"answer":"null"'*) echo '{"reward": null}';;
  *'"answer":"huge"'*) echo '{"reward": 1e30}';;
  *'"answer":"endless"'*) echo '{"reward": 1e999}';;
  *'"answer":"chatty"'*) printf '{"reward": 0.25}\n{"reward": -7}\n';;
  *'"answer":"later"'*) echo '{"reward": 0.25}'; sleep 0.2; echo '{"reward": -7}';;
  *'"answer":"words"'*) echo 'not JSON';;
  *) echo '{"reward": 0}';; esac; done)";

TEST(CommandTest, FailuresAreCountedAndTheCommandStartsAgain) {
  const auto command = make(kScript, 20, "test"), impatient = make(kScript, 1, "test");
  const Problem problem = problem_of(*command, 0, 0);
  EXPECT_EQ(impatient->judge(problem, {.text = "hang"}).error, "no reply within 1 s");
  EXPECT_EQ(question_of(problem), "say yes");
  const auto judge = [&](const char* text) { return command->judge(problem, {.text = text}); };
  const std::pair<const char*, const char*> failures[] = {{"end", "the command ended"},
                                                          {"nan", "not a JSON object"},
                                                          {"null", "without a reward"},
                                                          {"huge", "a reward beyond 1e9"},
                                                          {"endless", R"(not a JSON object: {"reward": 1e999})"},
                                                          {"words", "not a JSON object: not JSON"},
                                                          {"chatty", "more than one line"}};
  int ended = 0;  // over a line: not asked again
  for (const auto& [text, says] : failures) {
    const std::string error = judge(text).error;
    EXPECT_NE(error.find(says), std::string::npos) << text << ": " << error;
    if (error == "the command ended") ++ended;
    const Verdict next = judge("yes");
    EXPECT_EQ(next.error, "") << text;
    EXPECT_EQ(next.reward, 0.5) << text;
  }
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(judge("no").reward, 0);
  EXPECT_EQ(judge("later").reward, 0.25);
  usleep(600'000);  // until the line that nothing asked for is there
  EXPECT_NE(judge("yes").error.find("more than one line"), std::string::npos);
  EXPECT_EQ(judge("yes").reward, 0.5);
}

// A program that replies to one line and ends, at once or a little later.
TEST(CommandTest, ACommandMayEndAfterEachReply) {
  for (const char* script : {"command:read -r line; echo '{\"prompt\": \"hi\", \"reward\": 0.5}'",
                             "command:read -r line; echo '{\"prompt\": \"hi\", \"reward\": 0.5}'; sleep 0.1"}) {
    const auto command = make(script, 20, "test");
    const Problem problem = problem_of(*command, 0, 0);
    for (const int wait_ms : {0, 300, 0}) {
      usleep(static_cast<useconds_t>(wait_ms * 1000));
      const Verdict verdict = command->judge(problem, {.text = "yes"});
      EXPECT_EQ(verdict.error, "") << script << wait_ms;
      EXPECT_EQ(verdict.reward, 0.5);
    }
  }
}

// Training ignores SIGPIPE; a command in which `head` ends what writes to it must not wait for ever.
TEST(CommandTest, WhatThisProcessIgnoresEndsACommand) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const auto command = make(
      "command:word=$(while :; do echo hi; done | head -n 1); while read -r line; do "
      "echo \"{\\\"prompt\\\": \\\"$word\\\", \\\"reward\\\": 0.5}\"; done",
      5, "test");
  EXPECT_EQ(problem_of(*command, 0, 0).messages.at(0).at("content"), "hi");
  std::signal(SIGPIPE, before);
}

TEST(CommandTest, NoProblemIsAFailedRun) {
  for (const char* line : {"command:exit 1", "command:read x; echo 7", "command:while read x; do echo '{}'; done",
                           R"(command:while read x; do echo '{"messages": [7]}'; done)",
                           "command:while read x; do printf '%20000s\\n' | tr ' ' '['; done"}) {
    const auto command = make(line, 60, "test");
    EXPECT_NE(support::error_of([&] { problem_of(*command, 0, 0); }).find("gave no problem"), std::string::npos)
        << line;
  }
}

}  // namespace
}  // namespace braid::environments
