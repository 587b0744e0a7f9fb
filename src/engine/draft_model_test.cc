// The draft model follows the text of each answer and discards its rejected guesses; drafts never change an answer.
#include "engine/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "engine/scheduler.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "support/other_weights.h"

namespace braid::engine {
namespace {

RunnerOptions small_options(int64_t sequences, int64_t spare, bool exact = false, int64_t memory = 0) {
  Numerics numerics = Numerics::serving(DType::f32);
  numerics.exact = exact;
  return {.numerics = numerics,
          .context = 128,
          .sequences = sequences,
          .memory = memory,
          .spare_slots = spare,
          .chunk = 16,
          .threads = 1};
}

struct Answered {
  std::vector<std::vector<int32_t>> ids{};
  int64_t drafted = 0, accepted = 0;
};

// Five questions to `sequences` at a time, one of them longer than a piece.
Answered answered(LanguageModel& model, const GenerateOptions& options, DraftOptions drafts) {
  Scheduler scheduler(model.runner(), std::move(drafts));
  const std::vector<std::string> texts = {"What is 17 + 25?", "Hi", "Reverse the word stone. Reverse the word river.",
                                          "9", "<think>\n1 2 3 1 2 3 1 2"};
  Answered out;
  out.ids.resize(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    Request request{.prompt = model.tokenizer().encode(texts[i], false), .generate = options};
    request.generate.sampling.seed += i;
    request.on_end = [&out, i](Generated generated, int64_t) {
      out.drafted += generated.timings.drafted_tokens;
      out.accepted += generated.timings.accepted_tokens;
      out.ids[i] = std::move(generated.ids);
    };
    scheduler.submit(std::move(request));
  }
  while (!scheduler.idle()) scheduler.pass();
  return out;
}

void expect_nothing_held(Runner& runner, const std::string& when) {
  EXPECT_EQ(runner.pool().slots_in_use(), 0) << when;
  EXPECT_EQ(runner.pool().pages_in_use(), 0) << when;
  for (int64_t i = 0; i < runner.options().sequences; ++i) EXPECT_EQ(runner.length(i), 0) << when;
}

const std::vector<GenerateOptions>& ways() {
  static const std::vector<GenerateOptions> all = {
      {.tokens_max = 40, .ignore_eos = true},
      {.tokens_max = 40,
       .sampling = {.temperature = 0.9, .top_k = 30, .top_p = 0.95, .repeat_penalty = 1.2, .seed = 4},
       .ignore_eos = true},
      {.tokens_max = 30, .sampling = {.temperature = 1.2, .presence_penalty = 0.4, .seed = 9}, .ignore_eos = true}};
  return all;
}

// By the same random numbers, at any temperature.
TEST(DraftModel, TheModelItselfDraftsWhatIsDrawn) {
  LanguageModel model(support::data("tiny-chat"), small_options(2, 12));
  RunnerOptions options = small_options(2, 12);
  const DraftModel draft = load_draft_model(support::data("tiny-chat"), options);
  for (const GenerateOptions& way : ways()) {
    const Answered want = answered(model, way, {});
    const Answered got = answered(model, way, {.model = draft.runner.get(), .tokens_max = 4, .always = true});
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_GT(got.drafted, 60);
    EXPECT_GE(got.accepted * 100, got.drafted * 95);
    expect_nothing_held(*draft.runner, "after all answers");
  }
}

TEST(DraftModel, AnotherModelChangesNoToken) {
  const support::Folder other;
  support::write_with_other_weights(support::data("tiny-chat"), other, 4);
  for (const bool exact : {true, false}) {
    for (const int64_t memory : {int64_t{0}, int64_t{64} << 20}) {
      RunnerOptions options = small_options(3, 12, exact, memory);
      const DraftModel draft = load_draft_model(other.path().string(), options);
      LanguageModel model(support::data("tiny-chat"), options),
          plain(support::data("tiny-chat"), small_options(1, 0, exact));
      for (const GenerateOptions& way : ways()) {
        const Answered want = answered(plain, way, {});
        for (const bool always : {true, false}) {
          const Answered got =
              answered(model, way, {.ngram = !always, .model = draft.runner.get(), .tokens_max = 4, .always = always});
          EXPECT_EQ(got.ids, want.ids) << exact << memory << always;
          if (always) {
            EXPECT_GT(got.accepted, 10);
            EXPECT_LT(got.accepted, got.drafted);
          }
        }
      }
      expect_nothing_held(*draft.runner, "after all answers");
    }
  }
}

// The drafts are those of a drafter that has read nothing but the text, whatever became of earlier ones.
TEST(DraftModel, WrongGuessesAreUndone) {
  RunnerOptions options = small_options(2, 0), one = small_options(1, 0);
  const DraftModel draft = load_draft_model(support::data("tiny-chat"), options),
                   fresh = load_draft_model(support::data("tiny-chat"), one);
  ModelDrafter drafter(*draft.runner), again(*fresh.runner);
  std::mt19937 random(2);
  std::vector<std::vector<int32_t>> texts = {std::vector<int32_t>(19, 45), {1, 40, 41}};
  std::vector<ModelDraftState> states;
  for (int i = 0; i < 2; ++i) states.push_back(*drafter.begin(128));
  for (int round = 0; round < 20; ++round) {
    std::vector<TokenPicker> pickers;
    std::vector<ModelDrafter::Wanted> wanted;
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 4);
    for (const auto& text : texts) pickers.emplace_back(GenerateOptions{}, text, std::span<const int64_t>{});
    for (size_t i = 0; i < 2; ++i) wanted.push_back({.state = &states[i], .picker = &pickers[i], .tokens = tokens});
    auto drafts = drafter.draft(wanted);
    if (std::ssize(texts[0]) > 16 && round == 0) {  // more than a piece
      EXPECT_TRUE(drafts[0].empty());
      drafts[0] = drafter.draft({wanted.data(), 1})[0];
    }
    for (size_t i = 0; i < 2; ++i) {
      ModelDraftState state = *again.begin(128);
      const ModelDrafter::Wanted alone{.state = &state, .picker = &pickers[i], .tokens = tokens};
      std::vector<int32_t> want;
      while (want.empty()) want = again.draft({&alone, 1})[0];
      again.end(state);
      ASSERT_EQ(drafts[i], want) << round << " " << i;
      const size_t right = random() % (drafts[i].size() + 1);
      texts[i].insert(texts[i].end(), drafts[i].begin(), drafts[i].begin() + static_cast<std::ptrdiff_t>(right));
      // One that was drawn instead, and at times more, which something else drafted.
      for (unsigned more = random() % 3 == 0 ? 3 : 1; more-- > 0;)
        texts[i].push_back(static_cast<int32_t>(40 + random() % 200));
    }
  }
  for (ModelDraftState& state : states) drafter.end(state);
  expect_nothing_held(*draft.runner, "at the end");
}

// Answers that end early, by their callback, by their client or all at once, and those that come meanwhile.
TEST(DraftModel, EndedAnswersHoldNoSequence) {
  RunnerOptions options = small_options(2, 12);
  const DraftModel draft = load_draft_model(support::data("tiny-chat"), options);
  LanguageModel model(support::data("tiny-chat"), options);
  {
    Scheduler scheduler(model.runner(), {.model = draft.runner.get(), .tokens_max = 4, .always = true});
    std::mt19937 random(1);
    bool wanted = true;
    int64_t ended = 0, most = 0;
    for (int i = 0; i < 40; ++i) {
      Request request{.prompt = std::vector<int32_t>(1 + random() % 40, 45), .generate = {.tokens_max = 12}};
      request.wanted = [&, i] { return i % 3 != 0 || wanted; };
      request.on_token = [&, i, left = i % 5](int32_t) mutable { return i % 2 == 0 || left-- > 0; };
      request.on_end = [&](Generated, int64_t) { ++ended; };
      scheduler.submit(std::move(request));
      for (int pass = 0; pass < 2; ++pass) scheduler.pass();
      wanted = random() % 2 == 0;
      most = std::max(most, draft.runner->pool().slots_in_use());
    }
    EXPECT_GT(most, 0);
    scheduler.cancel();
    EXPECT_EQ(ended, 40);
    expect_nothing_held(*draft.runner, "after a cancellation");
  }
}

// An answer that the draft model has no room for goes on without it.
TEST(DraftModel, ItsMemoryIsPartOfTheBudget) {
  constexpr int64_t kMemory = 64 << 20;
  RunnerOptions options = small_options(8, 12, false, kMemory);
  const DraftModel draft = load_draft_model(support::data("tiny-chat"), options);
  const int64_t weights = weight_bytes(draft.runner->model());
  EXPECT_GT(weights, 100'000);
  EXPECT_EQ(options.memory + draft.runner->options().memory + weights, kMemory);
  EXPECT_GT(draft.runner->options().memory, 0);
  RunnerOptions little = small_options(8, 12, false, (24 << 20) + weights);
  const DraftModel small = load_draft_model(support::data("tiny-chat"), little);
  EXPECT_EQ(small.runner->options().memory, 6 << 20);
  ModelDrafter drafter(*small.runner);
  std::vector<ModelDraftState> states;
  while (auto state = drafter.begin(128)) {
    const std::vector<int32_t> text(128, 45);
    const TokenPicker picker({}, text, {});
    states.push_back(*state);
    for (int i = 0; i < 8; ++i) {
      const ModelDrafter::Wanted wanted{.state = &states.back(), .picker = &picker, .tokens = 0};
      if (drafter.unread(states.back(), text) > 0) drafter.draft({&wanted, 1});
    }
    EXPECT_LE(small.runner->pool().bytes_in_use(), 6 << 20);
  }
  EXPECT_GT(states.size(), 0u);
  EXPECT_LT(states.size(), 8u);
  RunnerOptions none = small_options(8, 12, false, weights);
  EXPECT_NE(
      support::error_of([&] { (void)load_draft_model(support::data("tiny-chat"), none); }).find("its weights do not"),
      std::string::npos);
}

TEST(DraftModel, ItsMemoryIsShown) {
  RunnerOptions options = small_options(2, 12, false, 64 << 20);
  const DraftModel draft = load_draft_model(support::data("tiny-chat"), options);
  LanguageModel model(support::data("tiny-chat"), options);
  Scheduler plain(model.runner());
  EXPECT_EQ(plain.memory().draft_bytes_max, 0);
  Scheduler scheduler(model.runner(), {.model = draft.runner.get(), .tokens_max = 4, .always = true});
  scheduler.submit({.prompt = std::vector<int32_t>(10, 45), .generate = {.tokens_max = 9, .ignore_eos = true}});
  int64_t most = 0;
  while (!scheduler.idle()) {
    scheduler.pass();
    most = std::max(most, scheduler.memory().draft_bytes);
  }
  const MemoryUse use = scheduler.memory();
  EXPECT_GE(most, draft.runner->sequence_bytes_of(10));
  EXPECT_LE(most, use.draft_bytes_max);
  EXPECT_EQ(use.draft_bytes, 0);
  EXPECT_EQ(use.bytes_max + use.draft_bytes_max + use.draft_weight_bytes, 64 << 20);
}

TEST(DraftModel, TheFirstTokenThatDiffersIsNamed) {
  RunnerOptions options = small_options(1, 0);
  LanguageModel model(support::data("tiny-chat"), options);
  const auto refusal = [&](const std::string& folder) {
    return support::error_of([&] { check_same_tokens(model, load_draft_model(folder, options)); });
  };
  EXPECT_EQ(refusal(support::data("tiny-chat")), "");
  EXPECT_NE(refusal(support::shipped_tiny()).find("[--draft-model] the vocabularies differ in size; got "),
            std::string::npos);
  const support::Folder other;
  support::write_with_other_weights(support::data("tiny-chat"), other, 2);
  std::string json = sys::read_file(other.path() / "tokenizer.json");
  for (size_t at; (at = json.find("\"<think>\"")) != std::string::npos;) json.replace(at, 9, "\"<thank>\"");
  other.write("tokenizer.json", json);
  EXPECT_NE(refusal(other.path().string()).find("got '<thank>'; expected '<think>' as in the model"), std::string::npos)
      << refusal(other.path().string());
}

}  // namespace
}  // namespace braid::engine
