// More ranks than keys and values, or than groups of B and C: several ranks have the same ones. Their losses and norms
// of gradients are those of one rank, their copies have the same bits, any other ranks resume, and what they send
// follows a formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>

#include "core/integers.h"
#include "core/tape.h"
#include "io/safetensors.h"
#include "support/error_of.h"
#include "support/models.h"
#include "train/ranks_fixture.h"
#include "train/token_shares.h"

namespace braid::train {
namespace {

constexpr int kSteps = 20;

// Eight heads of everything, and as many groups, and keys and values, as the test says.
nlohmann::json hybrid_of(int64_t groups, int64_t keys) {
  nlohmann::json config = models::hybrid();
  config["mamba_num_heads"] = 8, config["n_groups"] = groups;
  config["num_attention_heads"] = 8, config["num_key_value_heads"] = keys;
  config["intermediate_size"] = 48;
  return config;
}
nlohmann::json llama_of(int64_t keys) {
  nlohmann::json config = models::dense("llama");
  config["num_attention_heads"] = 8, config["num_key_value_heads"] = keys;
  config["head_dim"] = 8;
  return config;
}
nlohmann::json qwen3_moe_of(int64_t keys) {
  return nlohmann::json::parse(
      fmt::format(R"({{"model_type":"qwen3_moe","vocab_size":52,"hidden_size":32,"num_hidden_layers":2,
      "intermediate_size":40,"num_attention_heads":8,"num_key_value_heads":{},"head_dim":8,"num_experts":8,
      "num_experts_per_tok":2,"moe_intermediate_size":32,"mlp_only_layers":[0]}})",
                  keys));
}

struct Case {
  const char* name;
  int ranks;
  std::function<void(ParallelRecipe&)> divide;
};

class SharedHeads : public models::FolderTest {
 protected:
  // Weights of both signs, so that every block matters.
  void begin(const nlohmann::json& config) {
    write("config.json", config.dump());
    io::SafetensorsWriter file(folder_ / "model.safetensors", tensors_of(config));
    std::mt19937 random(1);
    for (const io::TensorSpec& spec : file.order()) {
      std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
      const MutView values(bytes.data(), spec.dtype, spec.shape);
      for (int64_t i = 0; i < values.count(); ++i) {
        const auto n = static_cast<double>(random() % 129);
        set_element(values, i, spec.shape.rank == 1 ? 0.5 + n / 128 : (n - 64) / 256);
      }
      file.write(spec.name, bytes);
    }
    file.finish();
    recipe_ = {};
    recipe_.init = folder_.string();
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = kSteps;
    recipe_.batch = 8;
    recipe_.length = 16;
    recipe_.data.kind = "markov";
    std::filesystem::remove_all(recipe_.out);
  }

  Recipe divided(const Case& c, const char* out) const {
    Recipe recipe = recipe_;
    recipe.out = (folder_ / out).string();
    std::filesystem::remove_all(recipe.out);
    c.divide(recipe.parallel);
    if (recipe.parallel.pp > 1) recipe.accumulate = 2;
    return recipe;
  }

  static void expect_close(const std::vector<StepLog>& got, std::span<const StepLog> want, const std::string& name) {
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].step, want[i].step) << name;
      ASSERT_NEAR(got[i].loss / want[i].loss, 1, 1e-5) << name << " loss of step " << want[i].step;
      ASSERT_NEAR(got[i].grad_norm / want[i].grad_norm, 1, 1e-5) << name << " norm of step " << want[i].step;
    }
  }
  void expect_all_close(std::initializer_list<Case> cases) {
    const RanksRun one = train_on_ranks(recipe_, 1);
    for (const Case& c : cases) expect_close(train_on_ranks(divided(c, "many"), c.ranks).logs, one.logs, c.name);
  }

  Recipe recipe_;
};

TEST_F(SharedHeads, OfAHybridAreThoseOfOneRank) {
  begin(hybrid_of(2, 2));
  expect_all_close({{"tp 4", 4, [](auto& p) { p.tp = 4; }},
                    {"tp 8", 8, [](auto& p) { p.tp = 8; }},
                    {"tp 4 sp dp 2", 8, [](auto& p) { p.tp = 4, p.sp = true; }},
                    {"tp 4 dp 2 zero 1", 8, [](auto& p) { p.tp = 4, p.zero = 1; }},
                    {"tp 4 dp 2 zero 2", 8, [](auto& p) { p.tp = 4, p.zero = 2; }},
                    {"tp 4 dp 2 zero 3", 8, [](auto& p) { p.tp = 4, p.zero = 3; }},
                    {"tp 4 pp 2", 8, [](auto& p) { p.tp = 4, p.pp = 2; }},
                    {"tp 4 cp 2", 8, [](auto& p) { p.tp = 4, p.cp = 2; }},
                    {"tp 4 ep 4", 4, [](auto& p) { p.tp = 4, p.ep = 4; }},
                    {"tp 4 ep 2 etp 2 zero 1", 8, [](auto& p) { p.tp = 4, p.ep = 2, p.etp = 2, p.zero = 1; }},
                    {"grid 4,2,1,1", 8, [](auto& p) { p.grid = "4,2,1,1"; }},
                    {"grid 4,1,2,1", 8, [](auto& p) { p.grid = "4,1,2,1"; }}});
  begin(hybrid_of(1, 1));
  expect_all_close({{"one, tp 2", 2, [](auto& p) { p.tp = 2; }},
                    {"one, tp 4 sp dp 2", 8, [](auto& p) { p.tp = 4, p.sp = true; }},
                    {"one, grid 4,2,1,1", 8, [](auto& p) { p.grid = "4,2,1,1"; }}});
}

TEST_F(SharedHeads, OfOtherFamiliesAreThoseOfOneRank) {
  for (const nlohmann::json& config : {llama_of(2), qwen3_moe_of(2)}) {
    begin(config);
    expect_all_close({{"tp 4", 4, [](auto& p) { p.tp = 4; }},
                      {"tp 8", 8, [](auto& p) { p.tp = 8; }},
                      {"tp 4 sp dp 2 zero 2", 8, [](auto& p) { p.tp = 4, p.sp = true, p.zero = 2; }},
                      {"tp 4 pp 2", 8, [](auto& p) { p.tp = 4, p.pp = 2; }}});
  }
  begin(llama_of(1));
  expect_all_close({{"one, tp 2", 2, [](auto& p) { p.tp = 2; }}});
}

TEST_F(SharedHeads, WhateverIsRecomputed) {
  begin(hybrid_of(2, 2));
  recipe_.steps = 4;
  const RanksRun one = train_on_ranks(recipe_, 1);
  for (const char* kind : {"selective", "full"}) {
    Recipe recipe = divided({"", 4, [](auto& p) { p.tp = 4; }}, "many");
    recipe.recompute = kind;
    expect_close(train_on_ranks(recipe, 4).logs, one.logs, kind);
  }
}

// Keys and values in Muon's matrices; groups of B and C in in_proj, whose unlike parts AdamW takes.
TEST_F(SharedHeads, MuonReadsThemWhole) {
  for (const nlohmann::json& config : {qwen3_moe_of(2), hybrid_of(2, 2), hybrid_of(1, 2)}) {
    begin(config);
    recipe_.optimizer.kind = "muon";
    recipe_.steps = 4;
    const RanksRun one = train_on_ranks(recipe_, 1);
    for (const char* way : {"gather", "duplicate"}) {
      for (const int64_t zero : {0, 1}) {
        const Recipe recipe = divided({"", 8, [&](auto& p) { p.tp = 4, p.muon = way, p.zero = zero; }}, "many");
        expect_close(train_on_ranks(recipe, 8).logs, one.logs, fmt::format("{} zero {}", way, zero));
      }
    }
  }
}

// Losses and norms of gradients go on as if the ranks had not changed.
TEST_F(SharedHeads, AnyRanksResume) {
  begin(hybrid_of(2, 2));
  recipe_.ema_decay = 0.9;
  const RanksRun whole = train_on_ranks(recipe_, 1);
  const std::span<const StepLog> rest = std::span(whole.logs).subspan(kSteps / 2);
  const auto expect = [&](const Case& first, std::initializer_list<Case> then) {
    Recipe recipe = divided(first, "first");
    recipe.steps = kSteps / 2;
    (void)train_on_ranks(recipe, first.ranks);
    const std::filesystem::path from = folder_ / "first" / "checkpoints" / fmt::format("step-{:08}", kSteps / 2);
    for (const Case& c : then) {
      const std::string name = fmt::format("{}, then {}", first.name, c.name);
      expect_close(train_on_ranks(divided(c, "then"), c.ranks, from).logs, rest, name);
    }
  };
  const Case one{"one", 1, [](auto&) {}}, two{"tp 2", 2, [](auto&p) { p.tp = 2; }},
      four{"tp 4 zero 3", 8, [](auto&p) { p.tp = 4, p.zero = 3; }}, eight{"tp 8", 8, [](auto&p) { p.tp = 8; }},
      grid{"grid 4,1,2,1", 8, [](auto&p) { p.grid = "4,1,2,1"; }};
  expect(four, {one, two, four, eight, grid});
  expect(eight, {one, four});
  expect(one, {eight});
}

// What divides nothing is refused with the next number that divides a block.
TEST_F(SharedHeads, TheNearestThatDivides) {
  begin(hybrid_of(2, 2));
  const auto error = [&](auto&& divide) {
    Recipe recipe = recipe_;
    divide(recipe.parallel);
    return support::error_of([&] { check_cut(recipe); });
  };
  EXPECT_EQ(error([](auto& p) { p.tp = 7; }),
            "[parallel.tp] divides no block of the model, of which all ranks would compute the same; got 7; expected a "
            "divisor of the heads, or of the channels, of some block; try parallel.tp=4");
  EXPECT_NE(error([](auto& p) { p.grid = "7,1,1,1"; }).find("[parallel.grid]"), std::string::npos);
  for (const int64_t ranks : {1, 2, 3, 4, 8}) EXPECT_EQ(error([&](auto& p) { p.tp = ranks; }), "") << ranks;
  EXPECT_NE(error([](auto& p) { p.tp = 51; }).find("fewer rows than ranks"), std::string::npos);
}

// Of ranks that have the same: the elements of all tensors, one after the other.
std::vector<float> copies_in(models::MasterWeights& masters, int64_t sharers, bool partial) {
  std::vector<float> values;
  const auto add = [&](const Range& r) {
    const std::span<float> some = elements(masters.values(), r);
    values.insert(values.end(), some.begin(), some.end());
  };
  for (const models::MasterTensor& t : masters.tensors()) {
    for (const Range& r : t.shared) {
      if (t.sharers == sharers) add({t.offset + r.begin, r.count});
    }
    if (partial && t.partial) add({t.offset, t.count()});
  }
  return values;
}

// Trains on ranks of which pairs share heads.
void expect_alike(const Recipe& recipe, int ranks) {
  comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
    Mesh mesh(recipe, world);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    Language language(recipe, ctx, &mesh);
    Trainer trainer(recipe, language, ctx, &mesh);
    trainer.train({});
    const auto same = [&](comm::Group& group, const std::vector<float>& own) {
      ASSERT_FALSE(own.empty());
      std::vector<float> all(own.size() * static_cast<size_t>(group.size()));
      group.all_gather(flat(own), mut_flat(all)).wait();
      for (size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(all[i]), std::bit_cast<uint32_t>(own[i % own.size()])) << i;
    };
    ASSERT_EQ(mesh.sharers()->size(), 1u);
    same(mesh.sharers()->at(2), copies_in(language.masters(), 2, false));
    same(*mesh.tensor(), copies_in(language.masters(), 0, true));
  });
}

TEST_F(SharedHeads, CopiesHaveTheSameBits) {
  begin(hybrid_of(2, 1));
  for (const int64_t zero : {0, 1, 2})
    expect_alike(divided({"", 8, [&](auto& p) { p.tp = 4, p.zero = zero; }}, "many"), 8);
}

// Copies of what ranks share stay alike under Muon, whichever of them computes the step, and the model that is written
// is that of one rank.
TEST_F(SharedHeads, MuonKeepsCopiesAlike) {
  begin(hybrid_of(2, 2));
  recipe_.optimizer.kind = "muon";
  recipe_.steps = 3;
  (void)train_on_ranks(recipe_, 1);
  const io::Safetensors one(std::filesystem::path(recipe_.out) / "model.safetensors");
  for (const char* way : {"gather", "duplicate"}) {
    const Recipe recipe = divided({"", 4, [&](auto& p) { p.tp = 4, p.muon = way; }}, "many");
    expect_alike(recipe, 4);
    const io::Safetensors many(std::filesystem::path(recipe.out) / "model.safetensors");
    for (const io::StoredTensor& t : one.tensors()) {
      const View got = many.need(t.name);
      for (int64_t i = 0; i < t.view.count(); ++i)
        ASSERT_NEAR(element(got, i), element(t.view, i), 2e-5) << way << " " << t.name << " " << i;
    }
  }
}

// Bytes that each rank sends in a step of `tokens`.
std::vector<int64_t> bytes_of_a_step(const std::filesystem::path& folder, int ranks, int64_t tokens) {
  Recipe recipe;
  recipe.dtype = "f32";
  recipe.parallel.tp = ranks;
  std::vector<int64_t> sent(static_cast<size_t>(ranks));
  comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
    Mesh mesh(recipe, world);
    models::MasterWeights masters(DType::f32);
    const auto model = masters.load(io::find_model(folder.string()), 1, mesh.cut());
    mesh.divide(masters, 1);
    SeqMap seqs;
    seqs.add(tokens);
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 97 + 3) % 50);
    Arena arena;
    Tape tape;
    Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(DType::f32)};
    TokenShares().put(run, &mesh);
    masters.zero_grads(1);
    const int64_t before = mesh.bytes_sent();
    models::Model::LossSums sums;
    model->loss(run, integers(arena, ids), integers(arena, ids), {.main_weight = 1}, sums);
    tape.backward(ctx);
    Sums none;
    mesh.end_gradients(masters, none, 1);
    sent[static_cast<size_t>(world.rank())] = mesh.bytes_sent() - before;
  });
  return sent;
}

// 2 (R - 1) / R of every number, where R ranks share it; small messages go to log2(R) ranks whole.
int64_t all_reduced(int64_t numbers, int64_t ranks) {
  const int64_t bytes = 4 * numbers;
  return bytes <= 32 << 10 ? bytes * (std::bit_width(static_cast<uint64_t>(ranks)) - 1)
                           : 2 * bytes * (ranks - 1) / ranks;
}

// What they send more than with as many groups, keys and values as heads. Of the hybrid: 24 states of each of B and C
// with 4 taps and a bias, 32 channels between blocks, keys and values of 12 channels each.
TEST_F(SharedHeads, BytesAreThoseOfTheFormula) {
  constexpr int64_t kTokens = 40, kChannels = 32, kGroup = 24 * 2, kKeys = 12;
  for (const int ranks : {2, 4, 8}) {
    begin(hybrid_of(8, 8));
    const std::vector<int64_t> alone = bytes_of_a_step(folder_, ranks, kTokens);
    for (const int64_t shared : {1, 2, 4}) {
      if (shared >= ranks) continue;
      begin(hybrid_of(shared, shared));
      const std::vector<int64_t> sent = bytes_of_a_step(folder_, ranks, kTokens);
      const int64_t sharers = ranks / shared;
      int64_t want = 2 * all_reduced(kTokens, sharers);  // the norm's, forward and backward
      for (const int64_t n : {kGroup * kChannels, kGroup * 4, kGroup, kKeys * kChannels, kKeys * kChannels})
        want += all_reduced(n, sharers);
      for (size_t r = 0; r < sent.size(); ++r)
        EXPECT_EQ(sent[r] - alone[r], want) << "rank " << r << " of " << ranks << " that share " << shared;
    }
  }
}

}  // namespace
}  // namespace braid::train
