// What a layer retains on a rank, by the plan, against what a step of that rank asks of its arena.
#include <gtest/gtest.h>

#include "comm/inproc.h"
#include "core/tape.h"
#include "layout/layer_work.h"
#include "layout/layout_fixture.h"
#include "models/cut.h"
#include "models/empty_model.h"
#include "nn/context_parallel.h"
#include "nn/sequence_parallel.h"
#include "train/rehearsal.h"
#include "train/token_shares.h"

namespace braid::layout {
namespace {

constexpr int64_t kTokens = 704;

// A model of `layers` equal blocks.
models::Config stack_of(const char* preset, char letter, size_t layers) {
  models::Config config = models::read_config(*models::find_preset(preset));
  config.vocab = 1000;
  config.mtp.reset();
  for (const models::LayerSpec& layer : std::vector(config.layers)) {
    for (const models::PartSpec& part : layer.parts) {
      if (letter_of(part.block) == letter) config.layers.assign(layers, {{part}});
    }
  }
  for (models::LayerSpec& layer : config.layers) {
    if (auto* moe = std::get_if<nn::MoeSpec>(&layer.parts[0].block)) moe->experts = 32;
  }
  return config;
}

// Peak bytes that a step of a rank of `world`, divided so, asks of its arena.
double peak_of(const models::Config& whole, const train::ParallelRecipe& p, Recompute::Kind kind, comm::Group& world) {
  const ExpertCut experts = p.divides_experts()
                                ? ExpertCut{.ep = {.rank = world.rank(), .ranks = p.ep}, .etp = {.ranks = p.etp}}
                                : ExpertCut();
  const Cut cut{.rank = p.tp > 1 ? world.rank() : 0, .ranks = p.tp, .sequence = p.sp};
  models::Model model = models::empty_model(models::cut_config(whole, cut, experts), DType::bf16);
  SeqMap seqs;
  for (const int64_t n : {int64_t{400}, kTokens - 400}) seqs.add(n);
  nn::SequenceShares shares;
  if (p.sp) nn::share_rows(seqs, world.rank(), world.size(), shares);
  nn::ContextShares context{.ranks = &world};
  if (p.cp > 1) nn::divide_tokens(seqs, world.rank(), world.size(), nn::TokenOrder::zigzag, context);
  const nn::ExpertRanks ranks{.all = &world, .node = &world, .aligned = &world, .parts = p.etp};
  Arena arena;
  const Ctx ctx{.arena = arena, .threads = 1};
  return static_cast<double>(plan_step({.kind = kind}, ctx, 1, [&](Ctx& dry, int) {
                               nn::StateView state;
                               nn::Run run{.ctx = dry,
                                           .seqs = p.cp > 1 ? context.own : seqs,
                                           .state = state,
                                           .numerics = Numerics::training(DType::bf16)};
                               if (p.tp > 1) run.tensor = &world;
                               if (p.sp) run.sequence = &shares;
                               if (p.cp > 1) run.context = &context;
                               if (p.divides_experts()) run.experts = &ranks;
                               const Tensor ids(dry.arena, DType::i32, {kTokens}),
                                   targets(dry.arena, DType::i32, {kTokens});
                               models::Model::LossSums sums;
                               model.loss(run, ids, targets, {}, sums);
                             }).bytes);
}

TEST(LayoutMemory, TheArenaAsksForWhatThePlanSays) {
  const std::pair<const char*, char> blocks[] = {{"nemotron-3-nano-30b-a3b", 'M'},
                                                 {"nemotron-3-nano-30b-a3b", '*'},
                                                 {"nemotron-3-nano-30b-a3b", 'E'},
                                                 {"nemotron-3-super-120b-a12b", 'E'},
                                                 {"llama-3.1-8b", '-'}};
  std::vector<train::ParallelRecipe> layouts(5);
  layouts[0].tp = 2, layouts[1].tp = 2, layouts[1].sp = true, layouts[2].ep = 2, layouts[3].etp = 2, layouts[4].cp = 2;
  comm::run_in_process(2, {.per_node = 2}, [&](comm::Group& world) {
    for (const auto& [preset, letter] : blocks) {
      for (const train::ParallelRecipe& p : layouts) {
        if (p.divides_experts() && letter != 'E') continue;
        for (const Recompute::Kind kind : {Recompute::Kind::none, Recompute::Kind::selective, Recompute::Kind::full}) {
          const double measured = (peak_of(stack_of(preset, letter, 6), p, kind, world) -
                                   peak_of(stack_of(preset, letter, 2), p, kind, world)) /
                                  4;
          const Model model(stack_of(preset, letter, 2), {}, kTokens);
          const Task task{.ranks = 2, .batch = 1, .length = kTokens};
          const Layout layout{.parallel = p, .recompute = kind};
          const RankModel& rank = *model.rank(p);
          const LayerCosting costing(model, rank, machine_of("dgx-h100", 2).device, task, layout,
                                     static_cast<double>(kTokens / p.cp));
          if (world.rank() > 0) continue;
          EXPECT_NEAR(measured / costing.layer(rank.kinds[0]).kept, 1, 0.02)
              << preset << " " << letter << " " << name_of(layout, 2) << " " << name_of(kind);
        }
      }
    }
  });
}

// All of a step on one rank, with the working set, against the trainer's plan of its arena, whose workspaces depend on
// the CPU class: of gpt2-124m by 7%.
TEST(LayoutMemory, AWholeStepIsTheTrainersPlan) {
  for (const char* preset : {"hybrid-1b", "llama-3.1-8b", "nemotron-3-nano-4b", "gpt2-124m"}) {
    const Model model = model_of(preset, 1024);
    const Task task{.ranks = 1, .batch = 2, .length = 1024};
    models::Model empty = models::empty_model(model.config(), DType::bf16);
    empty.dropout = {};
    for (const Recompute::Kind kind : {Recompute::Kind::none, Recompute::Kind::selective, Recompute::Kind::full}) {
      train::Recipe recipe = model.recipe();
      recipe.recompute = name_of(kind);
      Arena arena;
      const double planned =
          static_cast<double>(train::rehearse(recipe, empty, {.arena = arena}, task.batch, task.length).arena.bytes);
      const StepWork work = work_of(model, machine_of("dgx-h100", 1), task, {.recompute = kind});
      const Memory memory = memory_of(work, task);
      EXPECT_NEAR((memory.activations + memory.passes) / planned, 1, 0.08) << preset << " " << name_of(kind);
      EXPECT_NEAR(memory.sum() / (memory.sum() - memory.activations - memory.passes + planned), 1, 0.01) << preset;
    }
  }
}

}  // namespace
}  // namespace braid::layout
