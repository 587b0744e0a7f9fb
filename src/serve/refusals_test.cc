// Requests that are refused before they reach the worker: which field the error names, on each surface.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "serve/api_error.h"
#include "serve/chat_messages.h"
#include "serve/completions.h"
#include "serve/fields.h"
#include "serve/messages.h"
#include "serve/openai.h"
#include "serve/responses.h"
#include "support/data.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

// The error's param; "none" when there is no error.
std::string param_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status(), 400) << e.what();
    if (e.param() != "tools") {
      EXPECT_NE(std::string(e.what()).find(e.param()), std::string::npos) << e.what();
    }
    return e.param();
  }
  return "none";
}

TEST(Refusals, NameTheFieldThatWasSent) {
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 256, .sequences = 1, .memory = 16 << 20, .threads = 1});
  Defaults defaults;
  const ordered_json turn = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  const auto with = [](ordered_json body, const char* more) {
    body.update(ordered_json::parse(more));
    return body.dump();
  };
  const auto chat = [&](const char* more) {
    return param_of([&] { read_chat(with({{"messages", turn}}, more), model, defaults); });
  };
  const auto completions = [&](const char* more) {
    return param_of([&] { read_completions(with({{"prompt", "Hi"}}, more), model, defaults); });
  };
  const auto messages = [&](const char* more) {
    return param_of([&] { read_messages(with({{"messages", turn}, {"max_tokens", 4}}, more), model, defaults); });
  };
  const auto responses = [&](const char* more) {
    return param_of([&] { read_responses(with({{"input", "Hi"}}, more), model, defaults); });
  };
  EXPECT_EQ(chat(R"({"json_schema": {"type": "odd"}})"), "json_schema");
  EXPECT_EQ(chat(R"({"json_schema": {"type": "integer"}, "grammar": ""})"), "none");
  EXPECT_EQ(completions(R"({"grammar": "root ::= [0-9]"})"), "grammar");
  EXPECT_EQ(completions(R"({"structured_outputs": {"regex": "("}})"), "structured_outputs");
  EXPECT_EQ(messages(R"({"output_config": {"format": {"type": "json_schema", "schema": {"type": "odd"}}}})"),
            "output_config.format");
  EXPECT_EQ(messages(R"({"output_format": {"type": "text"}})"), "output_format");
  EXPECT_EQ(messages(R"({"thinking": true})"), "thinking");
  EXPECT_EQ(chat(R"({"min_tokens": 9, "max_tokens": 8})"), "min_tokens");
  EXPECT_EQ(chat(R"({"min_tokens": 8, "max_tokens": 8})"), "none");
  EXPECT_EQ(chat(R"({"min_tokens": 1000})"), "none");             // no limit but the context
  EXPECT_EQ(completions(R"({"min_tokens": 17})"), "min_tokens");  // 16 without max_tokens
  EXPECT_EQ(messages(R"({"min_tokens": 5})"), "min_tokens");
  EXPECT_EQ(responses(R"({"min_tokens": 5, "max_output_tokens": 4})"), "min_tokens");
  EXPECT_EQ(responses(R"({"text": {"format": {"type": "json_schema", "schema": {"type": "odd"}}}})"), "text.format");
  EXPECT_EQ(responses(R"({"tool_choice": "some"})"), "tool_choice");
  EXPECT_EQ(responses(R"({"text": 5})"), "text");
  EXPECT_EQ(responses(R"({"text": {"verbosity": "low"}})"), "none");
  EXPECT_EQ(responses(R"({"input": []})"), "input");
  EXPECT_EQ(responses(R"({"input": [], "instructions": "Be brief."})"), "input");
  EXPECT_EQ(responses(R"({"input": [{"type": "web_search_call"}]})"), "input");
}

TEST(Refusals, SayWhatWasSent) {
  const ordered_json body = ordered_json::parse(R"({"top": 7, "part": 1.5, "word": 5, "list": [1], "object": {"a": 1},
      "long": "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890", "off": "no"})");
  const Fields f(body);
  const auto said = [](auto&& read) -> std::string {
    try {
      read();
    } catch (const ApiError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(said([&] { (void)f.number("top", 0, 1); }), "'top' is not a number from 0 to 1; got 7");
  EXPECT_EQ(said([&] { (void)f.integer("list", 0, 1); }), "'list' is not a number from 0 to 1; got a list");
  EXPECT_EQ(said([&] { (void)f.integer("part", 0, 2); }), "'part' is not a whole number; got 1.5");
  EXPECT_EQ(said([&] { (void)f.boolean("off"); }), "'off' is not true or false; got \"no\"");
  EXPECT_EQ(said([&] { (void)f.text("object"); }), "'object' is not text; got an object");
  EXPECT_EQ(said([&] { f.only("word", nullptr); }), "'word' is not available here, except as null; got 5");
  EXPECT_EQ(said([&] { (void)f.boolean("long"); }),
            "'long' is not true or false; got \"0123456789012345678901234567890123456789012345678901234567890123456789"
            "012345678...");
  EXPECT_EQ(said([&] { (void)f.stops("word"); }),
            "'word' is not a text, or a list of texts, of 1 to 1024 bytes; got 5");
}

TEST(Refusals, SayWhatIsWrongWithMessages) {
  const auto said = [](const char* body) -> std::string {
    const ordered_json json = ordered_json::parse(body);
    try {
      (void)message_list(Fields(json));
    } catch (const ApiError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(said("{}"), "there is no 'messages'");
  EXPECT_EQ(said(R"({"messages": []})"), "'messages' is empty");
  EXPECT_EQ(said(R"({"messages": "Hi"})"), "'messages' is not a list of messages");
  EXPECT_EQ(said(R"({"messages": [1]})"), "");
}

// 64 characters for OpenAI, 128 for Anthropic.
TEST(Refusals, NamesOfToolsAreAsLongAsTheirInterfaceAllows) {
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 2048, .sequences = 1, .memory = 16 << 20, .threads = 1});
  Defaults defaults;
  const auto with = [](size_t length) { return std::string(length, 'n'); };
  const auto chat = [&](size_t length) {
    const ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                               {"tools", {{{"type", "function"}, {"function", {{"name", with(length)}}}}}}};
    return param_of([&] { read_chat(body.dump(), model, defaults); });
  };
  const auto messages = [&](size_t length) {
    const ordered_json schema = {{"type", "object"}};
    const ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                               {"max_tokens", 4},
                               {"tools", {{{"name", with(length)}, {"input_schema", schema}}}}};
    return param_of([&] { read_messages(body.dump(), model, defaults); });
  };
  EXPECT_EQ(chat(64), "none");
  EXPECT_EQ(chat(65), "tools");
  EXPECT_EQ(messages(128), "none");
  EXPECT_EQ(messages(129), "tools");
}

}  // namespace
}  // namespace braid::serve
