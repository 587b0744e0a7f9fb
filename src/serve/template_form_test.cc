// What agents send, shaped like Claude Code's and Codex's bodies, against the chat templates of many models: each gives
// a prompt that holds what was said, whatever the template refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "serve/messages.h"
#include "serve/openai.h"
#include "serve/responses.h"
#include "support/data.h"
#include "support/folder.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

// Claude Code: instructions in blocks, tools with and without a description, two calls in a turn, reminders behind
// their results and in user turns of their own.
constexpr const char* kMessages = R"({"max_tokens": 64, "stream": true, "metadata": {"user_id": "u"},
  "thinking": {"type": "enabled", "budget_tokens": 1024},
  "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
             {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
  "tools": [{"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object",
              "properties": {"path": {"type": "string"}}, "required": ["path"]}},
            {"name": "mcp__list", "input_schema": {"type": "object", "properties": {}}},
            {"type": "web_search_20250305", "name": "web_search"}],
  "messages": [
    {"role": "user", "content": [{"type": "text", "text": "a reminder"}, {"type": "text", "text": "the task"}]},
    {"role": "user", "content": "and more of it"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Two files.", "signature": "s"},
      {"type": "text", "text": "Reading."},
      {"type": "tool_use", "id": "toolu_01A", "name": "Read", "input": {"path": "argument a"}},
      {"type": "tool_use", "id": "toolu_01B", "name": "Read", "input": {"path": "argument b"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01B", "content": "result of b"},
      {"type": "tool_result", "tool_use_id": "toolu_01A", "content": [{"type": "text", "text": "result of a"}]},
      {"type": "text", "text": "a later reminder", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "the last task"}]})";

// Codex: a developer's message between instructions and user, reasoning, two calls in a row, hosted tools.
constexpr const char* kResponses = R"({"max_output_tokens": 64, "stream": true, "store": false,
  "instructions": "You are an agent.", "reasoning": {"effort": "high", "summary": "auto"},
  "include": ["reasoning.encrypted_content"], "parallel_tool_calls": true,
  "tools": [{"type": "function", "name": "shell", "strict": false, "parameters": {"type": "object",
             "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}},
            {"type": "function", "name": "plan", "description": null, "parameters": {"type": "object",
             "properties": {"step": {"type": "string"}}}},
            {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}],
  "input": [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a reminder"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the context"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the task"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Two."}]},
    {"type": "function_call", "call_id": "call_a", "name": "shell", "arguments": "{\"command\": [\"cat\", \"argument a\"]}"},
    {"type": "function_call", "call_id": "call_b", "name": "shell", "arguments": "{\"command\": [\"cat\", \"argument b\"]}"},
    {"type": "function_call_output", "call_id": "call_a", "output": "result of a"},
    {"type": "function_call_output", "call_id": "call_b", "output": "result of b"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a later reminder"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the last task"}]}]})";

// A client of chat completions: null contents, instructions in the middle, vLLM's fields.
constexpr const char* kChat = R"({"max_tokens": 64, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1,
  "tools": [{"type": "function", "function": {"name": "read"}}],
  "messages": [
    {"role": "system", "content": "You are an agent."}, {"role": "user", "content": "the task"},
    {"role": "user", "content": [{"type": "text", "text": "a reminder"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_a", "type": "function", "function": {"name": "read", "arguments": "{\"path\": \"argument a\"}"}},
      {"id": "call_b", "type": "function", "function": {"name": "read", "arguments": "{\"path\": \"argument b\"}"}}]},
    {"role": "tool", "tool_call_id": "call_a", "content": "result of a"},
    {"role": "tool", "tool_call_id": "call_b", "content": "result of b"},
    {"role": "system", "content": "a later reminder"}, {"role": "user", "content": "the last task"}]})";

class OtherModel {
 public:
  explicit OtherModel(const std::string& chat_template) {
    for (const auto& file : std::filesystem::directory_iterator(support::shipped_tiny())) {
      if (file.path().filename() == "chat_template.jinja") continue;
      std::filesystem::create_symlink(std::filesystem::absolute(file.path()), folder_.path() / file.path().filename());
    }
    folder_.write("chat_template.jinja", chat_template);
    model_ = std::make_unique<engine::LanguageModel>(
        folder_.path().string(),
        engine::RunnerOptions{.context = 4096, .sequences = 1, .memory = 32 << 20, .threads = 1});
  }
  engine::LanguageModel& model() { return *model_; }
  std::string text(const Asked& asked) { return model_->tokenizer().decode(asked.work.request.prompt, false); }
  std::string chat(const std::string& body) { return text(read_chat(body, *model_, Defaults{})); }
  std::string messages(const std::string& body) { return text(read_messages(body, *model_, Defaults{})); }
  std::string responses(const std::string& body) { return text(read_responses(body, *model_, Defaults{}).asked); }

 private:
  support::Folder folder_;
  std::unique_ptr<engine::LanguageModel> model_;
};

std::string contents_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(AgentBodies, GetAPromptFromEveryTemplate) {
  if (support::fixtures().empty()) GTEST_SKIP() << "BRAID_FIXTURES is not set";
  int templates = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(support::fixtures()) / "templates")) {
    if (file.path().extension() != ".jinja") continue;
    SCOPED_TRACE(file.path().filename());
    ++templates;
    const std::string source = contents_of(file.path());
    OtherModel other(source);
    const auto check = [&](const char* form, const std::string& prompt) {
      SCOPED_TRACE(form);
      for (const char* said : {"You are an agent.", "the task", "a reminder", "a later reminder", "the last task",
                               "argument a", "argument b", "result of a", "result of b"})
        EXPECT_NE(prompt.find(said), prompt.npos) << said << " is not in " << prompt;
      EXPECT_EQ(prompt.find("x-anthropic"), prompt.npos);
    };
    EXPECT_NO_THROW(check("messages", other.messages(kMessages)));
    EXPECT_NO_THROW(check("responses", other.responses(kResponses)));
    EXPECT_NO_THROW(check("chat", other.chat(kChat)));
  }
  EXPECT_GE(templates, 20);
}

constexpr const char* kWithoutInstructions =
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}";
constexpr const char* kEach = "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '|' }}{% endfor %}";

TEST(TemplateForm, FirstInstructionsBecomeTheUsersWhereTheyAreRefused) {
  OtherModel other(std::string(kWithoutInstructions) + kEach);
  const std::string rest = R"({"role": "user", "content": "Hi"}], "max_tokens": 9})";
  EXPECT_EQ(other.chat(R"({"messages": [{"role": "system", "content": "Be brief."}, )" + rest),
            "user:Be brief.\n\nHi|");
  EXPECT_EQ(other.messages(R"({"system": "Be brief.", "messages": [)" + rest), "user:Be brief.\n\nHi|");
  EXPECT_EQ(other.chat(R"({"messages": [)" + rest), "user:Hi|");
}

TEST(TemplateForm, EffortsSetTheVariablesThatTheTemplateReads) {
  OtherModel other(
      "{% for m in messages %}{{ m.content }}{% endfor %}:{{ low_effort is defined and low_effort }}"
      ",{{ medium_effort is defined and medium_effort }}");
  const auto prompt = [&](const std::string& more) {
    return other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}])" + more + "}");
  };
  EXPECT_EQ(prompt(""), "Hi:False,False");
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "low")"), "Hi:True,False");
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "medium")"), "Hi:False,True");
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "high")"), "Hi:False,False");
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "low", "chat_template_kwargs": {"low_effort": false})"), "Hi:False,False");
}

// Only what makes a difference is changed: ids stay as they are where they are not what was refused.
TEST(TemplateForm, CallsArePartedAndKeepTheirIds) {
  OtherModel other(
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ m.tool_call_id }}{% for c in m.tool_calls %}"
      "{% if loop.length > 1 %}{{ raise_exception('one call') }}{% endif %}{{ c.id ~ c.function.name }}"
      "{% endfor %}|{% endfor %}");
  const std::string prompt = other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "user", "content": "you"}, {"role": "assistant", "content": "Well.", "tool_calls": [
      {"id": "id_a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
      {"id": "id_b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "id_b", "content": "B"}, {"role": "tool", "tool_call_id": "id_a", "content": "A"}]})");
  EXPECT_EQ(prompt, "user:Hi|user:you|assistant:Well.id_af|tool:Aid_a|assistant:id_bg|tool:Bid_b|");
}

TEST(TemplateForm, WhatIsNotRefusedStaysAsItIs) {
  OtherModel other(std::string(kWithoutInstructions) +
                   "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ m.tool_call_id }}"
                   "{% for c in m.tool_calls %}{{ c.id ~ c.function.name }}{% endfor %}|{% endfor %}");
  const std::string prompt = other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"}, {"role": "user", "content": "you"}, {"role": "assistant", "content": "Well.",
     "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "A"}]})");
  EXPECT_EQ(prompt, "user:Be brief.\n\nHi|user:you|assistant:Well.af|tool:Aa|");
}

TEST(TemplateForm, InstructionsThatTheTemplateLeavesOutBecomeTheUsers) {
  OtherModel other(
      "{% if messages[0].role == 'system' %}{{ messages[0].content ~ '|' }}{% endif %}"
      "{% for m in messages if m.role != 'system' %}{{ m.role ~ ':' ~ m.content ~ '|' }}{% endfor %}");
  const std::string prompt = other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}, {"role": "developer", "content": "Now."},
    {"role": "user", "content": "Go"}]})");
  EXPECT_EQ(prompt, "Be brief.|user:Hi|assistant:Yes?|user:Now.\n\nGo|");
}

TEST(TemplateForm, ARefusalOfAnotherKindIsTheTemplatesOwn) {
  OtherModel other("{{ raise_exception('never') }}");
  try {
    other.chat(kChat);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("never"), std::string::npos) << e.what();
  }
}

// Nine letters and digits, and the same ones in every turn.
TEST(TemplateForm, IdsAreShortenedAlikeInEveryTurn) {
  OtherModel other(
      "{% for m in messages %}{{ m.content ~ '|' }}{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
      "{{ raise_exception('length 9') }}{% endif %}{{ c.id ~ c.function.name ~ '|' }}{% endfor %}{{ m.tool_call_id "
      "}}{% endfor %}");
  const auto prompt = [&](const char* more) {
    return other.chat(std::string(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_0123456789abcdef", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "call_0123456789abcdef", "content": "A"})") +
                      more + "]}");
  };
  const std::string first = prompt(""), second = prompt(R"(, {"role": "user", "content": "more"})");
  EXPECT_TRUE(second.starts_with(first)) << first << " " << second;
  const std::string id = first.substr(4, 9);
  EXPECT_EQ(first, "Hi||" + id + "f|A|" + id);
}

// What a template holds is what is seen of it: the words of an instruction may stand elsewhere.
TEST(TemplateForm, InstructionsAreLeftOutAlsoWhereAnotherSaysTheSame) {
  OtherModel other(
      "{% if messages[0].role == 'system' %}{{ messages[0].content ~ '|' }}{% endif %}"
      "{% for m in messages if m.role != 'system' %}{{ m.role ~ ':' ~ m.content ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Stop?"}, {"role": "assistant", "content": "Yes."},
    {"role": "system", "content": "Stop"}, {"role": "user", "content": "Go"}]})"),
            "Be brief.|user:Stop?|assistant:Yes.|user:Stop\n\nGo|");
}

TEST(TemplateForm, ASingleLateInstructionIsNotLeftOut) {
  OtherModel other(
      "{% if messages[0].role == 'system' %}{{ messages[0].content ~ '|' }}{% endif %}"
      "{% for m in messages if m.role != 'system' %}{{ m.role ~ ':' ~ m.content ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"}, {"role": "system", "content": "Now."},
    {"role": "user", "content": "Go", "name": "Ann"}]})"),
            "user:Hi|assistant:Yes?|user:Now.\n\nGo|");
}

TEST(TemplateForm, ALoneInstructionOfATemplateWithoutThemBecomesTheUsers) {
  OtherModel other(
      "{% for m in messages if m.role != 'system' %}{{ m.role ~ m.name ~ ':' ~ m.content ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi", "name": "Ann"}]})"),
            "userAnn:Be brief.\n\nHi|");
}

TEST(TemplateForm, ASwitchThatTheTemplateTakesOutOfInstructionsIsNotLeftOut) {
  OtherModel other(
      "{% for m in messages %}{{ m.role ~ ':' }}{{ m.content | replace('/no_think', '') | trim if m.role == 'system' "
      "else m.content }}|{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be /no_think brief."},
    {"role": "user", "content": "Hi"}, {"role": "system", "content": "/no_think"}, {"role": "user", "content": "Go"}]})"),
            "system:Be  brief.|user:Hi|system:|user:Go|");
}

// As Mistral's and Gemma's do it: whatever is neither instructions nor of a tool, by turns.
constexpr const char* kByTurns =
    "{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'system' and m.role != 'tool' and not m.tool_calls "
    "%}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('by turns') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}";
constexpr const char* kStrictlyByTurns =
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] or m.tool_calls or "
    "(m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('by turns') }}{% endif %}{% endfor %}";

TEST(TemplateForm, TurnsAlternateAndInstructionsThatAreTakenStay) {
  OtherModel other(std::string(kByTurns) + kEach);
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"}, {"role": "user", "content": "you"}, {"role": "assistant", "content": "Yes?"},
    {"role": "system", "content": "Now."}, {"role": "user", "content": "Go"}]})"),
            "system:Be brief.|user:Hi\n\nyou|assistant:Yes?|system:Now.|user:Go|");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "system", "content": "Now."}, {"role": "user", "content": "Go"}]})"),
            "user:Hi|system:Now.|assistant:|user:Go|");
}

TEST(TemplateForm, AnEmptyTurnStandsBetweenAResultAndTheUser) {
  OtherModel other(std::string(kByTurns) +
                   "{% for m in messages %}{{ m.role ~ ':' ~ m.content }}{% for c in m.tool_calls %}"
                   "{{ c.function.name }}{% endfor %}|{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "A"}, {"role": "user", "content": "Go"}]})"),
            "user:Hi|assistant:f|tool:A|assistant:|user:Go|");
}

TEST(TemplateForm, InstructionsBetweenTurnsBecomeTheUsersWhereEverythingAlternates) {
  OtherModel other(std::string(kStrictlyByTurns) + kEach);
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "system", "content": "Now."}, {"role": "user", "content": "Go"}]})"),
            "user:Hi\n\nNow.\n\nGo|");
}

TEST(TemplateForm, OnlyTurnsOfNothingButTextAreJoined) {
  OtherModel other(std::string(kByTurns) +
                   "{% for m in messages %}{{ m.role ~ ':' ~ m.reasoning_content ~ m.content ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?", "refusal": null, "annotations": []},
    {"role": "assistant", "content": "Well.", "refusal": null},
    {"role": "assistant", "content": "No.", "reasoning_content": "Hm."}, {"role": "user", "content": "Go"}]})"),
            "user:Hi|assistant:Yes?\n\nWell.|user:|assistant:Hm.No.|user:Go|");
}

constexpr const char* kWithoutTools =
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('no such role') }}{% endif %}{% endfor %}";
constexpr const char* kCallsAndResults = R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "user", "content": "you"}, {"role": "assistant", "content": "Well.", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1, \"y\"]}"}},
      {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "b", "content": "Now do B."}, {"role": "tool", "tool_call_id": "a", "content": "A"},
    {"role": "user", "content": "Go"}, {"role": "assistant", "content": "Done."},
    {"role": "tool", "name": "h", "content": "H"}]})";

TEST(TemplateForm, CallsAndResultsAreToldWhereThereIsNoRoleForThem) {
  const std::string rest =
      "assistant:Well.\n\nCalled f with {\"x\":[1,\"y\"]}\n\nCalled g with {}|"
      "user:Result of f: A\n\nResult of g: Now do B.\n\nGo|assistant:Done.|user:Result of h: H|";
  EXPECT_EQ(OtherModel(std::string(kWithoutTools) + kEach).chat(kCallsAndResults), "user:Hi|user:you|" + rest);
  EXPECT_EQ(OtherModel(std::string(kStrictlyByTurns) + kEach).chat(kCallsAndResults), "user:Hi\n\nyou|" + rest);
}

// Phi 3.5's template does: it writes the roles that it knows, and no others.
TEST(TemplateForm, CallsAndResultsAreToldWhereTheTemplateLeavesThemOut) {
  OtherModel other(
      "{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.role ~ ':' ~ m.content ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(kCallsAndResults),
            "user:Hi|user:you|assistant:Well.\n\nCalled f with {\"x\":[1,\"y\"]}\n\nCalled g with {}|"
            "user:Result of f: A\n\nResult of g: Now do B.\n\nGo|assistant:Done.|user:Result of h: H|");
}

// Granite's and SmolLM3's do that.
TEST(TemplateForm, CallsAloneAreToldWhereTheTemplateLeavesThemOut) {
  OtherModel other(kEach);
  EXPECT_EQ(other.chat(kCallsAndResults),
            "user:Hi|user:you|assistant:Well.\n\nCalled f with {\"x\":[1,\"y\"]}\n\nCalled g with {}|"
            "tool:A|tool:Now do B.|user:Go|assistant:Done.|tool:H|");
}

// As gpt-oss: the first call is all that it writes, and every result is that call's.
TEST(TemplateForm, CallsArePartedWhereTheTemplateWritesTheFirstAlone) {
  OtherModel other(
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content }}"
      "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}|{% endfor %}");
  EXPECT_EQ(other.chat(kCallsAndResults),
            "user:Hi|user:you|assistant:Well.f|tool:A|assistant:g|tool:Now do B.|user:Go|assistant:Done.|tool:H|");
}

// What no change helps against stays as it is: the results here, beside instructions that are moved.
TEST(TemplateForm, WhatCannotBeMendedKeepsNothingElseFromIt) {
  OtherModel other(
      "{% for m in messages if 'Result' in m.content %}{{ raise_exception('no results') }}{% endfor %}"
      "{% for m in messages if m.role == 'user' %}{{ m.role ~ ':' ~ m.content ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "a", "content": "A"}]})"),
            "user:Be brief.\n\nHi|");
}

TEST(TemplateForm, ToolsAreDescribedWhereThatIsMissed) {
  OtherModel other(
      "{% for t in tools %}{% set f = t.function %}{% if f.description is not string or f.parameters is not mapping or "
      "f.parameters.properties is not mapping %}{{ raise_exception('not described') }}{% endif %}"
      "{{ f.name ~ ':' ~ f.description ~ f.parameters | tojson ~ '|' }}{% endfor %}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": [
    {"type": "function", "function": {"name": "f"}},
    {"type": "function", "function": {"name": "g", "description": "G", "parameters": {"type": "object"}}}]})"),
            "f:{\"type\": \"object\", \"properties\": {}}|g:G{\"type\": \"object\", \"properties\": {}}|");
}

TEST(TemplateForm, PartedCallsWithoutIdsAreFollowedByTheirResults) {
  OtherModel other(
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content }}{% for c in m.tool_calls %}"
      "{% if loop.length > 1 %}{{ raise_exception('one call') }}{% endif %}{{ c.function.name }}{% endfor %}|{% endfor "
      "%}");
  EXPECT_EQ(other.chat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"type": "function", "function": {"name": "f", "arguments": "{}"}},
      {"type": "function", "id": "", "function": {"name": "g", "arguments": "{}"}},
      {"type": "function", "id": "c", "function": {"name": "h", "arguments": "{}"}}]},
    {"role": "tool", "content": "F"}, {"role": "tool", "tool_call_id": "c", "content": "H"},
    {"role": "tool", "content": "G"}, {"role": "tool", "tool_call_id": "d", "content": "D"}]})"),
            "user:Hi|assistant:f|tool:F|assistant:g|tool:G|assistant:h|tool:H|tool:D|");
}

}  // namespace
}  // namespace braid::serve
