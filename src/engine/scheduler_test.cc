#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/philox.h"
#include "engine/language_model.h"
#include "engine/score.h"
#include "support/data.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

LanguageModel chat(int64_t sequences, int64_t chunk = 512, bool exact = false, int64_t memory = 0) {
  Numerics numerics = Numerics::serving(DType::f32);
  numerics.exact = exact;
  return {
      support::data("tiny-chat"),
      {.numerics = numerics, .context = 256, .sequences = sequences, .memory = memory, .chunk = chunk, .threads = 1}};
}

std::vector<int32_t> encode(LanguageModel& model, const char* text) { return model.tokenizer().encode(text, false); }

// The prompt read whole, then step by step.
Generated alone(LanguageModel& model, const std::vector<int32_t>& prompt, const GenerateOptions& options) {
  Runner& runner = model.runner();
  runner.reset(1);
  Tensor logits = runner.prefill(1, prompt, [](const Tensor&) {});
  TokenPicker picker(options, prompt, runner.config().eos);
  Generated out;
  while (picker.may_continue()) {
    const std::span<const float> row(logits.view().as<float>(), static_cast<size_t>(logits.dim(1)));
    const int32_t id = picker.next(row);
    if (options.logprobs >= 0 && runner.options().numerics.exact) picker.set_logprob(runner.logprob(row, id));
    if (picker.ended()) out.finish = Finish::stop;
    if (picker.ended() || !picker.may_continue() || runner.length(1) == runner.options().context) break;
    logits = runner.step(1, id);
  }
  picker.take(out);
  return out;
}

std::vector<Generated> all_of(LanguageModel& model, const std::vector<std::vector<int32_t>>& prompts,
                              const GenerateOptions& options) {
  std::vector<Request> requests;
  for (const auto& prompt : prompts) requests.push_back({.prompt = prompt, .generate = options});
  return generate_all(model.runner(), std::move(requests), [](int64_t) { return true; });
}

TEST(Scheduler, AnswersAreThoseOfOneAtATime) {
  LanguageModel model = chat(3);
  std::vector<std::vector<int32_t>> prompts;
  for (const char* text : {"What is 17 + 25?", "Hi", "Reverse the word stone.", "9", "Who are you?", "What is 3 - 1?"})
    prompts.push_back(encode(model, text));
  prompts.emplace_back();                               // nothing to answer
  prompts.emplace_back(std::vector<int32_t>(256, 40));  // no room for an answer
  prompts.emplace_back(std::vector<int32_t>(255, 40));  // room for one token and the next
  for (const double temperature : {0.0, 1.0}) {
    const GenerateOptions options{
        .tokens_max = 40, .sampling = {.temperature = temperature, .repeat_penalty = 1.1, .seed = 5}, .logprobs = 2};
    const auto all = all_of(model, prompts, options);
    ASSERT_EQ(all.size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].empty() || prompts[i].size() == 256) {
        EXPECT_TRUE(all[i].ids.empty());
        EXPECT_EQ(all[i].finish, Finish::length);
        continue;
      }
      const Generated one = alone(model, prompts[i], options);
      EXPECT_EQ(all[i].ids, one.ids) << i;
      EXPECT_EQ(all[i].finish, one.finish) << i;
      ASSERT_EQ(all[i].logprobs.size(), one.logprobs.size()) << i;
      for (size_t t = 0; t < one.logprobs.size(); ++t)
        EXPECT_EQ(all[i].logprobs[t][0].logprob, one.logprobs[t][0].logprob);
    }
  }
}

// Prompts of several pieces are read while others step; a piece is never cut to make room for others.
TEST(Scheduler, LongPromptsAlongsideSteps) {
  LanguageModel model = chat(4, 16);
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : {3, 40, 16, 100, 17, 1, 33}) {
    auto& prompt = prompts.emplace_back();
    for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(40 + (7 * i + length) % 50));
  }
  const auto all = all_of(model, prompts, {.tokens_max = 12});
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(all[i].ids, alone(model, prompts[i], {.tokens_max = 12}).ids) << i;
}

// Cut short, the thinking ends in its tag, and the answer is that of a generation with the same limit.
TEST(Scheduler, LimitsOfThinkingAreThoseOfOneAtATime) {
  LanguageModel model = chat(2);
  const ReasoningBudget budget = model.reasoning_budget(5);
  std::vector<Request> requests;
  for (const char* text : {"<think>\n17 + 25", "<think>\nHi", "<think>\nReverse the word stone."}) {
    requests.push_back({.prompt = encode(model, text), .generate = {.tokens_max = 20, .thinking = Thinking::open}});
    if (requests.size() != 2) requests.back().generate.budget = budget;
  }
  const auto all = generate_all(model.runner(), requests, [](int64_t) { return true; });
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(all[i].ids, alone(model, requests[i].prompt, requests[i].generate).ids) << i;
    const auto end = std::find(all[i].ids.begin(), all[i].ids.end(), model.tokenizer().token_to_id("</think>"));
    EXPECT_TRUE(i == 1 || end - all[i].ids.begin() <= 5 + std::ssize(budget.closing)) << i;
  }
}

TEST(Scheduler, StopsWhenAsked) {
  LanguageModel model = chat(2);
  std::vector<Request> requests(9, {.prompt = encode(model, "Hi"), .generate = {.tokens_max = 4}});
  int64_t calls = 0;
  const auto all = generate_all(model.runner(), std::move(requests), [&](int64_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(all.back().ids.empty());
}

// What one request got, and from how many cached tokens.
constexpr int64_t kMemory = 64 << 20;

struct Got {
  std::vector<int32_t> ids{};
  std::vector<std::vector<TokenLogprob>> logprobs{};
  int64_t cached = -1, prompt_tokens = -1;
  Finish finish{};
};

Got answer(Scheduler& scheduler, Request request) {
  Got got;
  request.on_end = [&](Generated out, int64_t cached) {
    got = {std::move(out.ids), std::move(out.logprobs), cached, out.timings.prompt_tokens, out.finish};
  };
  scheduler.submit(std::move(request));
  while (!scheduler.idle()) scheduler.pass();
  return got;
}

// Token for token, and bit for bit of the log-probabilities.
void expect_same(const Got& got, const Generated& want) {
  EXPECT_EQ(got.ids, want.ids);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t t = 0; t < want.logprobs.size(); ++t) {
    ASSERT_EQ(got.logprobs[t].size(), want.logprobs[t].size());
    for (size_t i = 0; i < want.logprobs[t].size(); ++i)
      EXPECT_EQ(got.logprobs[t][i].logprob, want.logprobs[t][i].logprob) << t;
  }
}

std::vector<int32_t> joined(std::vector<int32_t> a, std::span<const int32_t> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A second turn reads only what follows the first one's answer, or its mark where that answer was rewritten, and the
// same prompt again nothing; under --exact the answers are those of a conversation that was read whole.
TEST(Scheduler, PromptsContinueFromCachedPrefixes) {
  LanguageModel model = chat(1, 16, true, kMemory), fresh = chat(2, 16, true);
  Scheduler scheduler(model.runner());
  const GenerateOptions options{.tokens_max = 10, .ignore_eos = true, .logprobs = 2};
  const std::vector<int32_t> first = encode(model, "What is 17 + 25? I would like to know it well.");
  const int64_t mark = std::ssize(first) - 3;
  const Got one = answer(scheduler, {.prompt = first, .generate = options, .marks = {mark}});
  EXPECT_EQ(one.cached, 0);
  expect_same(one, alone(fresh, first, options));

  const std::vector<int32_t> more = encode(model, " And 3 - 1?");
  const auto second = joined(joined(first, one.ids), more);
  const Got two = answer(scheduler, {.prompt = second, .generate = options});
  EXPECT_EQ(two.cached, std::ssize(first) + std::ssize(one.ids) - 1);  // the last token was not read
  EXPECT_EQ(two.prompt_tokens, std::ssize(second) - two.cached);
  expect_same(two, alone(fresh, second, options));

  std::vector<int32_t> rewritten(first.begin(), first.begin() + mark);
  rewritten = joined(rewritten, more);
  const Got three = answer(scheduler, {.prompt = rewritten, .generate = options});
  EXPECT_EQ(three.cached, mark);
  expect_same(three, alone(fresh, rewritten, options));

  const Got again = answer(scheduler, {.prompt = first, .generate = options});
  EXPECT_EQ(again.cached, std::ssize(first));
  EXPECT_EQ(again.prompt_tokens, 0);
  expect_same(again, alone(fresh, first, options));
  EXPECT_EQ(answer(scheduler, {.prompt = encode(model, "Hi"), .generate = options}).cached, 0);
}

// While an answer steps, a prompt is read a chunk of the scan at a time where a full piece takes too long, with the
// same bits; alone it is read whole. A model without a scan reads a page at a time; a full piece is of whole chunks.
void expect_short_pieces(const char* folder, int64_t context, int64_t chunk, int64_t grid) {
  const int64_t length = context / 2 + 88;
  const RunnerOptions options{.numerics = Numerics::serving(DType::f32),
                              .context = context,
                              .sequences = 2,
                              .chunk = chunk,
                              .pass_seconds = 1e-9,
                              .threads = 1};
  LanguageModel model(support::data(folder), options);
  const int64_t vocabulary = model.runner().config().vocab;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(3 + i * 7 % static_cast<int32_t>(vocabulary - 3));
  const std::vector<int32_t> other = {4, 5};
  const auto read_beside = [&](bool answering, Generated& out) {
    Scheduler scheduler(model.runner());
    if (answering) {
      scheduler.submit({.prompt = other, .generate = {.tokens_max = context - length - 24, .ignore_eos = true}});
      scheduler.pass();
      // A prompt read meanwhile, which measures the speed.
      scheduler.submit({.prompt = prompt, .generate = {.tokens_max = 1, .ignore_eos = true}});
      while (scheduler.running() < 2) scheduler.pass();
      while (scheduler.running() == 2) scheduler.pass();
    }
    std::vector<int64_t> read;
    bool ended = false;
    Request request{.prompt = prompt, .generate = {.tokens_max = 8, .ignore_eos = true, .logprobs = 0}};
    request.on_read = [&](int64_t tokens) { read.push_back(tokens); };
    request.on_end = [&](Generated got, int64_t) { out = std::move(got), ended = true; };
    scheduler.submit(std::move(request));
    while (!ended) scheduler.pass();
    return read;
  };
  Generated alone, beside;
  const auto steps_of = [&](int64_t piece) {
    std::vector<int64_t> want;
    for (int64_t at = piece; at < length; at += piece) want.push_back(at);
    want.push_back(length);
    return want;
  };
  EXPECT_EQ(read_beside(false, alone), steps_of(chunk / grid * grid));
  EXPECT_EQ(read_beside(true, beside), steps_of(grid));
  EXPECT_EQ(alone.ids, beside.ids);
  for (size_t i = 0; i < alone.logprobs.size(); ++i)
    EXPECT_EQ(alone.logprobs[i][0].logprob, beside.logprobs[i][0].logprob) << i;
}

TEST(Scheduler, PromptsKeepAnswersWaitingNoLongerThanTheTarget) {
  expect_short_pieces("tiny-chat", 1024, 512, 128);
  expect_short_pieces("tiny-chat", 1024, 500, 128);
  expect_short_pieces("hf/nemotron-nas", 512, 256, kPageTokens);
}

// While an answer steps, a short prompt does not wait for all of a long one before it, and the long one goes on.
TEST(Scheduler, ShortPromptsPassLongOnes) {
  LanguageModel model(
      support::data("tiny-chat"),
      {.numerics = Numerics::serving(DType::f32), .context = 1024, .sequences = 3, .pass_seconds = 1e-9, .threads = 1});
  Scheduler scheduler(model.runner());
  const std::vector<int32_t> tokens(600, 40);
  scheduler.submit({.prompt = tokens, .generate = {.tokens_max = 200, .ignore_eos = true}});
  while (scheduler.running() == 0 || scheduler.idle()) scheduler.pass();
  for (int i = 0; i < 3; ++i) scheduler.pass();  // it steps, and the speed is known
  int64_t of_long = 0, of_long_at_short = -1;
  std::vector<int64_t> many;
  Request longer{.prompt = std::vector<int32_t>(900, 41), .generate = {.tokens_max = 1, .ignore_eos = true}};
  longer.on_read = [&](int64_t read) { of_long = read; };
  Request shorter{.prompt = encode(model, "Hi"), .generate = {.tokens_max = 1, .ignore_eos = true}};
  shorter.on_read = [&](int64_t) { of_long_at_short = of_long; };
  scheduler.submit(std::move(longer));
  scheduler.submit(std::move(shorter));
  for (int i = 0; i < 3; ++i) scheduler.pass();
  EXPECT_GE(of_long_at_short, 0) << "the short prompt waits";
  EXPECT_GT(of_long, 0) << "the long prompt waits";
  EXPECT_LT(of_long, 900);
}

// A shorter prompt that begins as a longer one before it does not pass it: it continues from what that has read.
TEST(Scheduler, APromptThatSharesAPrefixDoesNotPass) {
  LanguageModel model(support::data("tiny-chat"), {.numerics = Numerics::serving(DType::f32),
                                                   .context = 1024,
                                                   .sequences = 3,
                                                   .memory = 64 << 20,
                                                   .pass_seconds = 1e-9,
                                                   .threads = 1});
  Scheduler scheduler(model.runner());
  scheduler.submit({.prompt = std::vector<int32_t>(200, 40), .generate = {.tokens_max = 200, .ignore_eos = true}});
  for (int i = 0; i < 4; ++i) scheduler.pass();  // it steps, and the speed is known
  std::vector<int32_t> longer(900, 41), shorter(longer.begin(), longer.begin() + 640);
  longer.back() = 42;
  shorter.push_back(43);
  int64_t cached = -1;
  scheduler.submit({.prompt = longer, .generate = {.tokens_max = 1, .ignore_eos = true}});
  scheduler.submit({.prompt = shorter,
                    .generate = {.tokens_max = 1, .ignore_eos = true},
                    .on_end = [&](const Generated&, int64_t tokens) { cached = tokens; }});
  while (cached < 0) scheduler.pass();
  EXPECT_GE(cached, 512);
}

// Of requests with the same prompt, by name: how each ended, and how often.
struct Endings {
  std::multiset<std::string> seen{};
  Request request(LanguageModel& model, std::string name, GenerateOptions options) {
    return {.prompt = encode(model, "Hi"),
            .generate = std::move(options),
            .on_end = [this, name = std::move(name)](const Generated& out, int64_t) {
              seen.insert(name + " " + name_of(out.finish));
            }};
  }
};

TEST(Scheduler, UnwantedRequestsEndBeforeTheNextPass) {
  LanguageModel model = chat(1, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  Endings endings;
  bool wanted = true;
  for (const char* name : {"running", "waiting"}) {
    Request request = endings.request(model, name, {.tokens_max = 100, .ignore_eos = true});
    request.wanted = [&] { return wanted; };
    scheduler.submit(std::move(request));
  }
  scheduler.submit(endings.request(model, "wanted", {.tokens_max = 2, .ignore_eos = true}));
  scheduler.pass();
  EXPECT_EQ(scheduler.running(), 1);
  EXPECT_EQ(scheduler.waiting(), 2);
  wanted = false;
  while (!scheduler.idle()) scheduler.pass();
  EXPECT_EQ(endings.seen, (std::multiset<std::string>{"running cancelled", "waiting cancelled", "wanted length"}));
}

// Both end once, and their sequences serve others.
TEST(Scheduler, AfterAFailedPassEverythingEndsOnce) {
  LanguageModel model = chat(2, 16);
  bool failing = true;
  const auto source = [&](std::span<const int32_t>, int64_t) {
    if (failing) fail("test", {.what = "fails"});
    return std::vector<int32_t>{};
  };
  Scheduler scheduler(model.runner(), {.tokens_max = 2, .source = source});
  Endings endings;
  for (const char* name : {"one", "two"})
    scheduler.submit(endings.request(model, name, {.tokens_max = 9, .ignore_eos = true}));
  scheduler.pass();
  EXPECT_THROW(scheduler.pass(), Error);  // the first with drafts
  scheduler.cancel();
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(endings.seen, (std::multiset<std::string>{"one cancelled", "two cancelled"}));
  EXPECT_THROW(scheduler.submit({.prompt = {1 << 20}}), Error);
  failing = false;
  for (const char* name : {"a", "b"}) {
    Request stopped = endings.request(model, name, {.tokens_max = 9, .ignore_eos = true});
    stopped.on_token = [](int32_t) { return false; };
    scheduler.submit(std::move(stopped));
  }
  while (!scheduler.idle()) scheduler.pass();
  EXPECT_EQ(endings.seen.count("a cancelled") + endings.seen.count("b cancelled"), 2u);
}

// Requests whose callbacks throw, by the name of the callback.
struct Failing {
  const char* name;
  void (*arm)(Request& request);
};
const Failing kFailing[] = {
    {"wanted", [](Request& r) { r.wanted = []() -> bool { throw Error(Fault::bad_input, "wanted"); }; }},
    {"on_start", [](Request& r) { r.on_start = [](int64_t) { throw Error(Fault::environment, "on_start"); }; }},
    {"on_read", [](Request& r) { r.on_read = [](int64_t) { throw std::runtime_error("on_read"); }; }},
    {"on_piece", [](Request& r) { r.on_piece = [](const Tensor&, int64_t, int64_t) { throw std::bad_alloc(); }; }},
    {"on_logprobs", [](Request& r) { r.on_logprobs = [](const std::vector<TokenLogprob>&) { throw 5; }; }},
    {"on_token", [](Request& r) { r.on_token = [](int32_t) -> bool { throw std::runtime_error("on_token"); }; }},
};

TEST(Scheduler, WhatACallbackThrowsEndsItsRequestAlone) {
  LanguageModel model = chat(2, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  const auto plain = [&](const char* prompt) {
    return Request{.prompt = encode(model, prompt), .generate = {.tokens_max = 9, .ignore_eos = true}};
  };
  const std::vector<int32_t> want = generate(scheduler, plain("Who are you?")).ids;
  for (const bool waits : {false, true}) {
    for (const Failing& failing : kFailing) {
      Generated failed, whole;
      int ended = 0;
      const auto whole_request = [&] {
        Request request = plain("Who are you?");
        request.on_end = [&](Generated g, int64_t) { whole = std::move(g); };
        return request;
      };
      Request request = plain("What is 17 + 25?");
      request.generate.logprobs = 0;
      request.prompt_logprobs = 0;  // so that it is read, whatever is cached
      failing.arm(request);
      request.on_end = [&](Generated g, int64_t) {
        failed = std::move(g);
        ++ended;
        throw std::runtime_error("on_end");
      };
      scheduler.submit(whole_request());
      if (waits) scheduler.submit(plain("Hi"));  // both sequences are taken
      scheduler.submit(std::move(request));
      while (!scheduler.idle()) scheduler.pass();
      EXPECT_EQ(ended, 1) << failing.name;
      EXPECT_EQ(failed.finish, Finish::cancelled) << failing.name;
      EXPECT_FALSE(failed.error.empty()) << failing.name;
      EXPECT_TRUE(failed.thrown) << failing.name;
      EXPECT_EQ(whole.ids, want) << failing.name;
      EXPECT_EQ(whole.error, "") << failing.name;
      EXPECT_EQ(scheduler.memory().pages_leaked, 0) << failing.name;
    }
  }
  Request empty;
  empty.on_end = [](const Generated&, int64_t) { throw 5; };
  scheduler.submit(std::move(empty));  // ends at once
  EXPECT_EQ(generate(scheduler, plain("Who are you?")).ids, want);
}

// A copy of a state that fails while a request begins, where the prefix is cached, ends that request, and neither a
// page, a slot nor a byte is lost.
TEST(Scheduler, AFailedCopyOfACachedStateEndsItsRequestAlone) {
  LanguageModel model = chat(3, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  const auto request = [&](const char* prompt, std::vector<Generated>& out) {
    return Request{.prompt = encode(model, prompt),
                   .generate = {.tokens_max = 9, .ignore_eos = true},
                   .on_end = [&out](Generated g, int64_t) { out.push_back(std::move(g)); }};
  };
  const auto finish = [&] {
    while (!scheduler.idle()) scheduler.pass();
  };
  std::vector<Generated> want, other, failed, again;
  scheduler.submit(request("What is 17 + 25?", want));
  scheduler.submit(request("Who are you?", other));
  finish();
  scheduler.cache()->check();
  scheduler.submit(request("Who are you?", other));
  scheduler.pass();
  const MemoryUse before = scheduler.memory();
  auto& forced = model.runner().ctx().forced_rows;
  forced["copy_state"] = "fails";
  scheduler.submit(request("What is 17 + 25?", failed));
  scheduler.pass();
  forced.erase("copy_state");
  const MemoryUse after = scheduler.memory();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed.back().finish, Finish::cancelled);
  EXPECT_NE(failed.back().error.find("copy_state"), std::string::npos) << failed.back().error;
  EXPECT_EQ(scheduler.running(), 1);  // the other one
  EXPECT_EQ(after.pages_leaked, 0);
  EXPECT_EQ(after.slots, before.slots);
  EXPECT_EQ(after.pages, before.pages);
  EXPECT_EQ(after.bytes, before.bytes);
  finish();
  EXPECT_EQ(other.back().ids, other.front().ids);
  EXPECT_EQ(other.back().error, "");
  scheduler.cache()->check();
  scheduler.submit(request("What is 17 + 25?", again));
  finish();
  EXPECT_EQ(again.back().ids, want.front().ids);
}

// A state that cannot be stored for later prompts, after a piece of this one or on the way of its answer, is not: the
// answer is the same, and the next one reads its prompt again.
TEST(Scheduler, AnAnswerGoesOnWithoutAStateThatCannotBeStored) {
  LanguageModel model = chat(1, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  std::vector<Generated> answers;
  int64_t cached = -1;
  const auto answer = [&] {
    scheduler.submit({.prompt = encode(model, "What is 17 + 25?"),
                      .generate = {.tokens_max = 40, .ignore_eos = true},
                      .on_start = [&](int64_t tokens) { cached = tokens; },
                      .on_end = [&](Generated g, int64_t) { answers.push_back(std::move(g)); }});
    while (!scheduler.idle()) scheduler.pass();
    scheduler.cache()->check();
  };
  auto& forced = model.runner().ctx().forced_rows;
  forced["copy_state"] = "fails";
  answer();
  const MemoryUse after = scheduler.memory();
  forced.erase("copy_state");
  EXPECT_EQ(after.snapshots, 0);
  EXPECT_EQ(after.bytes, 0);
  EXPECT_EQ(after.pages_leaked, 0);
  EXPECT_GE(after.failed_copies, 4);  // of the prompt, twice on the way, at the end
  answer();
  EXPECT_EQ(cached, 0);
  answer();
  EXPECT_GT(cached, 0);
  EXPECT_EQ(scheduler.memory().failed_copies, after.failed_copies);
  ASSERT_EQ(answers.size(), 3u);
  for (const Generated& g : answers) {
    EXPECT_EQ(g.error, "");
    EXPECT_EQ(g.finish, Finish::length);
    EXPECT_EQ(g.ids.size(), 40u);
    EXPECT_EQ(g.ids, answers.back().ids);
  }
}

// The caller of one answer gets the exception itself.
TEST(Scheduler, GenerateThrowsWhatACallbackThrew) {
  LanguageModel model = chat(1, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  Request request{.prompt = encode(model, "Hi"), .generate = {.tokens_max = 3, .ignore_eos = true}};
  request.on_token = [](int32_t) -> bool { throw Error(Fault::environment, "the disk is full"); };
  try {
    (void)generate(scheduler, request);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::environment);
    EXPECT_STREQ(e.what(), "the disk is full");
  }
  request.on_token = {};
  EXPECT_EQ(std::ssize(generate(scheduler, request).ids), 3);
}

// A prompt in three pieces, the first of which is in the cache: all of it is seen, in order.
TEST(Scheduler, EveryPieceOfAPromptIsSeen) {
  LanguageModel model = chat(1, 16, false, kMemory);
  const std::vector<int32_t> prompt =
      encode(model, "What is 17 + 25? Reverse the word stone, and say who you are. Then count the letters.");
  ASSERT_GT(prompt.size(), 32u);
  Scheduler scheduler(model.runner());
  (void)generate(scheduler, {.prompt = prompt, .generate = {.tokens_max = 2}});
  nn::Probe probe{.want_hidden = true};
  std::vector<float> seen;
  int64_t pieces = 0;
  const auto on_piece = [&](const Tensor& x, int64_t first, int64_t tokens) {
    const auto width = x.dim(1);
    const float* row = x.view().as<float>() + first * width;
    seen.insert(seen.end(), row, row + tokens * width);
    ++pieces;
  };
  scheduler.submit({.prompt = prompt, .generate = {.tokens_max = 0}, .probe = &probe, .on_piece = on_piece});
  while (!scheduler.idle()) scheduler.pass();
  EXPECT_GE(pieces, 3);
  const auto width = static_cast<size_t>(model.runner().config().hidden);
  ASSERT_EQ(seen.size(), prompt.size() * width);
  for (const std::vector<float>& layer : probe.hidden) EXPECT_EQ(layer.size(), prompt.size() * width);
  LanguageModel other = chat(1, 16);
  std::vector<float> want;
  other.runner().reset(0);
  (void)other.runner().prefill(0, prompt, [&](const Tensor& x) {
    want.insert(want.end(), x.view().as<float>(), x.view().as<float>() + x.shape().count());
  });
  EXPECT_EQ(seen, want);
}

// Read in pieces, beside another answer, with a prefix of it in the cache: that has no logits, so it is not used.
TEST(Scheduler, LogProbabilitiesOfPromptsAreThoseOfScore) {
  LanguageModel model = chat(2, 16, false, 64 << 20);
  const std::vector<int32_t> prompt = encode(model,
                                             "What is 17 + 25? Reverse the word stone, and say who you are. "
                                             "Then count the letters of strawberry, twice."),
                             other = encode(model, "Who are you?");
  const auto want = score(model.runner(), std::vector<ScoreItem>{{.ids = prompt}}, ScorePath::prefill)[0];
  ASSERT_GT(want.size(), 32u);
  for (const int64_t tokens : {0, 3}) {
    Scheduler scheduler(model.runner());
    Generated scored, plain;
    Request request{.prompt = prompt, .generate = {.tokens_max = 5}, .marks = {20}};
    scheduler.submit(request);
    while (!scheduler.idle()) scheduler.pass();
    scheduler.submit({.prompt = other,
                      .generate = {.tokens_max = 30, .ignore_eos = true},
                      .on_end = [&](Generated g, int64_t) { plain = std::move(g); }});
    request.prompt_logprobs = 2;
    request.generate.tokens_max = tokens;
    request.on_end = [&](Generated g, int64_t cached) {
      scored = std::move(g);
      EXPECT_EQ(cached, 0);
    };
    scheduler.submit(request);
    while (!scheduler.idle()) scheduler.pass();
    EXPECT_EQ(std::ssize(scored.ids), tokens);
    EXPECT_EQ(std::ssize(plain.ids), 30);
    EXPECT_EQ(scored.finish, Finish::length);
    ASSERT_EQ(scored.prompt_logprobs.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(scored.prompt_logprobs[i].size(), 3u);
      EXPECT_EQ(scored.prompt_logprobs[i][0].id, prompt[i + 1]);
      EXPECT_NEAR(scored.prompt_logprobs[i][0].logprob, static_cast<double>(want[i]), 1e-5) << i;
    }
  }
}

// Prompts that begin alike, under a budget that is always short, some of them left in the middle. Whatever is not in
// the tree is free, in every pass; the memory is never above its limit; and a request is answered as if it were alone.
TEST(Scheduler, NoPageIsLostAndTheMemoryIsNeverExceeded) {
  LanguageModel fresh = chat(2, 16, true), sizes = chat(1, 16, true, kMemory);
  const int64_t context = sizes.runner().sequence_bytes_of(256);
  LanguageModel model = chat(3, 16, true, 6 * context - context / 3);
  Runner& runner = model.runner();
  {
    Scheduler scheduler(runner);
    std::multiset<std::string> endings;
    int64_t submitted = 0, most = 0;
    for (uint64_t round = 0; round < 400 || !scheduler.idle(); ++round) {
      const auto draw = philox({.seed = 6}, round);
      if (round < 400 && draw[0] % 6 == 0) {
        Request request{.generate = {.tokens_max = 1 + draw[1] % 20, .ignore_eos = true}};
        request.prompt.assign(20 + draw[2] % 60, 41 + static_cast<int32_t>(draw[3] % 3));
        request.prompt.push_back(50 + static_cast<int32_t>(draw[3] % 7));
        const uint64_t left_at = draw[1] % 3 == 0 ? round + draw[2] % 8 : UINT64_MAX;
        request.wanted = [&round, left_at] { return round < left_at; };
        request.on_end = [&, prompt = request.prompt, options = request.generate](const Generated& out, int64_t) {
          endings.insert(name_of(out.finish));
          if (out.finish != Finish::cancelled && submitted % 4 == 0) {
            EXPECT_EQ(out.ids, alone(fresh, prompt, options).ids);
          }
        };
        ++submitted;
        scheduler.submit(std::move(request));
      }
      scheduler.pass();
      const MemoryUse use = scheduler.memory();
      most = std::max(most, use.bytes);
      ASSERT_LE(use.bytes, use.bytes_max) << round;
      ASSERT_LE(runner.pool().bytes_resident(), use.bytes_max) << round;
      ASSERT_EQ(use.pages_leaked, 0) << round;
      scheduler.cache()->check();
    }
    EXPECT_EQ(std::ssize(endings), submitted);
    EXPECT_GT(endings.count("cancelled"), 10u);
    EXPECT_GT(endings.count("length"), 20u);
    const MemoryUse use = scheduler.memory();
    EXPECT_GT(use.hits, 5);
    EXPECT_GT(most, use.bytes_max * 9 / 10);  // it was short
    EXPECT_EQ(use.slots, use.snapshots);
  }
  EXPECT_EQ(runner.pool().pages_in_use(), 0);
  EXPECT_EQ(runner.pool().slots_in_use(), 0);
  EXPECT_EQ(runner.pool().bytes_in_use(), 0);
}

// A request waits while what was promised to others leaves no room for all that it may need, however little is in use.
TEST(Scheduler, ARequestBeginsWhenAllItCanNeedFits) {
  LanguageModel sizes = chat(1, 16, false, kMemory);
  const int64_t context = sizes.runner().sequence_bytes_of(256);
  LanguageModel model = chat(3, 16, false, context + sizes.runner().sequence_bytes_of(64));
  Scheduler scheduler(model.runner());
  Endings endings;
  scheduler.submit(endings.request(model, "large", {.tokens_max = -1, .ignore_eos = true}));
  scheduler.submit(endings.request(model, "another", {.tokens_max = 100, .ignore_eos = true}));
  scheduler.submit(endings.request(model, "small", {.tokens_max = 2, .ignore_eos = true}));
  scheduler.pass();
  EXPECT_EQ(scheduler.running(), 1);
  while (endings.seen.empty()) scheduler.pass();
  scheduler.pass();
  EXPECT_EQ(scheduler.waiting(), 0);
  while (!scheduler.idle()) scheduler.pass();
  EXPECT_EQ(endings.seen.size(), 3u);
}

// Where a prompt parts from one that was read before, its state is kept, at a multiple of the scan's chunk: of what is
// common, the next one reads less than such a chunk again.
TEST(Scheduler, WherePromptsPartIsKept) {
  LanguageModel model = chat(1, 512, true, kMemory), fresh = chat(2, 512, true);
  Scheduler scheduler(model.runner());
  const int64_t scan = model.runner().model().state_shapes()[0].chunk;
  ASSERT_EQ(scan, 128);
  const GenerateOptions options{.tokens_max = 3, .logprobs = 0};
  for (const auto& [last, cached] : {std::pair{51, int64_t{0}}, {52, int64_t{0}}, {53, scan}, {54, scan}}) {
    std::vector<int32_t> prompt(200, 41);
    prompt.resize(220, last);
    const Got got = answer(scheduler, {.prompt = prompt, .generate = options});
    EXPECT_EQ(got.cached, cached);
    expect_same(got, alone(fresh, prompt, options));
  }
}

// Of prompts that come at once and begin alike, the first is read whole, and the others from where they leave it.
TEST(Scheduler, PromptsThatComeTogetherShareWhatTheFirstHasRead) {
  LanguageModel model = chat(4, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  int64_t read = 0;
  for (int32_t i = 0; i < 4; ++i) {
    std::vector<int32_t> prompt(150, 41);
    prompt.push_back(50 + i);
    scheduler.submit({.prompt = prompt, .generate = {.tokens_max = 2}, .on_end = [&](const Generated& out, int64_t) {
                        read += out.timings.prompt_tokens;
                      }});
  }
  while (!scheduler.idle()) scheduler.pass();
  EXPECT_LE(read, 151 + 3 * 16);
}

// Once the speed is known, short prompts that have nothing in common are read in larger passes, with the same bits,
// also beside a piece of a long one; others still wait for what the first of them reads.
TEST(Scheduler, ShortPromptsWithNothingInCommonAreReadTogether) {
  LanguageModel model = chat(4, 32, true, kMemory), fresh = chat(2, 32, true);
  Scheduler scheduler(model.runner());
  answer(scheduler, {.prompt = std::vector<int32_t>(64, 40), .generate = {.tokens_max = 1, .ignore_eos = true}});
  const GenerateOptions options{.tokens_max = 3, .ignore_eos = true, .logprobs = 0};
  struct Load {
    const char* what;
    std::vector<std::vector<int32_t>> prompts;
    int64_t passes, read;
  };
  const auto prompt = [](size_t n, int32_t id, int32_t last) {
    std::vector<int32_t> ids(n, id);
    ids.back() = last;
    return ids;
  };
  const Load loads[] = {
      {"unlike", {prompt(32, 50, 70), prompt(30, 51, 71), prompt(32, 52, 72), prompt(32, 53, 73)}, 3, 126},
      {"alike", {prompt(33, 60, 70), prompt(33, 60, 71), prompt(33, 60, 72), prompt(33, 60, 73)}, 2, 32 + 4},
      {"long first", {prompt(200, 80, 81), prompt(20, 82, 83)}, 1, 220},
      {"long ones", {prompt(64, 84, 85), prompt(64, 86, 87)}, 3, 128}};
  for (const Load& c : loads) {
    SCOPED_TRACE(c.what);
    std::vector<Generated> answers(c.prompts.size());
    int64_t passes = 0, begun = 0, read = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      scheduler.submit({.prompt = c.prompts[i],
                        .generate = options,
                        .on_start = [&](int64_t) { ++begun; },
                        .on_end =
                            [&, i](const Generated& out, int64_t) {
                              answers[i] = out;
                              read += out.timings.prompt_tokens;
                            }});
    }
    for (; begun < std::ssize(answers); ++passes) scheduler.pass();
    while (!scheduler.idle()) scheduler.pass();
    EXPECT_EQ(passes, c.passes);
    EXPECT_EQ(read, c.read);
    for (size_t i = 0; i < answers.size(); ++i)
      expect_same({.ids = answers[i].ids, .logprobs = answers[i].logprobs}, alone(fresh, c.prompts[i], options));
  }
}

// Requests that come one after the other do not keep the answers of an earlier one waiting for ever.
TEST(Scheduler, AnswersOfOneRequestWaitForAFewLaterOnesAlone) {
  LanguageModel model = chat(2, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  int64_t ended = 0, others = 0;
  for (int64_t i = 0; i < 4; ++i) {
    scheduler.submit({.prompt = encode(model, "Hi"),
                      .generate = {.tokens_max = 2, .ignore_eos = true},
                      .ordinal = i,
                      .on_end = [&](const Generated&, int64_t) { ++ended; }});
  }
  while (ended < 4 && others < 100) {
    while (scheduler.waiting() < 6) {
      ++others;
      scheduler.submit({.prompt = encode(model, "Hi"),
                        .generate = {.tokens_max = 2, .ignore_eos = true},
                        .on_end = [](const Generated&, int64_t) {}});
    }
    scheduler.pass();
  }
  EXPECT_EQ(ended, 4);
  EXPECT_LT(others, 30);
}

// A client that comes when others have been served for long waits for about a turn of each of them.
TEST(Scheduler, ANewcomerWaitsForOneTurnOfEachClient) {
  LanguageModel model = chat(2, 16, false, kMemory);
  Scheduler scheduler(model.runner());
  constexpr int64_t kClients = 6, kEach = 40;
  int64_t ended = 0;
  const auto request = [&](int64_t ordinal, std::function<void(Generated, int64_t)> on_end) {
    return Request{.prompt = encode(model, "Hi"),
                   .generate = {.tokens_max = 1, .ignore_eos = true},
                   .ordinal = ordinal,
                   .on_end = std::move(on_end)};
  };
  for (int64_t client = 0; client < kClients; ++client) {
    for (int64_t i = 0; i < kEach; ++i) scheduler.submit(request(i, [&](const Generated&, int64_t) { ++ended; }));
  }
  for (const int64_t after : {60, 120}) {
    while (ended < after) scheduler.pass();
    bool done = false;
    const int64_t before = ended;
    scheduler.submit(request(0, [&](const Generated&, int64_t) { done = true; }));
    while (!done) scheduler.pass();
    EXPECT_LE(ended - before, 2 * kClients + 4) << after;
  }
}

}  // namespace
}  // namespace braid::engine
