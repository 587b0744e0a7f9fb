// Stages of a pipeline have the gradients of a model that is whole, bit for bit, send the bytes of the formula, and
// follow their plans.
#include "train/stage_passes.h"
#include "nn/balance.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "comm/inproc.h"
#include "core/integers.h"
#include "models/master_weights.h"
#include "support/models.h"
#include "train/mesh.h"
#include "train/optimizer.h"
#include "train/rehearsal.h"

namespace braid::train {
namespace {

constexpr int64_t kRows = 9, kLength = 32, kParts = 4;

// Rows of one document or two: no more than plans have room for.
data::Batch batch_of_rows() {
  data::Batch batch;
  batch.clear();
  for (int64_t row = 0; row < kRows; ++row) {
    batch.seqs.add(row % 2 == 0 ? kLength : kLength / 2);
    if (row % 2 == 1) batch.seqs.add(kLength / 2);
    for (int64_t t = 0; t < kLength; ++t) {
      batch.ids.push_back(static_cast<int32_t>((row * 31 + t * 7 + 3) % 50));
      batch.targets.push_back(static_cast<int32_t>(t % 5 == 4 ? -1 : (row * 17 + t * 11 + 1) % 50));
    }
    batch.rows.push_back((row + 1) * kLength);
    batch.row_ids.push_back(row);
  }
  return batch;
}

struct Gradients {
  std::map<std::string, std::vector<float>> tensors{};
  double loss = 0, mtp = 0;

  void add(models::MasterWeights& masters) {
    masters.sum_uses(1);
    for (const models::MasterTensor& t : masters.tensors()) {
      std::vector<float>& to = tensors[t.name];
      to.resize(static_cast<size_t>(t.count()), 0.0f);
      for (size_t i = 0; i < to.size(); ++i) to[i] += masters.grads()[static_cast<size_t>(t.offset) + i];
    }
  }
};

class StagePassesTest : public models::FolderTest {
 protected:
  void write_model(bool tied, bool predicts) {
    nlohmann::json config = models::hybrid();
    config["layers_block_type"] = {"mamba", "moe", "attention", "mlp", "mamba", "moe"};
    config["num_hidden_layers"] = 6;
    config["tie_word_embeddings"] = tied;
    if (predicts) {
      config["num_nextn_predict_layers"] = 1;
      config["mtp_hybrid_override_pattern"] = "*E";
    }
    write(config, tensors_of(config));
    recipe_ = {};
    recipe_.dtype = "f32";
    recipe_.accumulate = kParts;
    recipe_.loss.mtp_scale = predicts ? 0.3 : 0;
    options_ = {.main_weight = 0.01, .z = 1e-4f};
    options_.mtp_weight[0] = predicts ? 0.003 : 0;
  }

  Gradients whole() {
    models::MasterWeights masters(DType::f32);
    const auto model = masters.load(io::find_model(folder_.string()));
    Arena arena;
    Tape tape;
    Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
    const data::Batch batch = batch_of_rows();
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = batch.seqs, .state = state, .numerics = numerics_of(recipe_)};
    models::Model::LossSums sums;
    model->loss(run, integers(arena, batch.ids), integers(arena, batch.targets), options_, sums);
    tape.backward(ctx);
    tape.clear();
    Gradients all{.loss = sums.main, .mtp = sums.mtp[0]};
    all.add(masters);
    return all;
  }

  // Two steps, of which the second counts.
  Gradients staged(std::vector<int64_t>& sent) {
    Gradients all;
    std::mutex one_at_a_time;
    sent.assign(static_cast<size_t>(recipe_.parallel.pp), 0);
    comm::run_in_process(static_cast<int>(recipe_.parallel.pp), {.per_node = 16}, [&](comm::Group& world) {
      const io::ModelPath path = io::find_model(folder_.string());
      models::MasterWeights masters(DType::f32);
      const auto model =
          masters.load(path, 1, {}, {}, stage_of(recipe_, models::load_config(path), kLength, world.rank()));
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      std::vector<StepPlan> plans;
      for (const Chunk& chunk : chunks_of(model->config().stage))
        plans.push_back(rehearse(recipe_, *model, ctx, kRows, kLength, 0, nullptr, &chunk));
      StagePasses passes(recipe_, *model, world, ctx, plans);
      models::Model::LossSums sums;
      step(passes, *model, ctx, sums);
      masters.zero_grads(1);
      masters.sum_uses(1);
      masters.zero_grads(1);
      sums = {};
      const int64_t before = world.traffic().bytes[0] + world.traffic().bytes[1];
      step(passes, *model, ctx, sums);
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      sent[static_cast<size_t>(world.rank())] = world.traffic().bytes[0] + world.traffic().bytes[1] - before;
      EXPECT_EQ(passes.outgrown(), 0) << "stage " << world.rank();
      all.add(masters);
      all.loss += sums.main;
      all.mtp += sums.mtp[0];
    });
    return all;
  }

  void step(StagePasses& passes, models::Model& model, Ctx& ctx, models::Model::LossSums& sums) const {
    const data::Batch batch = batch_of_rows();
    std::vector<Range> parts;
    for (int64_t i = 0; i < kParts; ++i) {
      const int64_t begin = kRows * i / kParts;
      parts.push_back({begin, kRows * (i + 1) / kParts - begin});
    }
    nn::StateView state;
    nn::RouterWatch routers;
    const auto run_of = [&](Ctx& c, const data::Batch& part, TokenShares&) {
      return nn::Run{
          .ctx = c, .seqs = part.seqs, .state = state, .numerics = numerics_of(recipe_), .routers = &routers};
    };
    const auto predict = [&](nn::Run& run, const Tensor& x, const Tensor& ids, const Tensor& targets,
                             const data::Batch&) { model.loss(run, x, ids, targets, options_, sums); };
    passes.run(ctx, batch, parts, true, {run_of, predict});
  }

  Recipe recipe_;
  models::Model::LossOptions options_;
};

TEST_F(StagePassesTest, GradientsHaveTheBitsOfAWholeModel) {
  for (const bool tied : {false, true}) {
    write_model(tied, !tied);
    const Gradients want = whole();
    for (const auto& [stages, chunks] : {std::pair(2, 1), std::pair(3, 1), std::pair(4, 1), std::pair(2, 3)}) {
      for (const char* recompute : {"none", "full"}) {
        recipe_.parallel.pp = stages;
        recipe_.parallel.virtual_stages = chunks;
        recipe_.recompute = recompute;
        std::vector<int64_t> sent;
        const Gradients got = staged(sent);
        EXPECT_EQ(got.loss, want.loss) << stages << " x " << chunks;
        EXPECT_EQ(got.mtp, want.mtp) << stages << " x " << chunks;
        ASSERT_EQ(got.tensors.size(), want.tensors.size());
        for (const auto& [name, values] : want.tensors)
          EXPECT_EQ(got.tensors.at(name), values) << name << " on " << stages << " x " << chunks << " " << recompute;
      }
    }
  }
}

// Between runs of layers the stream of every token goes on and its gradient comes back: 4 T D bytes each.
TEST_F(StagePassesTest, BytesAreThoseOfTheFormula) {
  write_model(false, false);
  for (const auto& [stages, chunks] : {std::pair(2, 1), std::pair(3, 1), std::pair(2, 2)}) {
    recipe_.parallel.pp = stages;
    recipe_.parallel.virtual_stages = chunks;
    std::vector<int64_t> sent, want(static_cast<size_t>(stages), 0);
    staged(sent);
    for (int run = 0; run + 1 < stages * chunks; ++run) {
      for (const int sender : {run, run + 1}) want[static_cast<size_t>(sender % stages)] += 4 * kRows * kLength * 32;
    }
    EXPECT_EQ(sent, want) << stages << " x " << chunks;
  }
}

// Both ends read the table: each has the sum of its gradients, which counts once in the norm and is written once.
TEST_F(StagePassesTest, BothEndsHaveOneTable) {
  write_model(true, false);
  recipe_.parallel.pp = 3;
  const io::ModelPath path = io::find_model(folder_.string());
  models::MasterWeights one(DType::f32);
  one.load(path);
  comm::run_in_process(3, {.per_node = 3}, [&](comm::Group& world) {
    Mesh mesh(recipe_, world);
    models::MasterWeights masters(DType::f32);
    const auto model =
        masters.load(path, 1, {}, {}, stage_of(recipe_, models::load_config(path), kLength, mesh.stage()));
    for (const models::MasterTensor& t : masters.tensors()) {
      const auto grad = masters.grads().subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.count()));
      std::fill(grad.begin(), grad.end(), static_cast<float>(world.rank() + 1));
    }
    Sums none;
    mesh.end_gradients(masters, none, 1);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    Optimizer optimizer(recipe_.optimizer, masters, masters.params(*model), mesh.own(masters));
    double squares = 0;
    for (const models::MasterTensor& t : masters.tensors()) {
      const double gradient = static_cast<double>(masters.grads()[static_cast<size_t>(t.offset)]);
      EXPECT_EQ(gradient, t.role == ParamRole::embedding ? 4 : world.rank() + 1) << t.name;
      if (t.role == ParamRole::router_bias || (t.role == ParamRole::embedding && mesh.stage() > 0)) continue;
      squares += gradient * gradient * static_cast<double>(t.count());
    }
    const double all = mesh.add_up_all(squares);
    const auto own_squares = [&](const Range& of) { return optimizer.squared_norm(ctx, of); };
    EXPECT_EQ(mesh.squared_norm(masters, own_squares), all);
    models::MasterWeights whole(DType::f32);
    whole.own_whole(path);
    const std::vector<float> values = mesh.assemble(masters, whole, masters.values(), false);
    if (mesh.first()) {
      EXPECT_EQ(values, std::vector<float>(one.values().begin(), one.values().end()));
    } else {
      EXPECT_TRUE(values.empty());
    }
  });
}

TEST_F(StagePassesTest, MoreRunsThanLayersAreRefused) {
  write_model(false, false);
  recipe_.parallel.pp = 4;
  recipe_.parallel.virtual_stages = 2;
  const models::Config config = models::load_config(io::find_model(folder_.string()));
  EXPECT_NE(models::error_of([&] { stage_of(recipe_, config, kLength, 0); }).find("at most 6 layers"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::train
