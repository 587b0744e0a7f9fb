#include "engine/reasoning.h"
#include "engine/reasoning_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace braid::engine {
namespace {

ReasoningSplitter::Parts split(std::string_view text, bool thinking, size_t piece, bool closed = false) {
  ReasoningSplitter splitter(thinking, closed);
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
      {"\n\nso", false, "", "\n\nso"},
      {"<think>\nwhy</think>\nso", false, "why", "so"},
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

// Behind the tag at the end of a prompt the model may write its newline.
TEST(Reasoning, NewlinesBehindTheClosedTagOfAPromptAreItsOwn) {
  for (size_t piece = 1; piece <= 5; ++piece) {
    EXPECT_EQ(split("\n\nso\n", false, piece, true).content, "so\n");
    EXPECT_EQ(split("\n<think>\nwhy</think>\nso", false, piece, true).reasoning, "why");
  }
  EXPECT_TRUE(ends_in_closed_think("<think></think>"));
  EXPECT_FALSE(ends_in_closed_think("<think>\n\n</think>\n\n"));  // the newlines are there
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

// Ids are bytes of text, but for the tags; 'C' and 'L' stand for the closing.
TEST(ReasoningLimit, ClosesOnceAndOnlyWhatIsOpen) {
  const auto text_of = [](int32_t id) {
    return id == 'E'   ? std::string("</think>")
           : id == 'T' ? std::string("<think>")
           : id == 'X' ? std::string("<tool_call>")
                       : std::string(1, static_cast<char>(id));
  };
  const auto budget = [&](int64_t tokens, int64_t grace) {
    return ReasoningBudget{.tokens = tokens,
                           .grace = grace,
                           .text_of = text_of,
                           .closing = {'\n', 'E', '\n'},
                           .closing_of_line = {'E', '\n'}};
  };
  const auto said = [](ReasoningLimit limit, const std::string& sampled) {
    std::string out;
    for (const char id : sampled) out += static_cast<char>(limit.next(id));
    return out;
  };
  const auto open = [&](int64_t tokens, const std::string& sampled, int64_t grace = 0) {
    return said(ReasoningLimit(budget(tokens, grace), Thinking::open), sampled);
  };
  EXPECT_EQ(open(2, "abcdefab"), "ab\nE\nfab");
  EXPECT_EQ(open(2, "aEcdefE"), "aEcdefE");  // closed by itself
  EXPECT_EQ(open(2, "abEde"), "abEde");      // in the nick of time
  EXPECT_EQ(open(2, "abcEef"), "ab\nE\nf");  // while it is being closed
  EXPECT_EQ(open(2, "aXcdf"), "aXcdf");      // a call is not thinking
  EXPECT_EQ(open(0, "abcd"), "\nE\nd");
  EXPECT_EQ(open(9, "a</think>bcdefghijkl"), "a</think>bcdefghijkl");  // a tag of many tokens
  EXPECT_EQ(said(ReasoningLimit(), "abcd"), "abcd");
  // With a grace the line may be completed.
  EXPECT_EQ(open(2, "abc\ndef", 3), "abc\nE\nf");
  EXPECT_EQ(open(2, "\nbcdeaaaf", 3), "\nbcde\nE\nf");
  EXPECT_EQ(open(2, "a\ncde", 3), "a\nE\ne");
  EXPECT_EQ(open(2, "abcEe", 3), "abcEe");
  // The model opens it itself, or never does.
  const auto may_open = [&](const std::string& sampled) {
    return said(ReasoningLimit(budget(2, 0), Thinking::may_open), sampled);
  };
  EXPECT_EQ(may_open("Tabcdefg"), "Tab\nE\nfg");
  EXPECT_EQ(may_open("\n<think>abcdef"), "\n<think>ab\nE\nf");
  EXPECT_EQ(may_open("abcdef"), "abcdef");
  EXPECT_EQ(may_open("aTbcdef"), "aTbcdef");
  EXPECT_EQ(said(ReasoningLimit(budget(2, 0), Thinking::none), "Tabcdef"), "Tabcdef");
}

}  // namespace
}  // namespace braid::engine
