// Conversations of many turns through the server's own rendering and the scheduler: how many tokens of each turn are
// read, with thinking, tools, and clients that send the thinking back or drop it; the same after a restart.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/fingerprint.h"
#include "engine/reasoning.h"
#include "serve/api_error.h"
#include "serve/chat_answer.h"
#include "serve/openai.h"
#include "support/data.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

constexpr int64_t kChunk = 64;

// A server without HTTP, and what it has read since its cache was empty.
struct Engine {
  engine::LanguageModel model{
      support::shipped_tiny(),
      {.numerics = Numerics::serving(DType::f32), .sequences = 1, .memory = 256 << 20, .chunk = kChunk, .threads = 1}};
  engine::Scheduler scheduler{model.runner()};
};

struct Turn {
  ordered_json message{};  // of the assistant
  int64_t prompt = 0, read = 0;
  Tokens processed{};
};

Turn ask(Engine& e, const ordered_json& body) {
  Defaults defaults;
  defaults.model = "tiny";
  Asked asked = read_chat(body.dump(), e.model, defaults);
  Turn turn;
  engine::Request request = asked.work.request;
  turn.processed = request.prompt;
  turn.prompt = std::ssize(request.prompt);
  request.on_end = [&](engine::Generated out, int64_t cached) {
    turn.read = turn.prompt - cached;
    EXPECT_EQ(out.timings.prompt_tokens, turn.read);
    turn.processed.insert(turn.processed.end(), out.ids.begin(), out.ids.end());
    turn.processed.pop_back();  // sampled but not read
    text::StreamDecoder decoder(e.model.tokenizer(), false);
    engine::ReasoningSplitter splitter(asked.work.thinking);
    std::string text;
    for (const int32_t id : out.ids) text += e.model.is_silent(id) ? "" : decoder.push(id);
    auto parts = splitter.push(text + decoder.finish());
    const auto rest = splitter.finish();
    const Said said{parts.reasoning + rest.reasoning, parts.content + rest.content};
    Outcome outcome;
    outcome.generated = std::move(out);
    turn.message = chat_json(asked, {said}, {&outcome}, e.model)["choices"][0]["message"];
  };
  e.scheduler.submit(std::move(request));
  while (!e.scheduler.idle()) {
    e.scheduler.pass();
    const engine::MemoryUse use = e.scheduler.memory();
    EXPECT_LE(use.bytes, use.bytes_max);
    EXPECT_EQ(use.pages_leaked, 0);
  }
  return turn;
}

struct Client {
  bool echoes, tools, thinks;
};

ordered_json body_of(const Client& client, const ordered_json& messages) {
  ordered_json body = {{"messages", messages},
                       {"max_tokens", 24},
                       {"temperature", 0},
                       {"chat_template_kwargs", {{"enable_thinking", client.thinks}}}};
  if (client.tools)
    body["tools"] =
        ordered_json::parse(R"([{"type": "function", "function": {"name": "calculator", "description": "adds",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}}}}])");
  return body;
}

// What the client makes of an answer, and its next message. Every third answer becomes a round of tools, whether the
// model called one or not.
void go_on(const Client& client, int turn, ordered_json message, ordered_json& messages) {
  if (!client.echoes) message.erase("reasoning_content");
  if (client.tools && turn % 3 == 1) {
    message["tool_calls"] =
        ordered_json::parse(R"([{"id": "call_1", "type": "function", "function": {"name": "calculator",
        "arguments": "{\"expression\": \"345 * 678\"}"}}])");
    messages.push_back(message);
    messages.push_back({{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "233910"}});
    return;
  }
  if (message["content"].is_null()) message["content"] = "";
  message.erase("tool_calls");
  messages.push_back(message);
  messages.push_back({{"role", "user"}, {"content", "What is " + std::to_string(10 + turn) + " + 4?"}});
}

int64_t most_in_common(const std::vector<Tokens>& processed, const Tokens& prompt) {
  int64_t most = 0;
  for (const Tokens& t : processed)
    most = std::max<int64_t>(most, std::mismatch(t.begin(), t.end(), prompt.begin(), prompt.end()).first - t.begin());
  return most;
}

// A turn reads what follows the longest prefix that it shares with anything processed, and at most a chunk more. Once,
// in the middle, the process restarts with the saved tree.
void converse(const Client& client) {
  const auto file = std::filesystem::path(testing::TempDir()) / "turns.cache";
  std::filesystem::remove(file);
  std::optional<Engine> e(std::in_place);
  std::vector<Tokens> processed;
  ordered_json messages = ordered_json::parse(
      R"([{"role": "system", "content": "You answer questions."}, {"role": "user", "content": "What is 17 + 25?"}])");
  int64_t prompts = 0, read = 0;
  for (int turn = 0; turn < 20; ++turn) {
    SCOPED_TRACE(turn);
    if (turn == 10) {
      e->scheduler.cache()->save(file, engine::fingerprint_of(e->model));
      e.reset();
      e.emplace();
      e->scheduler.cache()->load(file, engine::fingerprint_of(e->model));
    }
    const Turn t = ask(*e, body_of(client, messages));
    const Tokens prompt(t.processed.begin(), t.processed.begin() + static_cast<std::ptrdiff_t>(t.prompt));
    EXPECT_LE(t.read, t.prompt - most_in_common(processed, prompt) + kChunk);
    processed.push_back(t.processed);
    prompts += t.prompt;
    read += t.read;
    if (turn % 7 == 3) {
      EXPECT_EQ(ask(*e, body_of(client, messages)).read, 0) << "the same again";
    }
    go_on(client, turn, t.message, messages);
  }
  EXPECT_LT(4 * read, prompts);
  e->scheduler.cache()->check();
}

TEST(Turns, ThinkingThatIsSentBack) { converse({.echoes = true, .tools = false, .thinks = true}); }
TEST(Turns, ThinkingThatIsDropped) { converse({.echoes = false, .tools = false, .thinks = true}); }
TEST(Turns, ToolsAndThinkingThatIsSentBack) { converse({.echoes = true, .tools = true, .thinks = true}); }
TEST(Turns, ToolsAndThinkingThatIsDropped) { converse({.echoes = false, .tools = true, .thinks = true}); }
TEST(Turns, WithoutThinking) { converse({.echoes = true, .tools = true, .thinks = false}); }

// The prompt ends with the last message's text, and none of what the template adds behind it.
TEST(Continued, ThePromptEndsWithTheMessage) {
  Engine e;
  const auto asked_of = [&](const char* text) {
    const ordered_json messages = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", text}}};
    Defaults defaults;
    return read_chat(ordered_json{{"messages", messages}, {"continue_final_message", true}}.dump(), e.model, defaults);
  };
  for (const char* text : {"17 +", "17 \n", "m", "{", "<|im_end|", "<think>\n17", "<think>a</think>b"}) {
    const Asked asked = asked_of(text);
    EXPECT_EQ(e.model.tokenizer().decode(asked.work.request.prompt, false),
              std::string("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think></think>") + text);
    EXPECT_EQ(asked.work.thinking, std::string(text) == "<think>\n17") << text;
    EXPECT_EQ(asked.work.splits_thinking, asked.work.thinking) << text;
  }
  EXPECT_THROW(asked_of(" "), ApiError);
}

}  // namespace
}  // namespace braid::serve
