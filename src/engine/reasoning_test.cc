#include "engine/reasoning.h"
#include "engine/reasoning_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace braid::engine {
namespace {

ReasoningSplitter::Parts split(std::string_view text, bool thinking, size_t piece) {
  ReasoningSplitter splitter(thinking);
  ReasoningSplitter::Parts all;
  const auto add = [&all](const ReasoningSplitter::Parts& p) {
    all.reasoning += p.reasoning;
    all.content += p.content;
  };
  for (size_t i = 0; i < text.size(); i += piece) add(splitter.push(text.substr(i, piece)));
  add(splitter.finish());
  return all;
}

struct Case {
  const char* text;
  bool thinking;
  const char *reasoning, *content;
};

// The parts do not depend on how the text is cut.
TEST(Reasoning, PartsWhereverTheTextIsCut) {
  const std::vector<Case> cases = {
      {"why</think>so", true, "why", "so"},
      {"\n\nwhy\n</think>\n\nso\n", true, "why\n", "so\n"},
      {"so", false, "", "so"},
      {"<think>why</think>so", false, "why", "so"},
      {" \n<think>why</think>so", false, "why", "so"},
      {"a <think> is a tag</think>", false, "", "a <think> is a tag</think>"},
      {"why</think>so <think>", true, "why", "so <think>"},
      {"why</think>\n<think>and</think>so", true, "whyand", "so"},
      {" <thin", false, "", " <thin"},
      {"</think>so", true, "", "so"},
      {"never ends", true, "never ends", ""},
      {"ends in </thin", true, "ends in </thin", ""},
      {"a < b </thinks> c</think>d", true, "a < b </thinks> c", "d"},
      {"<<think>x</think>", false, "", "<<think>x</think>"},
      {"let me<tool_call>{}</tool_call>", true, "let me", "<tool_call>{}</tool_call>"},
      {"x<tool_call>{}</tool_call> <think>", true, "x", "<tool_call>{}</tool_call> <think>"},
      {"x<tool_</think>y", true, "x<tool_", "y"},
      {"no tags: <tool_call>", false, "", "no tags: <tool_call>"},
      {"", true, "", ""},
  };
  for (const Case& c : cases) {
    for (size_t piece = 1; piece <= 20; ++piece) {
      const auto parts = split(c.text, c.thinking, piece);
      EXPECT_EQ(parts.reasoning, c.reasoning) << c.text << " in pieces of " << piece;
      EXPECT_EQ(parts.content, c.content) << c.text << " in pieces of " << piece;
    }
  }
}

TEST(Reasoning, OnlyWhatCouldBeATagIsHeldBack) {
  ReasoningSplitter splitter(true);
  EXPECT_EQ(splitter.push("abc<").reasoning, "abc");
  EXPECT_EQ(splitter.push("/th").reasoning, "");
  EXPECT_EQ(splitter.push("e").reasoning, "</the");
  EXPECT_TRUE(splitter.thinking());
  EXPECT_EQ(splitter.push("</think>x").content, "x");
  EXPECT_FALSE(splitter.thinking());
}

TEST(Reasoning, APromptMayEndInsideThinking) {
  EXPECT_TRUE(ends_in_think("user: hi\n<think>\n"));
  EXPECT_FALSE(ends_in_think("<think></think>"));
  EXPECT_TRUE(ends_in_think("<think></think>hello<think>"));
  EXPECT_FALSE(ends_in_think("user: what is <think>?\nassistant:"));
  EXPECT_FALSE(ends_in_think(""));
}

TEST(ReasoningLimit, ClosesOnceAndOnlyWhatIsOpen) {
  const ReasoningBudget two{.tokens = 2, .end = 9, .closing = {7, 9, 7}};
  const auto said = [](ReasoningLimit limit, std::vector<int32_t> sampled) {
    for (int32_t& id : sampled) id = limit.next(id);
    return sampled;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(said(ReasoningLimit(two), {1, 2, 3, 4, 5, 6, 1, 2}), (Ids{1, 2, 7, 9, 7, 6, 1, 2}));
  EXPECT_EQ(said(ReasoningLimit(two), {1, 9, 3, 4, 5, 6, 9}), (Ids{1, 9, 3, 4, 5, 6, 9}));  // closed by itself
  EXPECT_EQ(said(ReasoningLimit(two), {1, 2, 9, 4, 5}), (Ids{1, 2, 9, 4, 5}));              // in the nick of time
  EXPECT_EQ(said(ReasoningLimit(two), {1, 2, 3, 9, 5, 6}), (Ids{1, 2, 7, 9, 7, 6}));        // while it is being closed
  ReasoningBudget calling = two;
  calling.call = 5;
  EXPECT_EQ(said(ReasoningLimit(calling), {1, 5, 3, 4, 6}), (Ids{1, 5, 3, 4, 6}));  // a call is not thinking
  ReasoningBudget none = two;
  none.tokens = 0;
  EXPECT_EQ(said(ReasoningLimit(none), {1, 2, 3, 4}), (Ids{7, 9, 7, 4}));
  EXPECT_EQ(said(ReasoningLimit(), {1, 2, 3, 4}), (Ids{1, 2, 3, 4}));
  ReasoningBudget lines = two;  // 8 ends a line; the closing then has no line end before it
  lines.grace = 3;
  lines.line_ends = std::make_shared<const std::vector<bool>>(std::vector<bool>{0, 0, 0, 0, 0, 0, 0, 1, 1, 0});
  EXPECT_EQ(said(ReasoningLimit(lines), {1, 2, 3, 8, 4, 5, 6}), (Ids{1, 2, 3, 8, 9, 7, 6}));
  EXPECT_EQ(said(ReasoningLimit(lines), {8, 2, 3, 4, 5, 1, 1, 1, 6}), (Ids{8, 2, 3, 4, 5, 7, 9, 7, 6}));
  EXPECT_EQ(said(ReasoningLimit(lines), {1, 8, 3, 4, 5}), (Ids{1, 8, 9, 7, 5}));
  EXPECT_EQ(said(ReasoningLimit(lines), {1, 2, 3, 9, 5}), (Ids{1, 2, 3, 9, 5}));
}

}  // namespace
}  // namespace braid::engine
