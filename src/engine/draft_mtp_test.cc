// The prediction block, fed piece by piece, drafts what it predicts for a whole text; answers do not change.
#include "engine/draft_mtp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "core/ref.h"
#include "engine/language_model.h"
#include "engine/scheduler.h"
#include "support/data.h"

namespace braid::engine {
namespace {

LanguageModel shipped(int64_t sequences, int64_t spare, bool exact = false, int64_t memory = 0) {
  Numerics numerics = Numerics::serving(DType::bf16, exact);
  return {support::shipped_tiny(),
          {.numerics = numerics,
           .context = 512,
           .sequences = sequences,
           .memory = memory,
           .spare_slots = spare,
           .chunk = 32,
           .threads = 1}};
}

std::vector<int32_t> asked(LanguageModel& model, const std::string& question) {
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", question}}};
  return model.tokenizer().encode(model.render(messages, {.think = false}), false);
}

int32_t best_of(const Tensor& logits, int64_t row) {
  const float* values = logits.view().as<float>() + row * logits.dim(1);
  return static_cast<int32_t>(std::max_element(values, values + logits.dim(1)) - values);
}

// Two drafts after all but the last token of the text, in passes over the whole of it.
std::vector<int32_t> drafts_of_whole(Runner& runner, std::vector<int32_t> text) {
  const int64_t width = runner.config().hidden, rows = std::ssize(text) - 1;
  std::vector<float> values;
  runner.reset(0);
  runner.prefill(0, text, [&](const Tensor& x) {
    const Tensor hidden = runner.final_hidden(x);
    values.insert(values.end(), hidden.view().as<float>(), hidden.view().as<float>() + hidden.view().count());
  });
  const auto step = [&](const std::vector<int32_t>& ids) {
    const Tensor hidden(runner.ctx().arena, DType::f32, {std::ssize(ids) - 1, width});
    std::memcpy(hidden.mut().data, values.data(), static_cast<size_t>(hidden.view().bytes()));
    const Runner::MtpPiece all{.position = 0, .tokens = hidden.dim(0)};
    return runner.mtp_step(std::span(ids).subspan(1), hidden, {&all, 1});
  };
  const Tensor first = step(text);
  const int64_t last = rows - 1;
  const Tensor row = runner.rows(first, {&last, 1});
  text.push_back(best_of(runner.mtp_head(row), 0));
  const std::vector<double> returned = to_doubles(row.view());
  std::ranges::transform(returned, values.begin() + rows * width, [](double v) { return static_cast<float>(v); });
  const Tensor second = step(text);
  return {text.back(), best_of(runner.mtp_head(second), rows)};
}

TEST(DraftMtp, PiecesDraftWhatAWholeTextDoes) {
  LanguageModel model = shipped(3, 0), whole = shipped(1, 0);
  Runner& runner = model.runner();
  MtpDrafter drafter(runner);
  const std::vector<int32_t> text = asked(model, "Repeat: stone, river, cloud, 17 + 25, stone, river");
  std::mt19937 random(3);
  for (int round = 0; round < 6; ++round) {
    const int64_t sequence = round % 3;
    runner.reset(sequence);
    MtpState state;
    int64_t read = 0, other = 0;
    while (read + 1 < std::ssize(text)) {
      const int64_t tokens = std::min<int64_t>(1 + static_cast<int64_t>(random() % 9), std::ssize(text) - 1 - read);
      const Piece piece{.sequence = sequence, .tokens = tokens};
      const Tensor x =
          runner.forward(std::span(text).subspan(static_cast<size_t>(read), static_cast<size_t>(tokens)), {&piece, 1});
      drafter.note(state, x, 0, tokens);
      read += tokens;
      if (read + 1 < std::ssize(text) && random() % 2 == 0) continue;
      const std::vector<int32_t> known(text.begin(), text.begin() + read + 1);
      const MtpDrafter::Wanted wanted{.state = &state, .sequence = sequence, .text = known, .tokens = 2};
      const auto drafts = drafter.draft({&wanted, 1});
      EXPECT_EQ(drafts[0], drafts_of_whole(whole.runner(), known)) << read;
      EXPECT_EQ(state.read, read);
      ++other;
    }
    EXPECT_GT(other, 0);
  }
}

// Tokens in a page that a fork shares are not read, and the page is not copied.
TEST(DraftMtp, SharedPagesStayAsTheyAre) {
  LanguageModel model = shipped(2, 0);
  Runner& runner = model.runner();
  MtpDrafter drafter(runner);
  const std::vector<int32_t> text(66, 300);
  MtpState state;
  for (const int64_t tokens : {64, 1}) {
    const Piece piece{.tokens = tokens};
    drafter.note(state, runner.forward(std::span(text).first(static_cast<size_t>(tokens)), {&piece, 1}), 0, tokens);
    if (tokens == 64) runner.fork(0, 1);
    const MtpDrafter::Wanted wanted{
        .state = &state, .text = std::span(text).first(static_cast<size_t>(runner.length(0)) + 1), .tokens = 2};
    EXPECT_EQ(drafter.draft({&wanted, 1})[0].size(), tokens == 64 ? 0u : 2u);
    EXPECT_EQ(state.read, runner.length(0));
  }
  EXPECT_FALSE(runner.mtp_has_pages({.position = 63, .tokens = 1}));
  EXPECT_TRUE(runner.mtp_has_pages({.position = 64, .tokens = 1}));
  EXPECT_FALSE(runner.mtp_has_pages({.position = 65, .tokens = 512}));  // past the context
}

// Of questions at once, through a cache that their turns continue from: the tokens are those of answers without drafts,
// and most drafts are right.
TEST(DraftMtp, AnswersOfDraftsAreThoseWithout) {
  for (const bool exact : {false, true}) {
    LanguageModel plain = shipped(1, 0, exact), drafting = shipped(3, 12, exact, exact ? 256 << 20 : 0);
    Scheduler without(plain.runner()),
        with(drafting.runner(), {.ngram = exact, .mtp = true, .tokens_max = 3, .always = true});
    int64_t drafted = 0, accepted = 0;
    for (const double temperature : {0.0, 1.0}) {
      for (const char* first : {"What is 17 + 25?", "Repeat: stone, river, cloud", "Hi"}) {
        std::vector<std::vector<int32_t>> prompts;
        for (const char* more : {"", " Please.", " What is 3 * 4?"})
          prompts.push_back(asked(plain, std::string(first) + more));
        std::vector<std::vector<int32_t>> want(3), got(3);
        for (size_t i = 0; i < prompts.size(); ++i) {
          for (const bool is_drafting : {false, true}) {
            const GenerateOptions options{.tokens_max = 40, .sampling = {.temperature = temperature, .seed = i}};
            (is_drafting ? with : without)
                .submit({.prompt = prompts[i],
                         .generate = options,
                         .marks = {std::ssize(prompts[i]) - 4},
                         .on_end = [&, i, is_drafting](Generated out, int64_t) {
                           drafted += out.timings.drafted_tokens;
                           accepted += out.timings.accepted_tokens;
                           (is_drafting ? got : want)[i] = std::move(out.ids);
                         }});
          }
        }
        while (!without.idle()) without.pass();
        while (!with.idle()) with.pass();
        EXPECT_EQ(got, want) << first << (exact ? ", exact" : "");
        if (!exact) {  // without a cache, which has slots of its own
          EXPECT_EQ(drafting.runner().spare_slots(), 12);
        }
      }
    }
    EXPECT_GT(3 * accepted, drafted) << exact;
  }
}

}  // namespace
}  // namespace braid::engine
