// The bytes that ranks send in a step of the trainer, counted by their transport, against the plan's.
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>
#include <tuple>

#include "comm/inproc.h"
#include "core/integers.h"
#include "core/tape.h"
#include "layout/layout_fixture.h"
#include "layout/replay.h"
#include "models/master_weights.h"
#include "support/models.h"
#include "train/mesh.h"
#include "train/token_shares.h"

namespace braid::layout {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kRows = 4, kLength = 512;

class Traffic : public models::FolderTest {
 protected:
  // Wide enough for messages to take the algorithms of long ones. `shared`: groups, and heads of keys and values.
  void make(int64_t shared, int64_t width = 64) {
    nlohmann::json config = models::hybrid();
    config["vocab_size"] = 400;
    config["hidden_size"] = width;
    config["mamba_num_heads"] = 8, config["mamba_head_dim"] = 16, config["n_groups"] = shared;
    config["num_attention_heads"] = 8, config["num_key_value_heads"] = shared, config["head_dim"] = 16;
    config["intermediate_size"] = 128, config["moe_intermediate_size"] = 64;
    config["moe_shared_expert_intermediate_size"] = 64;
    config["max_position_embeddings"] = kLength;
    write(config, tensors_of(config));
  }

  // By all ranks in one step: experts are not equally busy, so single ranks differ.
  int64_t sent(const train::ParallelRecipe& parallel, int64_t rows_of_batch = kRows, int64_t length = kLength) {
    train::Recipe recipe;
    recipe.dtype = "f32";
    recipe.parallel = parallel;
    int64_t sum = 0;
    std::mutex one_at_a_time;
    comm::run_in_process(kRanks, {.per_node = kRanks}, [&](comm::Group& world) {
      train::Mesh mesh(recipe, world);
      models::MasterWeights masters(DType::f32, mesh.parted());
      const auto model = masters.load(io::find_model(folder_.string()), 1, mesh.cut(), mesh.expert_cut());
      mesh.divide(masters, 1);
      SeqMap seqs;
      const int64_t rows = mesh.rows(rows_of_batch).count;
      for (int64_t i = 0; i < rows; ++i) seqs.add(length);
      std::vector<int32_t> ids(static_cast<size_t>(seqs.tokens()));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 97 + i / 7 + 3) % 400);
      Arena arena;
      Tape tape;
      Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
      nn::StateView state;
      train::TokenShares shares;
      shares.divide(seqs, &mesh, train::context_modes(parallel, model->config()));
      nn::Run run{.ctx = ctx, .seqs = shares.own(seqs), .state = state, .numerics = Numerics::training(DType::f32)};
      shares.put(run, &mesh);
      masters.zero_grads(1);
      const int64_t before = mesh.bytes_sent();
      mesh.begin_passes();
      models::Model::LossSums sums;
      model->loss(run, integers(arena, ids), integers(arena, ids), {.main_weight = 1}, sums);
      tape.backward(ctx);
      mesh.end_passes();
      train::Sums none;
      mesh.end_gradients(masters, none, 1);
      mesh.gather_weights(masters, 1);
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      sum += mesh.bytes_sent() - before;
    });
    return sum;
  }
};

TEST_F(Traffic, IsThatOfThePlan) {
  make(4);
  std::vector<train::ParallelRecipe> list(12);
  list[1].zero = 3;
  list[2].tp = 2;
  list[3].tp = 4, list[3].sp = true;
  list[4].ep = 4;
  list[5].tp = 2, list[5].ep = 2, list[5].etp = 2, list[5].zero = 2;
  list[6].cp = 2;
  list[7].cp = 4, list[7].ep = 2;
  list[8].grid = "2,2,1,1";
  list[9].grid = "1,2,2,1";
  list[10].cp = 4, list[10].cp_attention = "ring";
  list[11].cp = 2, list[11].tp = 2, list[11].zero = 1;
  train::Recipe recipe;
  recipe.dtype = "f32";
  const Model model(models::load_config(io::find_model(folder_.string())), recipe, kLength);
  const Task task{.ranks = kRanks, .batch = kRows, .length = kLength, .bf16 = false};
  const Machine machine = machine_of("dgx-h100", kRanks);
  for (const train::ParallelRecipe& p : list) {
    const Layout layout{.parallel = p};
    const Cost cost = cost_of(model, machine, task, work_of(model, machine, task, layout));
    const double want = std::accumulate(cost.bytes.begin(), cost.bytes.end(), 0.0);
    EXPECT_NEAR(static_cast<double>(sent(p)) / (kRanks * want), 1, 0.05) << name_of(layout, kRanks);
  }
}

// Keys, values and groups of B and C that are fewer than the ranks: what pairs send more for them than where every rank
// has its own, to the last byte. An all-reduce of two sends each number once, however few they are.
TEST_F(Traffic, OfSharedHeadsIsThatOfThePlan) {
  constexpr int64_t kShort = 96;
  const auto both = [&](const train::ParallelRecipe& p, int64_t shared) {
    make(shared, 128);
    train::Recipe recipe;
    recipe.dtype = "f32";
    const Model model(models::load_config(io::find_model(folder_.string())), recipe, kShort);
    const Task task{.ranks = kRanks, .batch = kRows, .length = kShort, .bf16 = false};
    const Machine machine = machine_of("dgx-h100", kRanks);
    const StepWork work = work_of(model, machine, task, {.parallel = p});
    Replay replay(machine);
    const Cost cost = cost_of(model, machine, task, work);
    return std::tuple(static_cast<double>(sent(p, kRows, kShort)),
                      kRanks * std::accumulate(cost.bytes.begin(), cost.bytes.end(), 0.0), cost.step,
                      replay.step_seconds(task, work));
  };
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const int64_t tp : {2, 4}) {
      if (tp == kRanks && zero > 0) continue;
      const train::ParallelRecipe p{.tp = tp, .zero = zero};
      const auto [alone, planned_alone, seconds_alone, virtual_alone] = both(p, tp);
      const auto [sent, planned, seconds, in_virtual_time] = both(p, tp / 2);
      EXPECT_GT(sent, alone) << tp;
      EXPECT_EQ(sent - alone, planned - planned_alone) << tp << " zero " << zero;
      EXPECT_GT(seconds, seconds_alone);
      EXPECT_GT(in_virtual_time, virtual_alone);
    }
  }
}

}  // namespace
}  // namespace braid::layout
