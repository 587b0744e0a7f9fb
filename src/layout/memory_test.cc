// What a layer retains on a rank, by the plan, against what a step of that rank asks of its arena.
#include <gtest/gtest.h>

#include <mutex>

#include "comm/inproc.h"
#include "core/tape.h"
#include "layout/layer_work.h"
#include "layout/layout_fixture.h"
#include "models/cut.h"
#include "models/empty_model.h"
#include "nn/context_parallel.h"
#include "nn/sequence_parallel.h"
#include "support/models.h"
#include "train/language.h"
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
// the CPU class: of gpt2-124m by 7%. On tiles the backward pass of experts has room for rows of every expert padded to
// 32, twice the arena of hybrid-1b, which the model of memory does not know.
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
      Machine machine = machine_of("dgx-h100", 1);
      machine.device.here = true;
      const StepWork work = work_of(model, machine, task, {.recompute = kind});
      const Memory memory = memory_of(work, task);
      EXPECT_NEAR((memory.activations + memory.passes) / planned, 1, 0.08) << preset << " " << name_of(kind);
      EXPECT_NEAR(memory.sum() / (memory.sum() - memory.activations - memory.passes + planned), 1, 0.01) << preset;
    }
  }
}

class RankMemory : public models::FolderTest {
 protected:
  // `times` four layers, one of each kind.
  void make(int64_t times) const {
    nlohmann::json config = models::hybrid();
    std::vector<std::string> layers;
    for (int64_t i = 0; i < times; ++i) layers.insert(layers.end(), {"mamba", "moe", "attention", "mlp"});
    config["layers_block_type"] = layers, config["num_hidden_layers"] = layers.size();
    config["vocab_size"] = 400, config["hidden_size"] = 64;
    config["mamba_num_heads"] = 8, config["mamba_head_dim"] = 16, config["n_groups"] = 4;
    config["num_attention_heads"] = 8, config["num_key_value_heads"] = 4, config["head_dim"] = 16;
    config["intermediate_size"] = 128, config["moe_intermediate_size"] = 64;
    config["moe_shared_expert_intermediate_size"] = 64, config["max_position_embeddings"] = 256;
    write(config, tensors_of(config));
  }

  static constexpr int kRanks = 4;
  static constexpr int64_t kRows = 8, kRowTokens = 256;
  train::Recipe recipe_of(const train::ParallelRecipe& p) const {
    train::Recipe recipe;
    recipe.init = folder_.string(), recipe.out = (folder_ / "out").string();
    recipe.dtype = "f32";
    recipe.batch = kRows, recipe.length = kRowTokens;
    recipe.data.kind = "markov";
    recipe.parallel = p;
    return recipe;
  }
  Memory planned(const train::ParallelRecipe& p) const {
    const Model model(models::load_config(io::find_model(folder_.string())), recipe_of(p), kRowTokens);
    const Task task{.ranks = kRanks, .batch = kRows, .length = kRowTokens, .bf16 = false};
    return memory_of(work_of(model, machine_of("dgx-h100", kRanks), task, {.parallel = p}), task);
  }

  // Of the rank that has most of each: what its arrays hold, and the arena of its passes.
  Memory measured(const train::ParallelRecipe& p) const {
    const train::Recipe recipe = recipe_of(p);
    Memory most;
    std::mutex one_at_a_time;
    comm::run_in_process(kRanks, {.per_node = kRanks}, [&](comm::Group& world) {
      train::Mesh mesh(recipe, world);
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      train::Language language(recipe, ctx, &mesh);
      double own = 0;
      for (const Range& r : mesh.own(language.masters())) own += real(r.count);
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      most.masters = std::max(most.masters, 4 * real(language.masters().size()));
      most.gradients = std::max(most.gradients, 4 * real(std::ssize(language.masters().grads())));
      most.moments = std::max(most.moments, 8 * own);
      most.activations = std::max(most.activations, real(language.plan().arena.bytes));
    });
    return most;
  }
};

// At small width the working set of a layer is a large part of the arena, so activations are what eight layers more ask
// for. What zero 2 and 3 keep of gradients and weights is in train/layer_shards_test.cc.
TEST_F(RankMemory, EveryKindIsThatOfRealRanks) {
  std::vector<train::ParallelRecipe> list(9);
  list[1].zero = 1;
  list[2].tp = 2;
  list[3].tp = 4, list[3].sp = true;
  list[4].tp = 2, list[4].zero = 1;
  list[5].ep = 4;
  list[6].tp = 2, list[6].ep = 2, list[6].zero = 1;
  list[7].cp = 2, list[7].zero = 1;
  list[8].grid = "2,1,2,1";
  std::vector<Memory> small;
  for (const int64_t times : {1, 3}) {
    make(times);
    for (size_t i = 0; i < list.size(); ++i) {
      const Memory want = planned(list[i]), got = measured(list[i]);
      const std::string name = name_of({.parallel = list[i]}, kRanks);
      EXPECT_NEAR(want.masters / got.masters, 1, 0.02) << name;
      EXPECT_NEAR(want.gradients / got.gradients, 1, 0.02) << name;
      EXPECT_NEAR(want.moments / got.moments, 1, 0.02) << name;
      if (times == 1) small.push_back({.activations = want.activations, .passes = got.activations});
      if (times > 1) {
        EXPECT_NEAR((want.activations - small[i].activations) / (got.activations - small[i].passes), 1, 0.02) << name;
      }
    }
  }
}

}  // namespace
}  // namespace braid::layout
