#include "text/tool_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace braid::text {
namespace {

using nlohmann::ordered_json;

ParsedAnswer parsed(std::string_view text) {
  static const auto tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array"}}}}}])");
  return parse_tool_calls(text, tools);
}

TEST(ToolCalls, EveryFormIsRead) {
  for (const char* text :
       {"So.\n<tool_call>\n<function=f>\n<parameter=text>\n5\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
        "<parameter=list>\n[1, \"a\"]\n</parameter>\n</function>\n</tool_call>",
        "So.\n<tool_call>\n<function=f>\n<parameter=text>\n5\n<parameter=n>\n5\n<parameter=list>\n[1, \"a\"]\n",
        "So.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"text\": \"5\", \"n\": 5, \"list\": [1, "
        "\"a\"]}}\n</tool_call>",
        "So.<tool_call>{\"name\": \"f\", \"parameters\": {\"text\": \"5\", \"n\": 5, \"list\": [1, \"a\"]}}",
        "So. <TOOLCALL>[{\"name\": \"f\", \"arguments\": \"{\\\"text\\\": \\\"5\\\", \\\"n\\\": 5, \\\"list\\\": [1, "
        "\\\"a\\\"]}\"}]</TOOLCALL>"}) {
    const ParsedAnswer answer = parsed(text);
    EXPECT_EQ(answer.content, "So.") << text;
    ASSERT_EQ(answer.calls.size(), 1u) << text;
    EXPECT_EQ(answer.calls[0].name, "f");
    EXPECT_EQ(answer.calls[0].arguments.dump(), R"({"text":"5","n":5,"list":[1,"a"]})") << text;
  }
}

TEST(ToolCalls, OfNoArgumentsAndSeveral) {
  const ParsedAnswer two = parsed(
      "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=k>\nline 1\nline "
      "2\n</parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(two.calls.size(), 2u);
  EXPECT_EQ(two.calls[0].arguments.dump(), "{}");
  EXPECT_EQ(two.calls[1].arguments.dump(), R"({"k":"line 1\nline 2"})");
  EXPECT_EQ(two.content, "");
}

TEST(ToolCalls, WhatCannotBeReadStaysText) {
  for (const char* text : {"<tool_call>nothing</tool_call>", "<tool_call>{\"name\": 5}</tool_call>",
                           "<TOOLCALL>[1]</TOOLCALL>", "<tool_call>", "<tool_call><function=></function></tool_call>",
                           "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"}) {
    EXPECT_EQ(parsed(text).content, text);
    EXPECT_TRUE(parsed(text).calls.empty()) << text;
  }
  const std::string deep = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(100000, '[');
  EXPECT_EQ(parsed(deep + std::string(100000, ']') + "}}</tool_call>").calls.size(), 0u);
  EXPECT_EQ(parsed("a < b <tool>").content, "a < b <tool>");
}

TEST(ToolCalls, StreamsHoldBackWhatMayBeACall) {
  for (const auto& [text, length] : {std::pair<std::string, size_t>{"abc", 3},
                                     {"abc <tool", 4},
                                     {"abc <tool_call>x", 4},
                                     {"abc <TOOLC", 4},
                                     {"a <TOOLCALL> <tool_call>", 2},
                                     {"", 0},
                                     {"<", 0},
                                     {"a<b", 3}})
    EXPECT_EQ(length_before_calls(text), length) << text;
}

}  // namespace
}  // namespace braid::text
