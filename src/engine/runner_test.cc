// What the runner promises besides equal bits, which tests/row_contract_test.cc checks on whole models.
#include "engine/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ref.h"
#include "engine/language_model.h"
#include "support/data.h"
#include "support/error_of.h"

namespace braid::engine {
namespace {

const std::string kModel = support::data("tiny-chat");

Piece step_of(int64_t tokens, bool tentative = false) {
  return {.tokens = tokens, .phase = Phase::step, .tentative = tentative};
}

// Far more sequences than memory holds: the error says how much their states need.
std::string needed(const RunnerOptions& options) {
  const std::string text = support::error_of([&] { LanguageModel model(kModel, options); });
  const size_t at = text.find("expected ");
  return at == std::string::npos ? "nothing was refused" : text.substr(at, text.find(" GiB", at) - at);
}

TEST(Runner, CountsWhatExactAndSpareSlotsTake) {
  LanguageModel model(kModel, {.context = 64, .threads = 1});
  const auto gib = [&](bool exact, int64_t slots, int64_t sequences) {
    const SequenceBytes bytes = sequence_bytes(model.runner().model().state_shapes(), {.kv = DType::bf16}, exact);
    const auto need = static_cast<double>(slots) * static_cast<double>(bytes.fixed) +
                      64 * static_cast<double>(sequences) * static_cast<double>(bytes.per_token);
    return fmt::format("expected {:.1f}", need / (1 << 30));
  };
  constexpr int64_t kMany = int64_t{1} << 28;
  EXPECT_EQ(needed({.context = 64, .sequences = kMany}), gib(false, kMany, kMany));
  const Numerics exact = Numerics::serving(DType::bf16, true);
  EXPECT_EQ(needed({.numerics = exact, .context = 64, .sequences = kMany}), gib(true, kMany, kMany));
  EXPECT_EQ(needed({.numerics = exact, .context = 64, .spare_slots = kMany}), gib(true, kMany + 1, 1));
  EXPECT_NE(gib(false, kMany, kMany), gib(true, kMany, kMany));
}

TEST(Runner, ATentativeStepCanBeForgotten) {
  LanguageModel model(kModel, {.context = 64, .spare_slots = 8, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids = {5, 6, 7, 8, 9};
  runner.prefill(0, ids, [](const Tensor&) {});
  const Piece guess = step_of(5, true);
  runner.forward(ids, {&guess, 1});
  EXPECT_EQ(runner.length(0), 5);
  EXPECT_EQ(runner.spare_slots(), 7);
  runner.reset(0);
  EXPECT_EQ(runner.length(0), 0);
  EXPECT_EQ(runner.spare_slots(), 8);
  runner.forward(ids, {&guess, 1});
  runner.keep(0, 5);
  EXPECT_EQ(runner.length(0), 5);
  EXPECT_EQ(runner.spare_slots(), 8);
}

// The logits after a prompt and three steps, of the sequence itself or of its fork.
std::vector<double> logits_after_steps(const Numerics& numerics, bool forked) {
  const std::vector<int32_t> ids = {5, 6, 7, 8, 9, 10, 11, 12}, more = {13, 14, 15};
  LanguageModel model(kModel, {.numerics = numerics, .context = 64, .sequences = 2, .threads = 1});
  Runner& runner = model.runner();
  runner.prefill(0, ids, [](const Tensor&) {});
  if (forked) {
    runner.fork(0, 1);
    runner.step(0, 5);
  }
  Tensor last;
  for (const int32_t id : more) last = runner.step(forked ? 1 : 0, id);
  return to_doubles(last.view());
}

// Caches of fewer bits: logits close to FP32's but not equal, the same in every run and in a fork.
void expect_near_f32(const Numerics& numerics, double bound, const char* what) {
  const std::vector<double> want = logits_after_steps(Numerics::serving(DType::f32), false),
                            got = logits_after_steps(numerics, false);
  double size = 0, far = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    size = std::max(size, std::abs(want[i]));
    far = std::max(far, std::abs(got[i] - want[i]));
  }
  EXPECT_LE(far, bound * size) << what;
  EXPECT_GT(far, 0) << what;
  EXPECT_EQ(logits_after_steps(numerics, false), got) << what;
  EXPECT_EQ(logits_after_steps(numerics, true), got) << what;
}

TEST(Runner, KeysAndValuesOfOneByte) {
  for (const auto& [dtype, bound] : {std::pair{DType::f8_e4m3, 0.1}, {DType::i8, 0.02}}) {
    Numerics numerics = Numerics::serving(DType::f32);
    numerics.kv = dtype;
    expect_near_f32(numerics, bound, name_of(dtype));
  }
}

TEST(Runner, StatesOfFewerBits) {
  for (const auto& [dtype, bound] : {std::pair{DType::bf16, 0.05}, {DType::f16, 0.01}, {DType::i8, 0.1}}) {
    Numerics numerics = Numerics::serving(DType::f32);
    numerics.ssm = dtype;
    expect_near_f32(numerics, bound, name_of(dtype));
  }
}

TEST(RunnerDeath, MisuseIsABug) {
  LanguageModel model(kModel, {.context = 64, .sequences = 2, .spare_slots = 2, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids = {5, 6};
  const std::vector<Piece> twice = {step_of(1), step_of(1)};
  EXPECT_DEATH(runner.forward(ids, twice), "sequence 0 twice in a pass");
  const Piece guess = step_of(2, true), outside{.sequence = 2, .tokens = 2};
  EXPECT_DEATH(runner.forward(ids, {&outside, 1}), "sequence 2 of 2");
  runner.forward(ids, {&guess, 1});
  EXPECT_DEATH(runner.forward(ids, {&guess, 1}), "sequence 0 waits for `keep`");
  EXPECT_DEATH(runner.fork(0, 1), "a fork of sequence 0");
  EXPECT_DEATH(runner.keep(0, 3), "3 tokens of a tentative step of 2");
  runner.keep(0, 2);
  ASSERT_TRUE(runner.mark(0));
  ASSERT_TRUE(runner.mark(1));
  EXPECT_DEATH(runner.forward(ids, {&guess, 1}), "no free slot for a tentative step of sequence 0");
}

// A state that is stored in fewer bits is rounded after every token, replayed or not.
TEST(Runner, KeptTokensLeaveTheStateOfSingleSteps) {
  for (const DType stored : {DType::f32, DType::bf16, DType::f16, DType::i8}) {
    Numerics numerics = Numerics::serving(DType::f32);
    numerics.ssm = stored;
    LanguageModel model(kModel, {.numerics = numerics, .context = 64, .sequences = 3, .spare_slots = 2, .threads = 1});
    Runner& runner = model.runner();
    const std::vector<int32_t> prompt = {5, 6, 7}, guessed = {8, 9, 10, 11};
    for (int64_t kept = 0; kept <= 4; ++kept) {
      for (int64_t sequence = 0; sequence < 3; ++sequence) {
        runner.reset(sequence);
        runner.prefill(sequence, prompt, [](const Tensor&) {});
      }
      std::vector<int32_t> ids;  // two guesses and what another reads between them
      std::vector<Piece> pieces;
      for (const int64_t sequence : {1, 2, 0}) {
        pieces.push_back(step_of(4, sequence != 2));
        pieces.back().sequence = sequence;
        ids.insert(ids.end(), guessed.begin(), guessed.end());
      }
      runner.forward(ids, pieces);
      runner.keep(1, 4 - kept);
      runner.keep(0, kept);
      runner.reset(2);
      runner.prefill(2, prompt, [](const Tensor&) {});
      for (int64_t i = 0; i < kept; ++i) runner.step(2, guessed[static_cast<size_t>(i)]);
      EXPECT_EQ(to_doubles(runner.step(0, 12).view()), to_doubles(runner.step(2, 12).view()))
          << name_of(stored) << " " << kept;
    }
  }
}

// The rest of a sequence repeats its first page, and a step reads all of it.
TEST(Runner, PretendsToHaveRead) {
  LanguageModel model(kModel, {.context = 400, .sequences = 2, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids(100, 5);
  for (const int64_t sequence : {1, 0}) runner.prefill(sequence, ids, [](const Tensor&) {});
  const Tensor near = runner.step(1, 7);
  runner.pretend(0, 331);
  EXPECT_EQ(runner.length(0), 331);
  const int32_t* pages = runner.state().page_table.as<int32_t>(0);
  int64_t compared = 0;
  for (const nn::BlockState& block : runner.state().blocks) {
    for (const MutView& v : block.by_page()) {
      for (int64_t i = 1; v && i < 6; ++i, ++compared)
        EXPECT_EQ(to_doubles(v.slice(0, pages[i], 1)), to_doubles(v.slice(0, pages[0], 1))) << i;
    }
  }
  EXPECT_GE(compared, 10);
  EXPECT_NE(to_doubles(runner.step(0, 7).view()), to_doubles(near.view()));
  EXPECT_EQ(runner.length(0), 332);
}

// Nemotron-H encodes no positions: measurements may exceed the trained length.
TEST(Runner, AContextBeyondTraining) {
  const std::string refused = support::error_of([&] { LanguageModel model(kModel, {.context = 5000, .threads = 1}); });
  EXPECT_NE(refused.find("at most 4096 (max_position_embeddings)"), std::string::npos) << refused;
  LanguageModel model(kModel, {.context = 5000, .beyond_training = true, .threads = 1});
  EXPECT_EQ(model.runner().options().context, 5000);
  const std::string nas = support::data("hf/nemotron-nas");
  const std::string rotary =
      support::error_of([&] { LanguageModel other(nas, {.context = 1 << 20, .beyond_training = true}); });
  EXPECT_NE(rotary.find("longer than the model allows"), std::string::npos) << rotary;
}

// An error before the pass leaves every sequence as it was.
TEST(Runner, ATooLongSequenceChangesNothing) {
  LanguageModel model(kModel, {.context = 64, .sequences = 2, .spare_slots = 4, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids(63, 5), next(4, 6);
  runner.prefill(1, ids, [](const Tensor&) {});
  const std::vector<Piece> pieces = {step_of(2, true), {.sequence = 1, .tokens = 2}};
  EXPECT_THROW(runner.forward(next, pieces), Error);
  EXPECT_EQ(runner.length(0), 0);
  EXPECT_EQ(runner.length(1), 63);
  EXPECT_EQ(runner.spare_slots(), 4);
  runner.step(0, 5);
  runner.step(1, 5);
  EXPECT_EQ(runner.length(1), 64);
}

}  // namespace
}  // namespace braid::engine
