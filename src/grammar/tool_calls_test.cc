// Calls of functions in every form, against the reader's forms (text/tool_calls.h).
#include "grammar/tool_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_fixture.h"
#include "support/error_of.h"

namespace braid::grammar {
namespace {

std::shared_ptr<const Constraint> calls(const CallOptions& options) {
  const auto schema = nlohmann::ordered_json::parse(R"({"type": "object", "properties": {"city": {"type": "string"},
      "unit": {"type": "string", "enum": ["C", "F"]}, "days": {"$ref": "#/$defs/days"}}, "required": ["city", "days"],
      "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 7}}})");
  return constraint_of([&](Builder& b) { return tool_calls(b, {{"f", schema}, {"g", {}}}, options, "tools"); });
}

const std::string kXml =
    "<tool_call>\n<function=f>\n<parameter=city>\nUlm </b> "
    "\xc3\xa4\n2\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>";
const std::string kXmlEmpty = "<tool_call>\n<function=g>\n</function>\n</tool_call>";

TEST(ToolCallGrammar, XmlForm) {
  const auto one = calls({.form = CallForm::xml, .many = false});
  EXPECT_TRUE(matches(one, kXml));
  EXPECT_TRUE(matches(one, kXmlEmpty));
  EXPECT_FALSE(matches(one, kXml + "\n" + kXmlEmpty));
  for (const char* text : {"Hello", "<tool_call>\n<function=h>\n</function>\n</tool_call>",
                           "<tool_call>\n<function=f>\n</function>\n</tool_call>",
                           "<tool_call>\n<function=f>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n9\n</"
                           "parameter>\n</function>\n</tool_call>",
                           "<tool_call>\n<function=f>\n<parameter=city>\nUlm</parameter>\n</"
                           "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
                           "<tool_call>\n<function=f>\n<parameter=city>\nU\n</parameter>\n<parameter=unit>\nK\n</"
                           "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"})
    EXPECT_FALSE(matches(one, text)) << text;
  const auto many = calls({.form = CallForm::xml});
  EXPECT_TRUE(matches(many, kXml + "\n" + kXmlEmpty + "\n" + kXml));
  EXPECT_FALSE(matches(many, ""));
}

TEST(ToolCallGrammar, OptionalTextIsPlain) {
  const auto schema = nlohmann::ordered_json::parse(R"({"type": "object", "properties": {
      "a": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]}, "b": {"type": ["string", "null"]},
      "c": {"anyOf": [{"enum": ["x"], "type": "string"}, {"type": "null"}]}}})");
  const auto one = constraint_of([&](Builder& b) {
    return tool_calls(b, {{"f", schema}}, {.form = CallForm::xml, .many = false}, "tools");
  });
  const auto with = [](const std::string& name, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=" + name + ">\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(matches(one, with(name, "null")));
  EXPECT_TRUE(matches(one, with("a", "Ulm")));
  EXPECT_FALSE(matches(one, with("a", "Ulm am Rhein")));
  EXPECT_TRUE(matches(one, with("b", "Ulm\n5")));
  EXPECT_TRUE(matches(one, with("c", "x")));
  EXPECT_FALSE(matches(one, with("c", "\"x\"")));
}

std::string call_with(const std::string& value) {
  return "<tool_call>\n<function=f>\n<parameter=d>\n" + value + "\n</parameter>\n</function>\n</tool_call>";
}

std::shared_ptr<const Constraint> call_of(const std::string& parameters) {
  const auto schema = nlohmann::ordered_json::parse(parameters);
  return constraint_of([&](Builder& b) {
    return tool_calls(b, {{"f", schema}}, {.form = CallForm::xml, .many = false}, "tools");
  });
}

TEST(ToolCallGrammar, StringsArePlainTextHoweverTheSchemaSaysSo) {
  const std::string digits = R"({"type": "string", "pattern": "^[0-9]{3}$"})";
  for (
      const std::string& schema :
      {R"({"properties": {"d": )" + digits + R"(}, "required": ["d"]})",
       R"({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"d": )" + digits + R"(}, "required": ["d"]}}})",
       R"({"allOf": [{"properties": {"d": )" + digits + R"(}}], "required": ["d"]})",
       R"({"properties": {"d": {"$ref": "#/$defs/A"}}, "required": ["d"], "$defs": {"A": )" + digits + "}}",
       R"({"properties": {"d": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}, "required": ["d"], "$defs": {"A": )" +
           digits + "}}",
       std::string(R"({"properties": {"d": {"type": ["string"], "pattern": "^[0-9]{3}$"}}, "required": ["d"]})"),
       std::string(R"({"properties": {"d": {"type": "string", "anyOf": [{"pattern": "^[0-9]{3}$"}, {"const": "x"}]}},
                       "required": ["d"]})"),
       std::string(R"({"properties": {"d": {"enum": ["123", "x"]}}, "required": ["d"]})")}) {
    EXPECT_TRUE(matches(call_of(schema), call_with("123"))) << schema;
    EXPECT_FALSE(matches(call_of(schema), call_with("\"123\""))) << schema;
  }
  const std::string either = R"({"properties": {"d": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}})";
  EXPECT_TRUE(matches(call_of(either), call_with("\"123\"")));
  EXPECT_FALSE(matches(call_of(either), call_with("abc")));
}

TEST(ToolCallGrammar, TextHasNoTags) {
  const auto says = [](const std::string& value) {
    return support::error_of([&] { (void)call_of(R"({"properties": {"d": )" + value + "}}"); });
  };
  EXPECT_NE(says(R"({"enum": ["x", "a</parameter>b"]})").find("has a tag"), std::string::npos);
  EXPECT_NE(says(R"({"const": "<parameter=e>"})").find("has a tag"), std::string::npos);
  EXPECT_EQ(says(R"({"const": "a <parameter=e>"})"), "");
  EXPECT_NE(says(R"({"type": "string", "pattern": "^<\\/parameter>\\n<parameter=e>$"})").find("needs a <"),
            std::string::npos);
  const auto free = call_of(R"({"properties": {"d": {"type": "string", "pattern": "^[^a]*$"}}})");
  EXPECT_TRUE(matches(free, call_with("b/>")));
  EXPECT_FALSE(matches(free, call_with("b<")));
  const auto json =
      call_of(R"({"properties": {"d": {"type": "object", "properties": {"z": {"const": "</parameter>"}}}}})");
  EXPECT_TRUE(matches(json, call_with(R"({"z": "</parameter>"})")));
}

TEST(ToolCallGrammar, OptionalTextIsNotMistaken) {
  const auto optional = [](const std::string& text) {
    return call_of(R"({"properties": {"d": {"anyOf": [{"type": "string", )" + text + R"(}, {"type": "null"}]}}})");
  };
  const auto words = optional(R"("enum": ["null", "\"q\"", "</parameter>", "nul"])");
  for (const char* value : {"null", "\"null\"", R"("\"q\"")", "\"</parameter>\"", "nul"})
    EXPECT_TRUE(matches(words, call_with(value))) << value;
  for (const char* value : {"\"q\"", "</parameter>", "\"nul\""})
    EXPECT_FALSE(matches(words, call_with(value))) << value;
  const auto quoted = optional(R"("pattern": "^\"[0-9]{3}\"$")");
  EXPECT_TRUE(matches(quoted, call_with(R"("\"123\"")")));
  EXPECT_FALSE(matches(quoted, call_with("\"123\"")));
  EXPECT_FALSE(matches(optional(R"("maxLength": 3)"), call_with("\"a\"")));
}

TEST(ToolCallGrammar, AnyArguments) {
  const auto schema = nlohmann::ordered_json::parse(R"({"properties": {"d": {"type": "integer"}}, "not": {}})");
  const auto one = [&](CallForm form) {
    return constraint_of([&](Builder& b) {
      return tool_calls(b, {{"f", schema, true}}, {.form = form, .many = false, .text_first = true}, "tools");
    });
  };
  const auto xml = one(CallForm::xml);
  EXPECT_TRUE(matches(xml, "Hello"));
  EXPECT_TRUE(matches(xml, "Hello\n" + call_with("five\n<b>")));
  EXPECT_TRUE(matches(xml, "<tool_call>\n<function=f>\n</function>\n</tool_call>"));
  EXPECT_FALSE(matches(xml, call_with("5") + "\n" + call_with("5")));
  EXPECT_FALSE(matches(xml, call_with("5</function>")));
  EXPECT_FALSE(matches(xml, "<tool_call>\n<function=g>\n</function>\n</tool_call>"));
  const std::string json = R"(<tool_call>
{"name": "f", "arguments": {"x": [1]}}
</tool_call>)";
  EXPECT_TRUE(matches(one(CallForm::json), json));
  EXPECT_FALSE(matches(one(CallForm::json), json + "\n" + json));
}

TEST(ToolCallGrammar, JsonForms) {
  const std::string f = R"({"name": "f", "arguments": {"city": "Ulm", "days": 3}})",
                    g = R"({"name": "g", "arguments": {}})";
  const auto json = calls({.form = CallForm::json});
  EXPECT_TRUE(matches(json, "<tool_call>\n" + f + "\n</tool_call>\n<tool_call>\n" + g + "\n</tool_call>"));
  EXPECT_FALSE(matches(json, R"(<tool_call>
{"name": "f", "arguments": {"city": 1, "days": 3}}
</tool_call>)"));
  EXPECT_FALSE(matches(json, f));
  EXPECT_TRUE(matches(json, "\xff<tool_call>\n" + g + "\n\xff</tool_call>"));  // tags that are tokens
  EXPECT_FALSE(matches(json, "<tool_call>\n" + g + "\n\xff<tool_call>"));
  const auto list = calls({.form = CallForm::list});
  EXPECT_TRUE(matches(list, "<TOOLCALL>[" + f + ", " + g + "]</TOOLCALL>"));
  EXPECT_FALSE(matches(list, "<TOOLCALL>[]</TOOLCALL>"));
  EXPECT_FALSE(matches(calls({.form = CallForm::list, .many = false}), "<TOOLCALL>[" + f + ", " + g + "]</TOOLCALL>"));
}

TEST(ToolCallGrammar, BareForm) {
  const std::string f = R"({"name": "f", "parameters": {"city": "Ulm", "days": 3}})",
                    g = R"({"name": "g", "parameters": {}})";
  const auto required = calls({.form = CallForm::bare});
  EXPECT_TRUE(matches(required, f));
  EXPECT_TRUE(matches(required, g));
  for (const std::string& text : {f + "\n" + g, "So. " + g, std::string("{}"), std::string(),
                                  std::string(R"({"name": "f", "arguments": {"city": "Ulm", "days": 3}})"),
                                  std::string(R"({"name": "f", "parameters": {"city": "Ulm", "days": 8}})")})
    EXPECT_FALSE(matches(required, text)) << text;
  const auto optional = calls({.form = CallForm::bare, .text_first = true});
  for (const std::string& text : {f, "\n " + g, std::string("Hello {x} <b>"), std::string(), "So: " + f})
    EXPECT_TRUE(matches(optional, text)) << text;
  for (const std::string& text : {std::string("{x}"), std::string(" {\"name\": \"h\""), "<|python_tag|>" + f})
    EXPECT_FALSE(Matcher(optional).accept(text)) << text;
  const auto names = constraint_of([&](Builder& b) { return free_but_for_names(b, {"f", "get"}, CallForm::bare); });
  for (const std::string& text :
       {f, " \n" + f, "<|python_tag|>" + f, std::string("Hello {\"name\": \"h\"} \x01"), std::string()})
    EXPECT_TRUE(matches(names, text)) << text;
  for (const char* wrong : {"{\"name\": \"h", " {x", "<|python_tag|>search", "<tool_call>\n{\"name\": \"h"})
    EXPECT_FALSE(Matcher(names).accept(wrong)) << wrong;
  EXPECT_FALSE(Matcher(names).accept(R"({"name": "f", "parameters": {}}; {"name": "h")"));
}

TEST(ToolCallGrammar, TextBeforeOneCall) {
  const auto free = calls({.form = CallForm::xml, .many = false, .text_first = true});
  for (const std::string text : {"", "Hello < world \xc3\xa4 <tool", "So.\n"}) {
    EXPECT_TRUE(matches(free, text)) << text;
    EXPECT_TRUE(matches(free, text + kXml)) << text;
    EXPECT_FALSE(matches(free, text + kXml + "\n" + kXml)) << text;
    EXPECT_FALSE(matches(free, text + "<tool_call> and more")) << text;
  }
}

TEST(ToolCallGrammar, FreeButForNames) {
  const auto free_but_for_names_in = [](CallForm form) {
    return constraint_of([&](Builder& b) { return free_but_for_names(b, {"f", "get_it", "get"}, form); });
  };
  const std::string xml = "<tool_call>\n<function=get>\n<parameter=a>\n</b> \x01 <tool_call> \n</parameter>\n",
                    xml_end = "</function>\n</tool_call>", json = R"(<tool_call>
{"name": "get_it", "arguments": {"a": [1, "<tool_call>"]}})",
                    list = R"(<TOOLCALL>[{"name": "f", "arguments": {}}, {"name": "get", "arguments": {"x": 1}}])";
  for (const CallForm form : {CallForm::xml, CallForm::json, CallForm::list}) {
    const auto one = free_but_for_names_in(form);
    EXPECT_TRUE(one->may_be_cut());
    const std::string call = form == CallForm::xml ? xml + xml_end : json + "\n</tool_call>";
    for (const std::string text : {"", "Hello <tool_cal \r\x01\xc3 \xff<|other|> </tool_call>\xff</think>"}) {
      for (const std::string& said :
           {text, text + call, text + call + text + call + "\n" + list + "</TOOLCALL>" + text})
        EXPECT_TRUE(matches(one, said)) << said;
      const std::string before[] = {text, text + call, text + list};
      for (const std::string& begun : before) {
        for (const char* wrong :
             {"<tool_call>\n<function=h", "<tool_call>\n<function=get>x</function><tool_call>h",
              "\xff<tool_call>\n<function=gets", "<tool_call>\n{\"name\": \"h", "<tool_call> no call",
              "<TOOLCALL>[{\"name\": \"h", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, h"})
          EXPECT_FALSE(Matcher(one).accept(begun + wrong)) << begun + wrong;
      }
      EXPECT_FALSE(matches(one, text + "<tool_call>\n"));
    }
  }
  EXPECT_TRUE(matches(free_but_for_names_in(CallForm::xml), xml));
  EXPECT_FALSE(matches(calls({.form = CallForm::xml, .many = false, .text_first = true}), "\x01"));
}

TEST(ToolCallGrammar, NamesThatTheFormCannotHold) {
  const auto says = [](const std::string& name, const char* schema) {
    return support::error_of([&] {
      (void)constraint_of([&](Builder& b) {
        return tool_calls(b, {{name, nlohmann::ordered_json::parse(schema)}}, {.form = CallForm::xml}, "tools");
      });
    });
  };
  EXPECT_NE(says("a>b", "{}").find("name of a function"), std::string::npos);
  EXPECT_NE(says("", "{}").find("name of a function"), std::string::npos);
  EXPECT_NE(says("f", R"({"properties": {"a>": {}}})").find("name of a parameter"), std::string::npos);
  EXPECT_EQ(says("f", R"({"properties": {"a": {}}})"), "");
}

}  // namespace
}  // namespace braid::grammar
