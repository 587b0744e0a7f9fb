// Ranks, as threads of this process, that answer together: the logits of one rank, the same bits on all of them and in
// every batch, their own heads in memory, and the first one's word on what they cannot know alike.
#include "engine/ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "comm/inproc.h"
#include "engine/language_model.h"
#include "support/data.h"
#include "support/ranks.h"

namespace braid::engine {
namespace {

const std::vector<int32_t> kPrompt = {5, 60, 7, 118, 9, 10, 3, 77, 41, 12, 100, 2};
using Rows = std::vector<float>;

Rows values_of(const Tensor& t) { return {t.view().as<float>(), t.view().as<float>() + t.view().count()}; }

RunnerOptions options_of(Ranks* ranks, int64_t sequences) {
  return {
      .numerics = Numerics::serving(DType::f32), .context = 128, .sequences = sequences, .threads = 1, .ranks = ranks};
}

// What `of` gives on every rank.
std::vector<Rows> on_ranks(const std::string& model, const models::Division& division, int64_t sequences,
                           const std::function<Rows(Runner&)>& of) {
  const comm::Options options{.timeout = std::chrono::seconds(60)};
  return support::on_ranks(static_cast<int>(division.ranks()), options, [&](comm::Group& world) {
    Ranks ranks(world, division);
    LanguageModel lm(model, options_of(&ranks, sequences));
    return of(lm.runner());
  });
}

// The logits of a prompt, read in pieces, and of three steps after it.
Rows logits_of(Runner& runner) {
  Rows all;
  const auto add = [&](const Tensor& logits) {
    const Rows rows = values_of(logits);
    all.insert(all.end(), rows.begin(), rows.end());
  };
  const std::span<const int32_t> prompt(kPrompt);
  for (const auto& part : {prompt.first(7), prompt.subspan(7)}) {
    const Piece piece{.tokens = std::ssize(part)};
    add(runner.logits(runner.forward(part, {&piece, 1})));
  }
  for (const int32_t id : {8, 30, 4}) add(runner.step(0, id));
  return all;
}

TEST(Ranks, HaveTheLogitsOfOne) {
  const std::vector<models::Division> divisions = {{.tp = 2},          {.tp = 4},          {.pp = 2},
                                                   {.ep = 4},          {.tp = 4, .ep = 2}, {.tp = 2, .ep = 4},
                                                   {.tp = 2, .pp = 2}, {.pp = 2, .ep = 2}};
  for (const std::string& model : {support::data("tiny-chat"), support::data("hf/nemotron-h-latent-mtp")}) {
    LanguageModel one(model, options_of(nullptr, 1));
    const Rows want = logits_of(one.runner());
    for (const models::Division& d : divisions) {
      const std::vector<Rows> all = on_ranks(model, d, 1, logits_of);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(all[0][i], want[i], 1e-4) << model << " tp " << d.tp << " pp " << d.pp << " ep " << d.ep;
      for (const Rows& other : all) ASSERT_EQ(other, all[0]);
    }
  }
}

TEST(Ranks, LossesAreThoseOfOne) {
  const auto losses = [](Runner& runner) {
    const Piece piece{.tokens = std::ssize(kPrompt) - 1};
    const std::span<const int32_t> ids(kPrompt);
    return values_of(runner.token_losses(runner.forward(ids.first(ids.size() - 1), {&piece, 1}), ids.subspan(1)));
  };
  const std::string model = support::data("hf/nemotron-h-latent-mtp");
  LanguageModel one(model, options_of(nullptr, 1));
  const Rows want = losses(one.runner());
  for (const models::Division& d : std::vector<models::Division>{{.tp = 4}, {.pp = 3}, {.tp = 2, .pp = 2}}) {
    for (const Rows& got : on_ranks(model, d, 1, losses)) {
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4);
    }
  }
}

TEST(Ranks, HaveTheLogitsOfThePredictionBlock) {
  const auto logits = [](Runner& runner) {
    const Piece piece{.tokens = std::ssize(kPrompt)};
    return values_of(runner.mtp_logits(kPrompt, runner.final_hidden(runner.forward(kPrompt, {&piece, 1}))));
  };
  const std::string model = support::data("hf/nemotron-h-latent-mtp");
  LanguageModel one(model, options_of(nullptr, 1));
  const Rows want = logits(one.runner());
  for (const Rows& got : on_ranks(model, {.tp = 4, .ep = 2}, 1, logits)) {
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4);
  }
}

// Alone, sums of a piece are short; together they are long enough for the algorithm of long ones.
TEST(Ranks, KeepTheRowContract) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 80; ++i) ids.push_back(3 + i * 7 % 120);
  const std::span<const int32_t> both(ids);
  const auto alone = [&](Runner& runner) {
    const Piece piece{.sequence = 1, .tokens = 40};
    return values_of(runner.logits(runner.forward(both.last(40), {&piece, 1})));
  };
  const auto together = [&](Runner& runner) {
    const Piece pieces[] = {{.sequence = 0, .tokens = 40}, {.sequence = 1, .tokens = 40}};
    const Tensor x = runner.forward(both, pieces);
    std::vector<int64_t> rows;
    for (int64_t row = 40; row < 80; ++row) rows.push_back(row);
    return values_of(runner.logits(runner.rows(x, rows)));
  };
  for (const models::Division& d : std::vector<models::Division>{{.tp = 4}, {.ep = 4}, {.tp = 2, .pp = 2}}) {
    const std::string model = support::data("tiny-chat");
    EXPECT_EQ(on_ranks(model, d, 2, alone)[0], on_ranks(model, d, 2, together)[0]) << "tp " << d.tp;
  }
}

TEST(Ranks, HoldTheKeysValuesAndStatesOfTheirHeads) {
  const auto bytes = [](Runner& runner) {
    return Rows{static_cast<float>(runner.pool().page_bytes()), static_cast<float>(runner.pool().slot_bytes())};
  };
  const std::string model = support::data("tiny-chat");  // 2 keys and values, 2 groups, 8 heads
  LanguageModel one(model, options_of(nullptr, 1));
  const Rows want = bytes(one.runner());
  for (const Rows& got : on_ranks(model, {.tp = 2}, 1, bytes)) {
    EXPECT_EQ(got[0], want[0] / 2);
    EXPECT_EQ(got[1], want[1] / 2);
  }
  for (const Rows& got : on_ranks(model, {.tp = 4}, 1, bytes)) {
    EXPECT_EQ(got[0], want[0] / 2);  // each pair of ranks shares keys and values
    EXPECT_GT(got[1], want[1] / 4);  // and B and C of a group
    EXPECT_LT(got[1], want[1] / 2);
  }
}

TEST(Ranks, DoAsTheFirstSays) {
  comm::run_in_process(3, {.timeout = std::chrono::seconds(60)}, [](comm::Group& world) {
    Ranks ranks(world, {.pp = 3});
    EXPECT_EQ(ranks.agreed(1.25 + world.rank()), 1.25);
    EXPECT_EQ(ranks.agreed(std::string(static_cast<size_t>(world.rank()), 'x')), "");
    EXPECT_EQ(ranks.agreed(world.rank() == 0 ? "the first" : "another"), "the first");
    EXPECT_EQ(ranks.least(7 - world.rank()), 5);
    EXPECT_EQ(ranks.total(world.rank() + 1), 6);
    EXPECT_EQ(ranks.first(), world.rank() == 0);
    EXPECT_EQ(ranks.last_stage(), world.rank() == 2);
  });
}

}  // namespace
}  // namespace braid::engine
