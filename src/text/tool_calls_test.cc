#include "text/tool_calls.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <string>
#include <vector>

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
    EXPECT_EQ(answer.calls[0].arguments, R"({"text":"5","n":5,"list":[1,"a"]})") << text;
  }
}

TEST(ToolCalls, WordsOfPythonAreJsonWhereTheSchemaSaysNoString) {
  const auto tools = ordered_json::parse(R"([{"name": "f", "parameters": {"properties": {
      "text": {"type": "string"}, "yes": {"type": "boolean"}, "no": {"type": "boolean"}, "none": {"type": "null"}}}}])");
  std::string text = "<tool_call>\n<function=f>\n";
  for (const auto& [key, value] : {std::pair("text", "True"), {"yes", "True"}, {"no", "False"}, {"none", "None"}})
    text += std::string("<parameter=") + key + ">\n" + value + "\n</parameter>\n";
  const ParsedAnswer answer = parse_tool_calls(text + "</function>\n</tool_call>", tools);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, R"({"text":"True","yes":true,"no":false,"none":null})");
}

// Llama 3 writes a call as JSON and nothing else, so that only the functions that are offered tell it from an answer.
TEST(ToolCalls, WithoutTagsIsReadWhereTheModelWritesIt) {
  const auto tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}, {"name": "g"}])");
  const auto said = [&](std::string_view text, bool bare = true, size_t size = 1, bool cut = false) {
    ToolCallStream stream(tools, bare);
    std::string out;
    const auto add = [&out](const std::vector<AnswerPiece>& pieces) {
      for (const AnswerPiece& piece : pieces) {
        const bool call = piece.kind == AnswerPiece::Kind::call, end = piece.kind == AnswerPiece::Kind::end;
        out += (call ? "+" + piece.text + "(" : piece.text) + (end ? piece.complete ? ")" : "!" : "");
      }
    };
    for (size_t at = 0; at < text.size(); at += size) add(stream.push(text.substr(at, size)));
    add(stream.finish(cut));
    return out;
  };
  const std::string f = R"({"name": "f", "parameters": {"n": 1}})";
  for (const size_t size : {size_t{1}, size_t{5}, size_t{999}}) {
    EXPECT_EQ(said(f, true, size), R"(+f({"n":1}))");
    EXPECT_EQ(said(" \n" + f + "\n", true, size), R"(+f({"n":1}))");
    EXPECT_EQ(said("<|python_tag|>" + f, true, size), R"(+f({"n":1}))");
    EXPECT_EQ(said(R"({"type": "function", "name": "g", "parameters": null})", true, size), "+g({})");
    EXPECT_EQ(said(f + "; " + R"({"name": "g", "arguments": {}})", true, size), R"(+f({"n":1})+g({}))");
    EXPECT_EQ(said(f + " So.", true, size), R"(+f({"n":1}) So.)");
    for (const std::string text :
         {R"({"name": "h", "parameters": {}})", R"({"answer": 5, "name": "f", "parameters": {}})", "{f}", "{",
          R"({"name": "f")", R"(Hello. {"name": "f", "parameters": {}})", R"([{"name": "f", "parameters": {}}])",
          R"(<|python_tag|>search.call(query="x"))"})
      EXPECT_EQ(said(text, true, size), text);
    EXPECT_EQ(said(f, false, size), f);
  }
  EXPECT_EQ(said(f.substr(0, 35), true, 1, true), R"(+f({"n":1!)");
  EXPECT_TRUE(parse_tool_calls(f, nullptr, false, true).calls.empty());  // nothing is offered
  EXPECT_EQ(parse_tool_calls(f, tools, false, true).calls.size(), 1u);
  EXPECT_EQ(said(R"({"answer": ")" + std::string(50, 'x'), true, 1).size(), 62u);
}

// An answer in JSON that is no call is passed on as soon as its first key tells.
TEST(ToolCalls, JsonThatIsNoCallIsNotHeldBack) {
  ToolCallStream stream(ordered_json::parse(R"([{"name": "f"}])"), true);
  EXPECT_TRUE(stream.push("{\"answer\"").empty());
  const std::vector<AnswerPiece> pieces = stream.push(": ");
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].text, "{\"answer\":");
}

// A hundred choices of one request do not keep its tools a hundred times, nor their descriptions at all.
TEST(ToolCalls, ManyAnswersShareTheTools) {
  const auto allocated = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const ordered_json parameters = {
      {"properties", {{"a", {{"type", "string"}, {"description", std::string(100'000, 'x')}}}}}};
  const auto tools = ordered_json::array(
      {{{"function", {{"name", "f"}, {"description", std::string(1'000'000, 'x')}, {"parameters", parameters}}}}});
  const int64_t before = allocated();
  std::vector<ToolCallStream> streams(128, ToolCallStream(tools));
  EXPECT_LT(allocated() - before, 500'000);
  const auto pieces =
      streams.back().push("<tool_call>\n<function=f>\n<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>");
  std::string arguments;
  for (const AnswerPiece& piece : pieces) arguments += piece.kind == AnswerPiece::Kind::arguments ? piece.text : "";
  EXPECT_EQ(arguments, R"({"a":"5"})");
}

TEST(ToolCalls, OfNoArgumentsAndSeveral) {
  const ParsedAnswer two = parsed(
      "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=k>\nline 1\nline "
      "2\n</parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(two.calls.size(), 2u);
  EXPECT_EQ(two.calls[0].arguments, "{}");
  EXPECT_EQ(two.calls[1].arguments, R"({"k":"line 1\nline 2"})");
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
  const ParsedAnswer nested = parsed(deep + std::string(100000, ']') + "}}</tool_call> after");
  ASSERT_EQ(nested.calls.size(), 1u);  // it had a name, and was sent
  EXPECT_FALSE(nested.calls[0].complete);
  EXPECT_LT(nested.calls[0].arguments.size(), 100u);
  EXPECT_EQ(nested.content, " after");
  EXPECT_EQ(parsed("a < b <tool>").content, "a < b <tool>");
}

// The pieces of a stream that gets `size` bytes at a time: "text", "+name", arguments, "." or "!" at the end of a call.
std::vector<std::string> streamed(std::string_view text, size_t size, bool cut = false) {
  static const auto tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}}}])");
  ToolCallStream stream(tools);
  std::vector<std::string> out;
  const auto add = [&](const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) {
      const bool call = piece.kind == AnswerPiece::Kind::call, end = piece.kind == AnswerPiece::Kind::end;
      out.push_back((call ? "+" : "") + piece.text + (end ? piece.complete ? "." : "!" : ""));
    }
  };
  for (size_t at = 0; at < text.size(); at += size) add(stream.push(text.substr(at, size)));
  add(stream.finish(cut));
  return out;
}

TEST(ToolCalls, ArgumentsComeWhileTheyAreGenerated) {
  using Said = std::vector<std::string>;
  EXPECT_EQ(
      streamed("Hi <tool_call>\n<function=f>\n<parameter=text>\na\"b\nc\n</parameter>\n<parameter=n>\n12\n", 4, true),
      (Said{"Hi", "+f", "{\"text\":\"", "a\\\"b", "\\nc", "\"", ",\"n\":", "!"}));
  EXPECT_EQ(streamed("<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"ab cd\", \"n\": 1}}</tool_call>", 6),
            (Said{"+f", "{\"te", "xt\":\"", "ab cd\"", ",\"n\":", "1}", "."}));
  EXPECT_EQ(
      streamed(
          "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"arguments\": {\"n\": 1}, \"name\": \"g\"}]</TOOLCALL>",
          99),
      (Said{"+f", "{}", ".", "+g", "{\"n\":1}", "."}));
  EXPECT_EQ(streamed("a < b <tool", 1), (Said{"a", " <", " b", " <tool"}));
}

// What pydantic writes for Optional[str] is streamed as strings are.
TEST(ToolCalls, OptionalTextComesWhileItIsGenerated) {
  using Said = std::vector<std::string>;
  for (const char* schema :
       {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", R"({"type": ["null", "string"]})"}) {
    const ordered_json function = {{"name", "f"},
                                   {"parameters", {{"properties", {{"o", ordered_json::parse(schema)}}}}}};
    const auto said = [&](const std::string& value) {
      ToolCallStream stream(ordered_json::array({{{"type", "function"}, {"function", function}}}));
      Said out;
      const std::string text =
          "<tool_call>\n<function=f>\n<parameter=o>\n" + value + "\n</parameter>\n</function>\n</tool_call>";
      for (size_t at = 0; at < text.size(); at += 4) {
        for (const AnswerPiece& piece : stream.push(text.substr(at, 4))) {
          if (piece.kind == AnswerPiece::Kind::arguments) out.push_back(piece.text);
        }
      }
      return out;
    };
    EXPECT_GT(said("a long text that is a string").size(), 5U) << schema;
    const auto whole = [&](const std::string& value) {
      std::string out;
      for (const std::string& piece : said(value)) out += piece;
      return out;
    };
    EXPECT_EQ(whole("a \"b\"\nc"), R"({"o":"a \"b\"\nc"})");
    EXPECT_EQ(whole("null"), R"({"o":null})");
    EXPECT_EQ(whole("nullify"), R"({"o":"nullify"})");
    EXPECT_EQ(whole("nul"), R"({"o":"nul"})");
    EXPECT_EQ(whole("5"), R"({"o":"5"})");
    EXPECT_EQ(whole(R"("quoted")"), R"({"o":"quoted"})");
    EXPECT_EQ(whole(R"("Hi" and more)"), R"({"o":"\"Hi\" and more"})");
    EXPECT_EQ(whole(""), R"({"o":""})");
  }
}

constexpr const char* kAnything = R"({"properties": {"d": {}}})";

ParsedAnswer call_of(const std::string& parameters, const std::string& value) {
  const ordered_json function = {{"name", "f"}, {"parameters", ordered_json::parse(parameters)}};
  return parse_tool_calls(
      "<tool_call>\n<function=f>\n<parameter=d>\n" + value + "\n</parameter>\n</function>\n</tool_call>",
      ordered_json::array({{{"type", "function"}, {"function", function}}}));
}

TEST(ToolCalls, StringsAreTextHoweverTheSchemaSaysSo) {
  for (
      const char* schema :
      {R"({"properties": {"d": {"type": "string", "anyOf": [{"minLength": 3}, {"const": "x"}]}}})",
       R"({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"d": {"type": "string"}}}}})",
       R"({"allOf": [{"properties": {"d": {"type": "string"}}}], "required": ["d"]})",
       R"({"properties": {"d": {"$ref": "#/$defs/A~1b"}}, "$defs": {"A/b": {"type": "string"}}})",
       R"({"properties": {"d": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}, "$defs": {"A": {"type": "string"}}})",
       R"({"properties": {"d": {"enum": ["5", "123"]}}})", R"({"additionalProperties": {"type": "string"}})"})
    EXPECT_EQ(call_of(schema, "123").calls[0].arguments, R"({"d":"123"})") << schema;
  for (const char* schema :
       {R"({"properties": {"d": {"type": ["string", "integer"]}}})", R"({"properties": {"d": {"$ref": "#/nowhere"}}})",
        R"({"properties": {"d": {"$ref": "#/properties/d"}}})", R"({"properties": {"d": {"type": 5, "enum": 5}}})",
        R"({"properties": {"d": {"allOf": [{"$ref": "#/properties/d"}, {"$ref": "#/properties/d"}]}}})",
        R"({"additionalProperties": true})", kAnything})
    EXPECT_EQ(call_of(schema, "123").calls[0].arguments, R"({"d":123})") << schema;
}

// As vLLM's readers have it: nothing says that it is a number, a list or a word of Python.
TEST(ToolCalls, ParametersThatTheSchemaDoesNotHaveAreText) {
  for (const char* schema : {R"({"properties": {"other": {"type": "integer"}}})", "{}", "5",
                             R"({"properties": {}, "additionalProperties": false})"}) {
    for (const char* value : {"123", "None", "True", "nul", "nullify", "", "[1, 2]", "\"quoted\"", "{\"a\": \"</x>\"}"})
      EXPECT_EQ(call_of(schema, value).calls[0].arguments, ordered_json({{"d", value}}).dump()) << schema;
    EXPECT_EQ(call_of(schema, "null").calls[0].arguments, R"({"d":null})") << schema;
    EXPECT_EQ(call_of(schema, "\"</parameter>").calls[0].arguments, R"({"d":"\""})") << schema;
  }
  EXPECT_EQ(parse_tool_calls("<tool_call><function=f><parameter=d>5</parameter>", {}).calls[0].arguments,
            R"({"d":"5"})");
}

TEST(ToolCalls, NumbersKeepTheirDigits) {
  for (const char* value : {"12345678901234567890", "-123456789012345678901234567890", "0.10000000000000000000001",
                            R"([18446744073709551617,{"a":1.50}])"})
    EXPECT_EQ(call_of(kAnything, value).calls[0].arguments, "{\"d\":" + std::string(value) + "}");
  EXPECT_EQ(call_of(kAnything, " [1, {\"a b\": \" c, \\\" d\"}] ").calls[0].arguments,
            R"({"d":[1,{"a b":" c, \" d"}]})");
}

TEST(ToolCalls, StringsOfJsonMayHoldTags) {
  const char *object = R"({"properties": {"d": {"type": "object"}}})",
             *optional = R"({"properties": {"d": {"type": ["string", "null"]}}})";
  for (const char* value : {R"({"z":"</parameter>"})", R"({"z":"a</parameter>\"</parameter>","y":["<"]})"})
    EXPECT_EQ(call_of(object, value).calls[0].arguments, "{\"d\":" + std::string(value) + "}");
  EXPECT_EQ(call_of(optional, "\"</parameter>\"").calls[0].arguments, R"({"d":"</parameter>"})");
  EXPECT_EQ(call_of(object, R"({"z": ")" + std::string(100, '[') + "\"}").calls[0].arguments,
            R"({"d":{"z":")" + std::string(100, '[') + "\"}}");
  // A string that is not ended is none, and its tags are tags.
  EXPECT_EQ(call_of(object, R"({"z": "a</parameter><parameter=e>5</parameter>)").calls[0].arguments,
            R"({"d":"{\"z\": \"a","e":"5"})");
  EXPECT_EQ(parse_tool_calls("<tool_call><function=f><parameter=d>\"a</parameter><parameter=e>5</parameter>", {})
                .calls[0]
                .arguments,
            R"({"d":"\"a","e":"5"})");
}

TEST(ToolCalls, WhatIsCutIsNotComplete) {
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=text>\nrm -r stone\n</parameter>\n</function>\n</tool_call>";
  for (size_t length = call.find('>', 20) + 1; length < call.size(); ++length) {
    const ParsedAnswer cut = parse_tool_calls(call.substr(0, length), {}, true);
    ASSERT_EQ(cut.calls.size(), 1u);
    EXPECT_EQ(cut.calls[0].complete, length >= call.find("</tool_call>") - 1) << length;
    EXPECT_EQ(ordered_json::accept(cut.calls[0].arguments), cut.calls[0].complete) << length;
    const ParsedAnswer ended = parse_tool_calls(call.substr(0, length), {});
    EXPECT_TRUE(ended.calls[0].complete && ordered_json::accept(ended.calls[0].arguments)) << length;
  }
}

TEST(ToolCalls, ADivisionOfTheTextDoesNotMatter) {
  for (const char* text :
       {"<tool_call><function=f><parameter=d>\n{\"a\": \"</parameter>\"}\n</parameter><parameter=e>\"a</parameter>\n"
        "<parameter=g>[\"</parameter>\n</function>\n</tool_call> end",
        "So.\n<tool_call>\n<function=f>\n<parameter=text>\n<parameter=\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function></tool_call> end ",
        "<tool_call>{\"arguments\": \"{\\\"a\\\": [1, 2]}\", \"id\": 5, \"name\": \"f\"}\n<tool_call>{\"name\": \"g\"}",
        "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": \"x\\u00e9\n\"}}, 5]</TOOLCALL> <tool_call>no</tool_call>",
        "<TOOLCALL> \n{\"name\": \"f\", \"arguments\": {\"a\": 1}} after",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call> x"}) {
    const std::vector<std::string> whole = streamed(text, 9999);
    std::string all;
    for (const std::string& piece : whole) all += piece;
    for (size_t size = 1; size < 40; ++size) {
      std::string joined;
      for (const std::string& piece : streamed(text, size)) joined += piece;
      EXPECT_EQ(joined, all) << size;
    }
  }
}

}  // namespace
}  // namespace braid::text
