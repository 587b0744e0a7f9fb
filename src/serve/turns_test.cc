// Conversations of many turns through the server's own rendering and the scheduler: how many tokens of each turn are
// read, with thinking, tools, and clients that send the thinking back, drop it or have the template keep it; the same
// after a restart. With the template of the shipped model, which keeps all thinking, and with Nemotron 3's own, which
// drops that before the last question unless it is told not to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "engine/fingerprint.h"
#include "engine/reasoning.h"
#include "serve/api_error.h"
#include "serve/chat_answer.h"
#include "serve/openai.h"
#include "support/data.h"
#include "support/folder.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

constexpr int64_t kChunk = 64, kMemory = 256 << 20;

// A server without HTTP, and what it has read since its cache was empty.
struct Engine {
  Engine(const std::filesystem::path& folder, int64_t drafts, int64_t memory = kMemory, bool exact = false,
         int64_t chunk = kChunk)
      : model(folder.string(), {.numerics = numerics(exact),
                                .sequences = 1,
                                .memory = memory,
                                .spare_slots = drafts > 0 ? 1 : 0,
                                .chunk = chunk,
                                .threads = 1}),
        scheduler(model.runner(), {.ngram = drafts > 0, .tokens_max = drafts, .always = true}) {}
  static Numerics numerics(bool exact) {
    Numerics out = Numerics::serving(DType::f32);
    out.exact = exact;
    return out;
  }
  engine::LanguageModel model;
  engine::Scheduler scheduler;
};

struct Turn {
  ordered_json message{};  // of the assistant
  int64_t prompt = 0, read = 0, drafted = 0;
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
    turn.drafted = out.timings.drafted_tokens;
    EXPECT_EQ(out.timings.prompt_tokens, turn.read);
    turn.processed.insert(turn.processed.end(), out.ids.begin(), out.ids.end());
    turn.processed.pop_back();  // sampled but not read
    text::StreamDecoder decoder(e.model.tokenizer(), false);
    engine::ReasoningSplitter splitter(asked.work.request.generate.thinking == engine::Thinking::open);
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
  bool keeps_thinking = false;  // truncate_history_thinking is false
  bool drafts = false;
};

ordered_json body_of(const Client& client, const ordered_json& messages) {
  ordered_json body = {{"messages", messages},
                       {"max_tokens", 24},
                       {"temperature", 0},
                       {"chat_template_kwargs", {{"enable_thinking", client.thinks}}}};
  if (client.keeps_thinking) body["chat_template_kwargs"]["truncate_history_thinking"] = false;
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

// The shipped model with a template by name.
class Turns : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const auto& file : std::filesystem::directory_iterator(support::shipped_tiny()))
      std::filesystem::create_symlink(std::filesystem::absolute(file.path()), model_.path() / file.path().filename());
    if (GetParam() != std::string("nemotron3")) return;
    if (support::fixtures().empty()) GTEST_SKIP() << "BRAID_FIXTURES is not set";
    const auto path =
        std::filesystem::path(support::fixtures()) / "templates" / "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja";
    std::ostringstream text;
    ASSERT_TRUE(text << std::ifstream(path).rdbuf()) << path;
    std::filesystem::remove(model_.path() / "chat_template.jinja");
    model_.write("chat_template.jinja", text.str());
  }
  void converse(const Client& client, int64_t chunk = kChunk);
  const support::Folder model_, other_;
};

// A turn reads what follows the longest prefix that it shares with anything processed, and at most a chunk more. Once,
// in the middle, the process restarts with the saved tree.
void Turns::converse(const Client& client, int64_t chunk) {
  const auto file = other_.path() / "turns.cache";
  const int64_t drafts = client.drafts ? 4 : 0;
  std::optional<Engine> e(std::in_place, model_.path(), drafts, kMemory, false, chunk);
  std::vector<Tokens> processed;
  ordered_json messages = ordered_json::parse(
      R"([{"role": "system", "content": "You answer questions."}, {"role": "user", "content": "What is 17 + 25?"}])");
  int64_t prompts = 0, read = 0, drafted = 0, over = 0;
  for (int turn = 0; turn < 20; ++turn) {
    SCOPED_TRACE(turn);
    if (turn == 10) {
      e->scheduler.cache()->save(file, engine::fingerprint_of(e->model));
      e.reset();
      e.emplace(model_.path(), drafts, kMemory, false, chunk);
      e->scheduler.cache()->load(file, engine::fingerprint_of(e->model));
    }
    const Turn t = ask(*e, body_of(client, messages));
    const Tokens prompt(t.processed.begin(), t.processed.begin() + static_cast<std::ptrdiff_t>(t.prompt));
    const int64_t common = most_in_common(processed, prompt);
    EXPECT_LE(t.read, t.prompt - common + chunk);
    over += t.read - (t.prompt - common);
    processed.push_back(t.processed);
    prompts += t.prompt;
    read += t.read;
    drafted += t.drafted;
    if (turn % 7 == 3) {
      EXPECT_EQ(ask(*e, body_of(client, messages)).read, 0) << "the same again";
    }
    go_on(client, turn, t.message, messages);
  }
  if (chunk == kChunk) {
    EXPECT_LT(4 * read, prompts);
  }
  RecordProperty("tokens_read_again", static_cast<int>(over));
  EXPECT_EQ(drafted > 0, client.drafts);
  e->scheduler.cache()->check();
}

// With room for the longest request and little more, so that prefixes are evicted in the middle of the conversation:
// the answers are the same, and what is not cached is read again.
TEST_P(Turns, UnderAMemoryThatIsShort) {
  const Client client = {.echoes = true, .tools = true, .thinks = true};
  constexpr int64_t kPromptMax = 1600;
  Engine large(model_.path(), 0, kMemory, true);
  const int64_t cap = large.model.runner().sequence_bytes_of(kPromptMax) + 3 * large.model.runner().pool().slot_bytes();
  Engine small(model_.path(), 0, cap, true);
  ordered_json messages = ordered_json::parse(
      R"([{"role": "system", "content": "You answer questions."}, {"role": "user", "content": "What is 17 + 25?"}])");
  int64_t read_large = 0, read_small = 0, snapshots = 0, most = 0;
  for (int turn = 0; turn < 20; ++turn) {
    SCOPED_TRACE(turn);
    const Turn want = ask(large, body_of(client, messages)), got = ask(small, body_of(client, messages));
    ASSERT_EQ(got.processed, want.processed);
    ASSERT_LE(got.prompt + 64, kPromptMax);
    EXPECT_LE(small.scheduler.memory().bytes, cap);
    most = std::max(most, small.scheduler.memory().bytes);
    snapshots = small.scheduler.memory().snapshots;
    EXPECT_LE(snapshots, large.scheduler.memory().snapshots);
    small.scheduler.cache()->check();
    // Another conversation between two turns, which takes the place of this one's oldest prefixes.
    const ordered_json other = {
        {{"role", "user"}, {"content", "Count to " + std::to_string(turn) + " in words, twice."}}};
    EXPECT_EQ(ask(small, body_of(client, other)).processed, ask(large, body_of(client, other)).processed);
    read_large += want.read;
    read_small += got.read;
    go_on(client, turn, want.message, messages);
  }
  EXPECT_LT(snapshots, large.scheduler.memory().snapshots);  // there was pressure
  EXPECT_GT(read_small, read_large);
  EXPECT_GT(2 * most, cap);
  EXPECT_EQ(small.scheduler.memory().pages_leaked, 0);
}

// That the option reaches the template: only Nemotron 3's has one.
TEST_P(Turns, PromptsWithKeptThinking) {
  Engine e(model_.path(), 0);
  const ordered_json messages = ordered_json::parse(R"([{"role": "user", "content": "What is 17 + 25?"},
      {"role": "assistant", "content": "42", "reasoning_content": "It is a sum of two numbers."},
      {"role": "user", "content": "What is 3 + 4?"}])");
  const auto prompt = [&](bool keeps) {
    const Client client = {.echoes = true, .tools = false, .thinks = true, .keeps_thinking = keeps};
    Defaults defaults;
    return std::ssize(read_chat(body_of(client, messages).dump(), e.model, defaults).work.request.prompt);
  };
  EXPECT_EQ(prompt(true) > prompt(false), GetParam() == std::string("nemotron3"));
}

TEST_P(Turns, ThinkingThatIsSentBack) { converse({.echoes = true, .tools = false, .thinks = true}); }
TEST_P(Turns, ThinkingThatIsDropped) { converse({.echoes = false, .tools = false, .thinks = true}); }
TEST_P(Turns, ToolsAndThinkingThatIsSentBack) { converse({.echoes = true, .tools = true, .thinks = true}); }
TEST_P(Turns, ToolsAndThinkingThatIsDropped) { converse({.echoes = false, .tools = true, .thinks = true}); }
TEST_P(Turns, WithoutThinking) { converse({.echoes = true, .tools = true, .thinks = false}); }
TEST_P(Turns, ThinkingThatTheTemplateKeeps) {
  converse({.echoes = true, .tools = true, .thinks = true, .keeps_thinking = true});
}
// The pieces of the server itself, between whose ends no state of an answer is kept.
TEST_P(Turns, InPiecesOfTheDefaultSize) { converse({.echoes = true, .tools = true, .thinks = true}, 512); }
TEST_P(Turns, WithDrafts) { converse({.echoes = true, .tools = true, .thinks = true, .drafts = true}); }

INSTANTIATE_TEST_SUITE_P(Template, Turns, testing::Values("tiny", "nemotron3"),
                         [](const auto& test) { return test.param; });

// What the model wrote is in the next prompt as it wrote it, the call and the end of the thinking before it included:
// nothing of the answer is read again but its last token, which was only sampled.
TEST_P(Turns, AnAnswerThatIsSentBackIsNotReadAgain) {
  Engine e(model_.path(), 0);
  const Client client = {.echoes = true, .tools = true, .thinks = true, .keeps_thinking = true};
  ordered_json messages = {{{"role", "user"}, {"content", "What is 345 * 678?"}}};
  const auto body = [&] {
    ordered_json out = body_of(client, messages);
    out["max_tokens"] = 400;
    return out;
  };
  const Turn call = ask(e, body());
  ASSERT_TRUE(call.message.contains("tool_calls")) << call.message;
  ASSERT_TRUE(call.message.value("reasoning_content", "").ends_with('\n')) << call.message;
  messages.push_back(call.message);
  messages.push_back({{"role", "tool"}, {"tool_call_id", call.message["tool_calls"][0]["id"]}, {"content", "233910"}});
  const Turn answer = ask(e, body());
  EXPECT_EQ(answer.prompt - answer.read, std::ssize(call.processed));
  ASSERT_FALSE(answer.message["content"].get<std::string>().empty()) << answer.message;
  messages.push_back(answer.message);
  messages.push_back({{"role", "user"}, {"content", "What is 3 + 4?"}});
  const Turn last = ask(e, body());
  EXPECT_EQ(last.prompt - last.read, std::ssize(answer.processed));
}

// A template that writes nothing behind the reasoning, as Nemotron 3.5's, has its final newline.
TEST(EchoedReasoning, KeepsItsNewlineWhereTheTemplateWritesNone) {
  const support::Folder folder;
  for (const auto& file : std::filesystem::directory_iterator(support::shipped_tiny())) {
    if (file.path().filename() == "chat_template.jinja") continue;
    std::filesystem::create_symlink(std::filesystem::absolute(file.path()), folder.path() / file.path().filename());
  }
  folder.write(
      "chat_template.jinja",
      "{% for m in messages %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}</think>{% endif %}"
      "{{ m.content }}|{% endfor %}");
  Engine e(folder.path(), 0);
  const ordered_json messages = {{{"role", "user"}, {"content", "Hi"}},
                                 {{"role", "assistant"}, {"content", "Yes"}, {"reasoning_content", "A greeting.\n"}},
                                 {{"role", "user"}, {"content", "No"}}};
  EXPECT_EQ(e.model.render(messages, {}), "Hi|<think>\nA greeting.\n</think>Yes|No|");
}

// The prompt ends with the last message's text, and none of what the template adds behind it.
TEST(Continued, ThePromptEndsWithTheMessage) {
  Engine e(support::shipped_tiny(), 0);
  const auto asked_of = [&](const char* text) {
    const ordered_json messages = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", text}}};
    Defaults defaults;
    return read_chat(ordered_json{{"messages", messages}, {"continue_final_message", true}}.dump(), e.model, defaults);
  };
  for (const char* text : {"17 +", "17 \n", "m", "{", "<|im_end|", "<think>\n17", "<think>a</think>b"}) {
    const Asked asked = asked_of(text);
    EXPECT_EQ(e.model.tokenizer().decode(asked.work.request.prompt, false),
              std::string("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think></think>") + text);
    const bool thinks = asked.work.request.generate.thinking == engine::Thinking::open;
    EXPECT_EQ(thinks, std::string(text) == "<think>\n17") << text;
    EXPECT_EQ(asked.work.splits_thinking, thinks) << text;
  }
  EXPECT_THROW(asked_of(" "), ApiError);
}

}  // namespace
}  // namespace braid::serve
