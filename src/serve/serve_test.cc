// The server without HTTP: stop texts, and the thread that computes, used by several others.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/stop_texts.h"
#include "serve/worker.h"
#include "support/data.h"

namespace braid::serve {
namespace {

TEST(StopTexts, TheFirstOfThemEndsTheText) {
  for (size_t piece = 1; piece < 12; ++piece) {
    engine::StopTexts stops({"END", "\n\n", "EN?"});
    const std::string text =
        "one EN two\n three E"
        "ND four\n\n";
    std::string shown;
    for (size_t at = 0; at < text.size(); at += piece) shown += stops.push(text.substr(at, piece));
    EXPECT_EQ(shown + stops.finish(), "one EN two\n three ") << piece;
    EXPECT_TRUE(stops.found());
  }
  engine::StopTexts whole({"END"}, true);
  std::string found;
  for (const char* piece : {"one EN", "D two", " three"}) found += whole.push(piece);
  EXPECT_EQ(found + whole.finish(), "one END");
  engine::StopTexts none({"END"});
  std::string shown = none.push("an EN");
  EXPECT_EQ(shown, "an ");
  EXPECT_EQ(shown + none.finish(), "an EN");
}

struct Collected {
  std::string text;
  Outcome outcome;
};

struct Sent {
  std::shared_ptr<Bell> bell = std::make_shared<Bell>();
  std::shared_ptr<Reply> reply;
};

Sent submit(Worker& worker, Work work) {
  Sent sent;
  sent.reply = worker.submit(std::move(work), sent.bell);
  return sent;
}

Reply::News next(const Sent& sent) {
  {
    std::unique_lock lock(sent.bell->mutex);
    sent.bell->changed.wait(lock, [&] { return sent.reply->news(); });
  }
  return sent.reply->take();
}

Collected wait_for(const Sent& sent) {
  Collected out;
  while (true) {
    const Reply::News news = next(sent);
    out.text += news.text.content;
    if (news.done) break;
  }
  out.outcome = sent.reply->outcome();
  return out;
}

Work work(engine::LanguageModel& model, const char* text, int64_t tokens) {
  return {.request = {.prompt = model.tokenizer().encode(text, false),
                      .generate = {.tokens_max = tokens, .ignore_eos = true}},
          .splits_thinking = false};
}

TEST(Worker, ManyThreadsGetWhatOneGets) {
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 256, .sequences = 3, .memory = 64 << 20, .chunk = 16, .threads = 1});
  (void)model.tokenizer();
  Worker worker(model, "");
  const std::vector<const char*> prompts = {"What is 17 + 25?", "Hi", "Reverse the word stone.", "Who are you?"};
  std::vector<std::string> alone;
  for (const char* prompt : prompts) alone.push_back(wait_for(submit(worker, work(model, prompt, 20))).text);
  std::vector<std::thread> threads;
  std::vector<std::string> found(12);
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto dropped = submit(worker, work(model, "What is", 200));
      found[i] = wait_for(submit(worker, work(model, prompts[i % prompts.size()], 20))).text;
      dropped.reply->cancel();
      EXPECT_LE(std::ssize(wait_for(dropped).outcome.generated.ids), 200);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], alone[i % prompts.size()]) << i;
  const Counters counters = worker.counters();
  EXPECT_EQ(counters.requests, 4 + 24);
  EXPECT_GE(counters.generated_tokens, 16 * 20);
}

TEST(Worker, ARefusedRequestEndsAlone) {
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 256, .sequences = 2, .memory = 64 << 20, .threads = 1});
  (void)model.tokenizer();
  Worker worker(model, "");
  Work strange = work(model, "Hi", 4);
  strange.request.prompt.push_back(static_cast<int32_t>(model.runner().config().vocab));
  EXPECT_NE(wait_for(submit(worker, strange)).outcome.error.find("no such token"), std::string::npos);
  EXPECT_EQ(wait_for(submit(worker, work(model, "Hi", 4))).outcome.error, "");
}

TEST(Worker, WhatItsEndCutsShortSaysSo) {
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 256, .sequences = 1, .memory = 64 << 20, .threads = 1});
  (void)model.tokenizer();
  Worker worker(model, "");
  const auto running = submit(worker, work(model, "Hi", 200)), waiting = submit(worker, work(model, "Hi", 200));
  (void)next(running);
  worker.stop();
  EXPECT_EQ(wait_for(waiting).outcome.error, kStopping);
  EXPECT_EQ(wait_for(submit(worker, work(model, "Hi", 2))).outcome.error, kStopping);
  (void)wait_for(running);
}

}  // namespace
}  // namespace braid::serve
