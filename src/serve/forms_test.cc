// Requests as clients write them and answers as each surface writes them, without the worker: prompts that are
// rendered, what is demanded of calls, and how answers end.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/constraint.h"
#include "serve/api_error.h"
#include "serve/chat_answer.h"
#include "serve/messages.h"
#include "serve/openai.h"
#include "serve/responses.h"
#include "support/data.h"
#include "support/folder.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

constexpr const char* kCut = "<tool_call>\n<function=f>\n<parameter=a>\none";
constexpr const char* kWhole = "<tool_call>\n<function=f>\n<parameter=a>\none\n</parameter>\n</function>\n</tool_call>";

class Forms : public testing::Test {
 protected:
  Forms() : model_(support::shipped_tiny(), {.context = 2048, .sequences = 1, .memory = 16 << 20, .threads = 1}) {}

  static ordered_json with(ordered_json body, const ordered_json& more) {
    body.update(more);
    return body;
  }
  static ordered_json chat_body(const ordered_json& more = ordered_json::object()) {
    return with({{"messages", {{{"role", "user"}, {"content", "Hi"}}}}}, more);
  }
  static ordered_json function(const char* type = "string") {
    const ordered_json schema = {{"type", "object"}, {"properties", {{"a", {{"type", type}}}}}, {"required", {"a"}}};
    return {{"name", "f"}, {"parameters", schema}};
  }
  static ordered_json chat_tools(const ordered_json& f) {
    return ordered_json::array({{{"type", "function"}, {"function", f}}});
  }
  Asked chat(const ordered_json& body) { return read_chat(body.dump(), model_, defaults_); }
  Asked messages(const ordered_json& more) {
    return read_messages(with(chat_body({{"max_tokens", 64}}), more).dump(), model_, defaults_);
  }
  ResponsesRequest responses(const ordered_json& more) {
    return read_responses(with({{"input", "Hi"}}, more).dump(), model_, defaults_);
  }
  std::string prompt(const Asked& asked) { return model_.tokenizer().decode(asked.work.request.prompt, false); }
  std::string history(const ordered_json& turns) { return prompt(chat({{"messages", turns}})); }

  engine::LanguageModel model_;
  Defaults defaults_{};
};

// Models whose template has no switch for thinking, and models that open <think> themselves, as Qwen3 does.
struct OtherTemplate {
  explicit OtherTemplate(const std::string& ending) {
    for (const auto& file : std::filesystem::directory_iterator(support::shipped_tiny())) {
      if (file.path().filename() != "chat_template.jinja")
        std::filesystem::create_symlink(std::filesystem::absolute(file.path()), folder.path() / file.path().filename());
    }
    folder.write("chat_template.jinja",
                 "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: " + ending);
    model.emplace(folder.path(),
                  engine::RunnerOptions{.context = 2048, .sequences = 1, .memory = 16 << 20, .threads = 1});
  }
  Asked chat(const ordered_json& more) {
    ordered_json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
    body.update(more);
    return read_chat(body.dump(), *model, Defaults{});
  }
  const support::Folder folder{};
  std::optional<engine::LanguageModel> model{};
};

TEST(OtherTemplates, AgentsMayAskForThinkingWhereThereIsNoSwitch) {
  OtherTemplate plain("");
  for (const ordered_json& more :
       {ordered_json{{"reasoning_effort", "high"}}, ordered_json{{"reasoning_effort", "none"}},
        ordered_json{{"chat_template_kwargs", {{"enable_thinking", true}}}},
        ordered_json{{"thinking_token_budget", 16}}}) {
    const Asked asked = plain.chat(more);
    EXPECT_EQ(plain.model->tokenizer().decode(asked.work.request.prompt, false), "user: Hi\nassistant: ") << more;
    EXPECT_EQ(asked.work.request.generate.thinking, engine::Thinking::none);
    EXPECT_EQ(asked.work.request.generate.budget.tokens, -1);
  }
  const ordered_json messages = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                 {"max_tokens", 64},
                                 {"thinking", {{"type", "enabled"}, {"budget_tokens", 16}}}};
  EXPECT_NO_THROW(read_messages(messages.dump(), *plain.model, Defaults{}));
}

TEST(OtherTemplates, AFormWaitsForThinkingThatTheModelOpens) {
  OtherTemplate qwen(
      "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}");
  const ordered_json form = {{"guided_choice", {"yes", "no"}}, {"thinking_token_budget", 16}, {"max_tokens", 64}};
  const Asked on = qwen.chat(form);
  EXPECT_EQ(on.work.request.generate.thinking, engine::Thinking::may_open);
  EXPECT_EQ(on.work.request.generate.budget.tokens, 16);
  ordered_json silent = form;
  silent["chat_template_kwargs"] = {{"enable_thinking", false}};
  const Asked off = qwen.chat(silent);
  EXPECT_EQ(off.work.request.generate.thinking, engine::Thinking::none);
  EXPECT_EQ(off.work.request.generate.budget.tokens, -1);
}

Outcome ended(engine::Finish finish, const char* stop = "") {
  Outcome out;
  out.generated.finish = finish;
  out.stopped = *stop != '\0';
  out.stop = stop;
  return out;
}
const Outcome kStopped = ended(engine::Finish::stop), kLength = ended(engine::Finish::length),
              kByText = ended(engine::Finish::cancelled, "two");

// The JSON of all events.
std::vector<ordered_json> events_of(const std::string& stream) {
  std::vector<ordered_json> out;
  for (size_t at = 0; (at = stream.find("data: ", at)) != stream.npos;) {
    const size_t end = stream.find("\n\n", at);
    const std::string text = stream.substr(at + 6, end - at - 6);
    if (text != "[DONE]") out.push_back(ordered_json::parse(text));
    at = end;
  }
  return out;
}

std::vector<ordered_json> streamed(AnswerStream& form, const Said& said, const Outcome& outcome) {
  std::string out = form.begin() + form.news(0, {.admitted = true});
  for (const char ch : said.reasoning) out += form.news(0, {.text = {std::string(1, ch), ""}});
  for (const char ch : said.content) out += form.news(0, {.text = {"", std::string(1, ch)}});
  out += form.end(0, outcome);
  return events_of(out + form.finish({&outcome}));
}

// A chat answer, whole; its stream must add up to the same.
ordered_json chat_choice(const Asked& asked, const Said& said, const Outcome& outcome, engine::LanguageModel& model) {
  ordered_json choice = chat_json(asked, {said}, {&outcome}, model)["choices"][0];
  std::string content, reasoning, arguments;
  ordered_json finish;
  for (const ordered_json& chunk : streamed(*chat_stream(asked, model), said, outcome)) {
    const ordered_json& one = chunk["choices"][0];
    content += one["delta"].value("content", "");
    reasoning += one["delta"].value(asked.reasoning_field, "");
    for (const ordered_json& call : one["delta"].value("tool_calls", ordered_json::array()))
      arguments += call["function"]["arguments"];
    finish = one["finish_reason"];
  }
  const ordered_json& message = choice["message"];
  EXPECT_EQ(content, message["content"].is_null() ? "" : message["content"]);
  EXPECT_EQ(reasoning, message.value(asked.reasoning_field, ""));
  EXPECT_EQ(finish, choice["finish_reason"]);
  std::string whole;
  for (const ordered_json& call : message.value("tool_calls", ordered_json::array()))
    whole += call["function"]["arguments"];
  EXPECT_EQ(arguments, whole);
  return choice;
}

// What a block form makes of an answer.
ordered_json blocks(BlockStream& form, const Said& said, const Outcome& outcome) {
  (void)streamed(form, said, outcome);
  return form.whole({&outcome});
}

TEST_F(Forms, ReasoningIsTheContentOfAnAnswerThatHasNone) {
  const ordered_json option = {{"force_nonempty_content", true}}, off = {{"force_nonempty_content", false}};
  const auto content = [&](const ordered_json& more, const Said& said, const Outcome& outcome) {
    return chat_choice(chat(chat_body(more)), said, outcome, model_)["message"]["content"];
  };
  EXPECT_EQ(content(option, {"hm", ""}, kLength), "hm");
  EXPECT_EQ(content(option, {"hm", ""}, kStopped), "hm");
  EXPECT_EQ(content(option, {"hm", "\n"}, kStopped), "\nhm");
  EXPECT_EQ(content(option, {"hm", "42"}, kStopped), "42");
  EXPECT_EQ(content(option, {"", ""}, kStopped), "");
  EXPECT_EQ(content(ordered_json::object(), {"hm", ""}, kLength), "");
  EXPECT_EQ(content({{"chat_template_kwargs", option}}, {"hm", ""}, kLength), "hm");
  EXPECT_EQ(content({{"chat_template_kwargs", off}, {"force_nonempty_content", true}}, {"hm", ""}, kLength), "");
  const ordered_json tools = chat_tools(function());
  EXPECT_EQ(content(with(option, {{"tools", tools}}), {"hm", kWhole}, kStopped), nullptr);
  EXPECT_EQ(content(with(option, {{"tools", tools}}), {"hm", "\n"}, kStopped), "\nhm");
  EXPECT_THROW(chat(chat_body({{"force_nonempty_content", "yes"}})), ApiError);

  const ordered_json message = blocks(*messages_stream(messages(option)), {"hm", ""}, kLength);
  ASSERT_EQ(message["content"].size(), 2u) << message;
  EXPECT_EQ(message["content"][1], (ordered_json{{"type", "text"}, {"text", "hm"}}));
  const ordered_json response = blocks(*responses_stream(responses(option), model_), {"hm", ""}, kStopped);
  ASSERT_EQ(response["output"].size(), 2u) << response;
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "hm");
  EXPECT_EQ(response["output"][1]["status"], "completed");
  EXPECT_EQ(blocks(*messages_stream(messages(off)), {"hm", ""}, kLength)["content"].size(), 1u);
}

TEST_F(Forms, ACallThatIsNotCompleteIsNoReasonToEnd) {
  const std::string two = std::string(kWhole) + "\n" + kCut;
  const auto finish = [&](const std::string& content, const Outcome& outcome) {
    const Asked asked = chat(chat_body({{"tools", chat_tools(function())}}));
    return chat_choice(asked, {"", content}, outcome, model_)["finish_reason"];
  };
  EXPECT_EQ(finish(kCut, kByText), "stop");
  EXPECT_EQ(finish(two, kByText), "stop");
  EXPECT_EQ(finish(kWhole, kByText), "tool_calls");
  EXPECT_EQ(finish(kWhole, kStopped), "tool_calls");
  EXPECT_EQ(finish(kCut, kLength), "length");
  EXPECT_EQ(finish("{", kByText), "stop");

  const ordered_json own = {{{"name", "f"}, {"input_schema", {{"type", "object"}}}}};
  const auto reason = [&](const std::string& content, const Outcome& outcome) {
    return blocks(*messages_stream(messages({{"tools", own}})), {"", content}, outcome)["stop_reason"];
  };
  EXPECT_EQ(reason(kCut, kByText), "stop_sequence");
  EXPECT_EQ(reason(kWhole, kStopped), "tool_use");
  // JSON that ends inside a value, by the model's own end.
  EXPECT_EQ(reason("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"o", kStopped), "end_turn");

  ordered_json flat = function();
  flat["type"] = "function";
  const auto response = [&](const std::string& content, const Outcome& outcome) {
    return blocks(*responses_stream(responses({{"tools", {flat}}}), model_), {"", content}, outcome);
  };
  const ordered_json cut = response(kCut, kByText), text = response("one", kByText), length = response(kCut, kLength);
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
  EXPECT_EQ(cut["status"], "completed");
  EXPECT_EQ(response(kWhole, kByText)["output"][0]["status"], "completed");
  EXPECT_EQ(text["output"][0]["status"], "completed");  // a stop text is an end that was asked for
  EXPECT_EQ(length["output"][0]["status"], "incomplete");
  EXPECT_EQ(length["status"], "incomplete");
}

TEST_F(Forms, ReasoningOfHistoryHasTwoNames) {
  const ordered_json user = {{"role", "user"}, {"content", "Hi"}};
  const auto of = [&](const ordered_json& more) {
    return history({user, with({{"role", "assistant"}, {"content", "42"}}, more), user});
  };
  const std::string want = of({{"reasoning_content", "so"}});
  EXPECT_NE(want.find("<think>\nso\n</think>"), want.npos) << want;
  EXPECT_EQ(of({{"reasoning", "so"}}), want);
  EXPECT_EQ(of({{"reasoning", "so"}, {"reasoning_content", nullptr}}), want);
  EXPECT_EQ(of({{"reasoning_content", ""}, {"reasoning", "so"}}), want);
  EXPECT_EQ(of({{"reasoning", "no"}, {"reasoning_content", "so"}}), want);
  EXPECT_EQ(of({{"reasoning", nullptr}, {"reasoning_content", "so"}}), want);
  EXPECT_EQ(of({{"reasoning", ""}, {"reasoning_content", nullptr}}), of(ordered_json::object()));
}

TEST_F(Forms, NullIsNoContent) {
  const auto of = [&](const ordered_json& content) {
    const ordered_json user = {{"role", "user"}, {"content", "Hi"}};
    return prompt(messages({{"messages", {user, {{"role", "assistant"}, {"content", content}}, user}}}));
  };
  EXPECT_EQ(of(nullptr), of(""));
  EXPECT_THROW(of(5), ApiError);
}

TEST_F(Forms, ArgumentsThatAreNoObjectAreShownAsTheyAre) {
  const ordered_json user = {{"role", "user"}, {"content", "Hi"}};
  const auto of = [&](const ordered_json& arguments) {
    const ordered_json call = {{"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}};
    return history({user, {{"role", "assistant"}, {"tool_calls", {call}}}, user});
  };
  for (const char* text : {"null", "5", "[1]", "true", "\"x\"", "{\"a\": "}) {
    const std::string got = of(text);
    EXPECT_NE(got.find(std::string("<parameter=arguments>\n") + text + "\n"), got.npos) << got;
  }
  EXPECT_NE(of("{\"a\": 1}").find("<parameter=a>\n1\n"), std::string::npos);
  EXPECT_THROW(of(ordered_json::array({1})), ApiError);
}

// Calls of custom tools, and what answers them, are skipped as their tools are.
TEST_F(Forms, CallsOfToolsThatAreSkipped) {
  const ordered_json user = {{"role", "user"}, {"content", "Hi"}};
  const ordered_json custom = {{"id", "c1"}, {"type", "custom"}, {"custom", {{"name", "patch"}, {"input", "+"}}}};
  const ordered_json odd = {{"id", "c2"}};
  const ordered_json good = {{"id", "c3"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  const auto result = [](const char* id) {
    return ordered_json{{"role", "tool"}, {"tool_call_id", id}, {"content", "done"}};
  };
  const auto turn = [](const ordered_json& calls) {
    return ordered_json{{"role", "assistant"}, {"content", "I patch."}, {"tool_calls", calls}};
  };
  const ordered_json plain = {{"role", "assistant"}, {"content", "I patch."}};
  EXPECT_EQ(history({user, turn(ordered_json::array({custom})), result("c1"), user}), history({user, plain, user}));
  EXPECT_EQ(
      history({user, turn(ordered_json::array({custom, good, odd})), result("c1"), result("c3"), result("c2"), user}),
      history({user, turn(ordered_json::array({good})), result("c3"), user}));
  const Asked asked = chat({{"messages", {user, turn(ordered_json::array({custom, odd})), user}}});
  EXPECT_EQ(asked.skipped_tools, (std::set<std::string>{"custom", "unknown"}));
  EXPECT_THROW(history({user, turn(ordered_json::array({5})), user}), ApiError);
}

TEST_F(Forms, AChoiceOfAToolThatIsSkippedIsFree) {
  const ordered_json patch = {{"type", "custom"}, {"custom", {{"name", "patch"}}}};
  ordered_json tools = chat_tools(function("integer"));
  tools.push_back(patch);
  const auto demands = [&](const Asked& asked) {  // a call, at once
    const auto& constraint = asked.work.request.generate.constraint;
    return constraint && !grammar::Matcher(constraint).accept("text");
  };
  const ordered_json named = {{"type", "function"}, {"function", {{"name", "f"}}}};
  EXPECT_TRUE(demands(chat(chat_body({{"tools", tools}, {"tool_choice", named}}))));
  EXPECT_FALSE(demands(chat(chat_body({{"tools", tools}, {"tool_choice", patch}}))));
  EXPECT_THROW(chat(chat_body({{"tools", tools}, {"tool_choice", {{"type", "other"}}}})), ApiError);

  ordered_json flat = function();
  flat["type"] = "function";
  const ordered_json hosted = {flat, {{"type", "web_search"}}, {{"type", "custom"}, {"name", "patch"}}};
  const auto responses_choice = [&](const ordered_json& choice) {
    return demands(responses({{"tools", hosted}, {"tool_choice", choice}}).asked);
  };
  EXPECT_TRUE(responses_choice({{"type", "function"}, {"name", "f"}}));
  EXPECT_FALSE(responses_choice({{"type", "web_search"}}));
  EXPECT_FALSE(responses_choice({{"type", "custom"}, {"name", "patch"}}));
  EXPECT_THROW(responses_choice({{"type", "function"}, {"name", "patch"}}), ApiError);

  const ordered_json schema = {{"type", "object"}};
  const ordered_json anthropic = {{{"name", "f"}, {"input_schema", schema}},
                                  {{"type", "web_search_20250305"}, {"name", "web_search"}}};
  const auto messages_choice = [&](const char* name) {
    return demands(messages({{"tools", anthropic}, {"tool_choice", {{"type", "tool"}, {"name", name}}}}));
  };
  EXPECT_TRUE(messages_choice("f"));
  EXPECT_FALSE(messages_choice("web_search"));
  EXPECT_THROW(messages_choice("other"), ApiError);
}

TEST_F(Forms, StrictToolsHaveTheirArgumentsEnforced) {
  const auto accepts = [&](bool strict, const std::string& value) {
    ordered_json f = function("integer");
    f["strict"] = strict;
    const Asked asked = chat(chat_body({{"tools", chat_tools(f)}, {"reasoning_effort", "none"}}));
    grammar::Matcher matcher(asked.work.request.generate.constraint);
    return matcher.accept("A text, then <tool_call>\n<function=f>\n<parameter=a>\n" + value +
                          "\n</parameter>\n</function>\n</tool_call>") &&
           matcher.complete();
  };
  EXPECT_TRUE(accepts(true, "5"));
  EXPECT_FALSE(accepts(true, "five"));
  EXPECT_TRUE(accepts(false, "five"));
  // Several calls, and text alone.
  ordered_json f = function("integer");
  f["strict"] = true;
  const Asked asked = chat(chat_body({{"tools", chat_tools(f)}, {"reasoning_effort", "none"}}));
  const std::string call = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
  for (const std::string& text : {std::string("Only text"), call, call + "\n" + call}) {
    grammar::Matcher matcher(asked.work.request.generate.constraint);
    EXPECT_TRUE(matcher.accept(text) && matcher.complete()) << text;
  }
  const ordered_json own = {{"name", "f"}, {"input_schema", f["parameters"]}, {"strict", true}};
  grammar::Matcher matcher(messages({{"tools", {own}}}).work.request.generate.constraint);
  EXPECT_TRUE(matcher.accept(call));
  grammar::Matcher other(messages({{"tools", {own}}}).work.request.generate.constraint);
  EXPECT_FALSE(other.accept("<tool_call>\n<function=f>\n<parameter=a>\none"));
  f["parameters"]["not"] = ordered_json::object();
  EXPECT_THROW(chat(chat_body({{"tools", chat_tools(f)}})), ApiError);
}

// Thinking as each surface asks for it, as the prompt shows it, and its budget.
// The template ends in <think></think>: a newline behind it is the model's, but where a form is demanded.
TEST_F(Forms, NewlinesOfAFormAreItsOwn) {
  const ordered_json quiet = {{"reasoning_effort", "none"}};
  EXPECT_TRUE(chat(chat_body(quiet)).work.follows_think);
  EXPECT_FALSE(chat(chat_body(with(quiet, {{"guided_regex", "\n\n[a-z]{3}"}}))).work.follows_think);
  EXPECT_FALSE(chat(chat_body()).work.follows_think);
}

TEST_F(Forms, ReasoningItemsWithoutTextSayNothing) {
  const auto item = [](const char* text) {
    return ordered_json{{"type", "reasoning"}, {"summary", {{{"type", "summary_text"}, {"text", text}}}}};
  };
  const ordered_json empty = {{"type", "reasoning"}, {"summary", ordered_json::array()}, {"encrypted_content", "x"}},
                     hi = {{"role", "user"}, {"content", "Hi"}}, yes = {{"role", "assistant"}, {"content", "Yes"}};
  const auto said = [&](const ordered_json& items) { return prompt(responses({{"input", items}}).asked); };
  EXPECT_EQ(said({hi, item("a"), empty, item("b"), empty, yes, hi}), said({hi, item("a"), item("b"), yes, hi}));
  EXPECT_EQ(said({hi, empty, yes, hi}), said({hi, yes, hi}));
  EXPECT_EQ(said({hi, empty}), said(ordered_json::array({hi})));
}

// Text that comes together with an error is shown before it.
TEST_F(Forms, WhatCameBeforeAnErrorIsTold) {
  const Reply::News news{.text = {"", "Hello"}, .admitted = true, .started = true, .done = true};
  Outcome outcome;
  outcome.error = "broken";
  const auto in_order = [&](AnswerStream& form, const std::vector<std::string>& parts) {
    const std::string all = form.begin() + told(form, 0, news, outcome);
    size_t at = 0;
    for (const std::string& part : parts) {
      const size_t here = all.find(part, at);
      ASSERT_NE(here, std::string::npos) << part << " in\n" << all;
      at = here + part.size();
    }
  };
  const ordered_json streams = {{"stream", true}};
  in_order(*messages_stream(messages(streams)),
           {"message_start", "content_block_start", "Hello", "event: error", "broken"});
  in_order(*responses_stream(responses(streams), model_),
           {"response.created", "Hello", "response.output_item.done", "response.failed", "broken"});
  in_order(*chat_stream(chat(chat_body(streams)), model_), {"Hello", "broken", "[DONE]"});
}

TEST_F(Forms, ThinkingIsWhatThePromptSays) {
  const auto thinks = [&](const Asked& asked) {
    const std::string text = prompt(asked);
    const bool on = text.ends_with("<|im_start|>assistant\n<think>\n");
    EXPECT_TRUE(on || text.ends_with("<|im_start|>assistant\n<think></think>")) << text;
    EXPECT_EQ(asked.work.request.generate.thinking == engine::Thinking::open, on);
    return on;
  };
  const ordered_json kwargs_on = {{"enable_thinking", true}}, kwargs_off = {{"enable_thinking", false}};
  EXPECT_TRUE(thinks(chat(chat_body())));
  EXPECT_TRUE(thinks(chat(chat_body({{"reasoning_effort", "high"}}))));
  EXPECT_FALSE(thinks(chat(chat_body({{"reasoning_effort", "none"}}))));
  EXPECT_FALSE(thinks(chat(chat_body({{"reasoning_effort", "high"}, {"chat_template_kwargs", kwargs_off}}))));
  EXPECT_TRUE(thinks(chat(chat_body({{"reasoning_effort", "none"}, {"chat_template_kwargs", kwargs_on}}))));
  const ordered_json effort_none = {{"reasoning_effort", "none"}}, effort_high = {{"reasoning_effort", "high"}};
  EXPECT_FALSE(thinks(chat(chat_body({{"chat_template_kwargs", effort_none}}))));
  EXPECT_FALSE(thinks(chat(chat_body({{"reasoning_effort", "high"}, {"chat_template_kwargs", effort_none}}))));
  EXPECT_TRUE(thinks(chat(chat_body({{"reasoning_effort", "none"}, {"chat_template_kwargs", effort_high}}))));
  EXPECT_FALSE(thinks(chat(chat_body({{"chat_template_kwargs", with(effort_high, kwargs_off)}}))));
  EXPECT_TRUE(thinks(responses({{"reasoning", {{"effort", "low"}}}}).asked));
  EXPECT_FALSE(thinks(responses({{"reasoning", {{"effort", "none"}}}}).asked));
  EXPECT_TRUE(thinks(responses({{"reasoning", {{"effort", "none"}}}, {"chat_template_kwargs", kwargs_on}}).asked));
  const ordered_json enabled = {{"type", "enabled"}, {"budget_tokens", 16}};
  EXPECT_FALSE(thinks(messages(ordered_json::object())));
  EXPECT_FALSE(thinks(messages({{"thinking", {{"type", "disabled"}}}})));
  EXPECT_TRUE(thinks(messages({{"thinking", {{"type", "adaptive"}}}})));
  EXPECT_TRUE(thinks(messages({{"thinking", enabled}})));
  EXPECT_FALSE(thinks(messages({{"thinking", enabled}, {"chat_template_kwargs", kwargs_off}})));

  const auto budget = [](const Asked& asked) { return asked.work.request.generate.budget.tokens; };
  EXPECT_EQ(budget(messages({{"thinking", enabled}})), 16);
  EXPECT_EQ(budget(messages({{"thinking", {{"type", "enabled"}, {"budget_tokens", 1000}}}})), 42);  // of 64: 48 and 6
  EXPECT_EQ(budget(chat(chat_body({{"thinking_token_budget", 5}}))), 5);
  EXPECT_EQ(budget(chat(chat_body({{"thinking_token_budget", 5}, {"reasoning_effort", "none"}}))), -1);
  defaults_.thinking_budget = 7;
  EXPECT_EQ(budget(chat(chat_body())), 7);
  EXPECT_EQ(budget(chat(chat_body({{"thinking_token_budget", -1}}))), -1);
}

}  // namespace
}  // namespace braid::serve
