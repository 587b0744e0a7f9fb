// The memory model against published formulas, and against what a planned step allocates from the arena.
#include "plan/memory.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/inproc.h"
#include "core/tape.h"
#include "models/cut.h"
#include "models/empty_model.h"
#include "models/family.h"
#include "models/presets.h"
#include "nn/sequence_parallel.h"

namespace braid::plan {
namespace {

using Kind = Recompute::Kind;

models::Config preset(const char* name) { return models::read_config(*models::find_preset(name)); }

const models::PartSpec& part_of(const models::Config& config, char letter) {
  for (const models::LayerSpec& layer : config.layers) {
    for (const models::PartSpec& part : layer.parts) {
      if (letter_of(part.block) == letter) return part;
    }
  }
  throw std::out_of_range("no such block");
}

// Peak bytes that a step over packed sequences allocates from the arena; on one of several ranks, which share tokens.
int64_t peak_of(const models::Config& config, DType products, const char* recompute,
                std::initializer_list<int64_t> lengths, comm::Group* ranks = nullptr) {
  models::Model model = models::empty_model(config, products);
  SeqMap seqs;
  for (const int64_t n : lengths) seqs.add(n);
  nn::SequenceShares shares;
  if (ranks) nn::share_rows(seqs, ranks->rank(), ranks->size(), shares);
  Arena arena;
  const Ctx ctx{.arena = arena, .threads = 2};
  return plan_step(parse_recompute(recompute), ctx, 1,
                   [&](Ctx& dry, int) {
                     nn::StateView state;
                     nn::Run run{.ctx = dry, .seqs = seqs, .state = state, .numerics = Numerics::training(products)};
                     run.tensor = ranks;
                     if (ranks) run.sequence = &shares;
                     const Tensor ids(dry.arena, DType::i32, {seqs.tokens()}),
                         targets(dry.arena, DType::i32, {seqs.tokens()});
                     models::Model::LossSums sums;
                     model.loss(run, ids, targets, {}, sums);
                   })
      .bytes;
}

struct Case {
  const char* preset;
  char letter;
};

TEST(Memory, LayersOfALoopSaveInEveryStepWithGradients) {
  models::Config config = preset("gpt2-124m");
  const ElementBytes bytes = ElementBytes::of(DType::f32);
  const std::map<char, double> once = saved_by_letter(config, bytes, Kind::none);
  config.loop = models::LoopSpec{.begin = 3, .end = 9, .prefix = "", .norm = "", .steps = 32, .backward_steps = 5};
  for (const auto& [letter, saved] : saved_by_letter(config, bytes, Kind::none))
    EXPECT_DOUBLE_EQ(saved, once.at(letter) / 12 * (6 + 6 * 5)) << letter;
}

TEST(Memory, TheArenaAsksForWhatTheModelSays) {
  constexpr Case kCases[] = {{"nemotron-3-nano-30b-a3b", 'M'},
                             {"nemotron-3-nano-30b-a3b", '*'},
                             {"nemotron-3-nano-30b-a3b", 'E'},
                             {"nemotron-nano-12b-v2", 'M'},
                             {"nemotron-nano-12b-v2", '-'},
                             {"nemotron-3-super-120b-a12b", 'E'},
                             {"qwen3-30b-a3b", '*'},
                             {"llama-3.1-8b", '-'},
                             {"gpt2-124m", '*'},
                             {"gpt2-124m", '-'},
                             {"hybrid-8.5m", 'M'},
                             {"hybrid-8.5m", 'E'}};
  for (const Case& c : kCases) {
    models::Config config = preset(c.preset);
    config.vocab = 1000;
    config.mtp.reset();
    models::PartSpec part = part_of(config, c.letter);
    if (auto* moe = std::get_if<nn::MoeSpec>(&part.block)) moe->experts = std::min<int64_t>(moe->experts, 32);
    const auto stack = [&](size_t layers) {
      config.layers.assign(layers, {{part}});
      return config;
    };
    for (const DType products : {DType::f32, DType::bf16}) {
      for (const auto& [name, kind] :
           {std::pair("none", Kind::none), std::pair("selective", Kind::selective), std::pair("full", Kind::full)}) {
        const int64_t tokens = 700;
        const auto deep = peak_of(stack(6), products, name, {400, 1, 299}),
                   flat = peak_of(stack(2), products, name, {400, 1, 299});
        const double measured = static_cast<double>(deep - flat) / 4;
        const double predicted =
            static_cast<double>(tokens) * bytes_per_token(braid_saves(part, config, ElementBytes::of(products)), kind);
        EXPECT_NEAR(measured / predicted, 1, 0.02)
            << c.preset << " " << c.letter << " " << name_of(products) << " " << name;
      }
    }
  }
}

// With sequence parallelism a rank of t retains a t-th of everything.
TEST(Memory, RanksThatShareTokensRetainAShareOfAll) {
  constexpr Case kCases[] = {{"nemotron-3-nano-30b-a3b", 'M'}, {"nemotron-3-nano-30b-a3b", '*'}, {"llama-3.1-8b", '-'}};
  comm::run_in_process(2, {.per_node = 2}, [&](comm::Group& world) {
    for (const Case& c : kCases) {
      models::Config config = preset(c.preset);
      config.vocab = 1000;
      config.mtp.reset();
      const models::PartSpec part = part_of(config, c.letter);
      const auto of_layers = [&](size_t layers) {
        config.layers.assign(layers, {{part}});
        const models::Config cut = models::cut_config(config, {.rank = world.rank(), .ranks = 2, .sequence = true});
        return peak_of(cut, DType::bf16, "none", {400, 1, 299}, &world);
      };
      const double measured = static_cast<double>(of_layers(6) - of_layers(2)) / 4;
      const std::vector<Saved> saved = braid_saves(part, config, ElementBytes::of(DType::bf16));
      EXPECT_NEAR(measured / 700 / bytes_per_token(saved, Kind::none, {.tensor = 2, .sequence = true}), 1, 0.02)
          << c.preset << " " << c.letter;
      EXPECT_NEAR(measured / 700 / bytes_per_token(saved, Kind::none), 0.5, 0.01) << c.preset << " " << c.letter;
    }
  });
}

// The formulas of arXiv 2205.05198 (docs/internals/train.md, Memory of activations), over s h.
TEST(Memory, TheClassicTransformerIsTheFormulas) {
  models::Config config = config_of(paper_shapes()[1]);
  const double h = 12288, scores = 5.0 * 96 * 2048 / h, t = 8;
  const auto layer = [&](Kind kind, const Cut& cut) {
    return classic_layer_bytes(config, kPaperLength, kind, cut) / h;
  };
  EXPECT_DOUBLE_EQ(layer(Kind::none, {}), 34 + scores);
  EXPECT_DOUBLE_EQ(layer(Kind::none, {.tensor = 8}), 10 + 24 / t + scores / t);
  EXPECT_DOUBLE_EQ(layer(Kind::none, {.tensor = 8, .sequence = true}), (34 + scores) / t);
  EXPECT_DOUBLE_EQ(layer(Kind::selective, {.tensor = 8}), 10 + 24 / t);
  EXPECT_DOUBLE_EQ(layer(Kind::selective, {.tensor = 8, .sequence = true}), 34 / t);
  EXPECT_DOUBLE_EQ(layer(Kind::full, {.tensor = 8}), 2);
}

TEST(Memory, ThePapersReductionIsFivefold) {
  for (const PaperShape& shape : paper_shapes()) {
    const models::Config config = config_of(shape);
    const double before = classic_layer_bytes(config, kPaperLength, Kind::none, {.tensor = 8}),
                 after = classic_layer_bytes(config, kPaperLength, Kind::selective, {.tensor = 8, .sequence = true});
    EXPECT_GT(before / after, 4.8) << shape.name;
    EXPECT_LT(before / after, 6.3) << shape.name;
  }
}

// Both columns of the account (docs/internals/train.md, Memory of activations), for Nano and Super as numbers.
TEST(Memory, TheCommonAccountIsBothColumns) {
  const models::Config nano = preset("nemotron-3-nano-30b-a3b"), super = preset("nemotron-3-super-120b-a12b"),
                       dense = preset("nemotron-nano-12b-v2"), llama = preset("llama-3.1-8b");
  const auto bytes = [](const models::Config& config, char letter, Kind kind) {
    return bytes_per_token(common_saves(part_of(config, letter), config), kind);
  };
  EXPECT_NEAR(bytes(nano, 'M', Kind::none), 76.9e3, 60);
  EXPECT_NEAR(bytes(nano, 'M', Kind::selective), 34.2e3, 60);
  EXPECT_NEAR(bytes(nano, 'E', Kind::none), 103e3, 600);
  EXPECT_NEAR(bytes(nano, 'E', Kind::selective), 68e3, 600);
  EXPECT_NEAR(bytes(super, 'E', Kind::none), 328e3, 600);
  EXPECT_NEAR(bytes(super, 'E', Kind::selective), 190e3, 700);
  EXPECT_EQ(bytes(nano, '*', Kind::none), 4 * 2688 + 4 * 32 * 128 + 4 * 2 * 128 + 4 * 32);
  EXPECT_EQ(bytes(nano, '*', Kind::selective), 2 * 2688 + 4 * 32 * 128 + 4 * 2 * 128 + 4 * 32);
  EXPECT_EQ(bytes(dense, '-', Kind::none), 4 * 5120 + 4 * 20480);
  EXPECT_EQ(bytes(dense, '-', Kind::selective), 2 * 5120 + 2 * 20480);
  EXPECT_EQ(bytes(llama, '-', Kind::none), 4 * 4096 + 6 * 14336);
  EXPECT_EQ(bytes(llama, '-', Kind::selective), 2 * 4096 + 4 * 14336);
}

}  // namespace
}  // namespace braid::plan
