// What a step retains changes its memory and FLOPs, never a bit of its loss or of a gradient.
#include "core/step_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <tuple>

#include "core/tape.h"
#include "models/master_weights.h"
#include "support/models.h"

namespace braid::models {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// One step of a model over packed documents of uneven length.
class Step {
 public:
  Step(const std::filesystem::path& folder, DType dtype, const AdapterSpec& adapters = {})
      : masters_(dtype),
        model_(adapters.rank > 0 ? masters_.adapt(io::find_model(folder.string()), adapters, 3)
                                 : masters_.load(io::find_model(folder.string()))) {
    for (const int64_t len : {70, 1, 33}) seqs_.add(len);
  }
  MasterWeights& masters() { return masters_; }
  StepPlan plan(const std::string& policy, Weights weights = Weights::now) {
    return plan_step(
        parse_recompute(policy), Ctx{.arena = arena_}, 1, [this](Ctx& c, int) { forward(c); }, weights);
  }
  struct Result {
    Model::LossSums loss{};
    std::vector<float> grads{};
    int64_t kept = 0, peak = 0, late = 0;  // late: still held after the backward pass
    double flops = 0, flops_forward = 0;
  };
  Result run(const StepPlan& plan, Weights weights = Weights::now) {
    Arena arena;
    Tape tape;
    tape.drop = [&plan](Cost, size_t node) { return plan.drops(node); };
    Ctx ctx{.arena = arena, .tape = &tape};
    masters_.zero_grads(ctx.threads);
    Result result{.loss = forward(ctx), .kept = arena.bytes_in_use(), .flops_forward = ctx.counts.flops};
    tape.backward(ctx, weights);
    result.late = arena.bytes_in_use();
    tape.backward_weights(ctx);
    masters_.sum_uses(ctx.threads);
    tape.clear();
    result.grads.assign(masters_.grads().begin(), masters_.grads().end());
    result.peak = arena.bytes_peak();
    result.flops = ctx.counts.flops;
    return result;
  }

 private:
  Model::LossSums forward(Ctx& ctx) {
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs_, .state = state, .numerics = Numerics::training(masters_.products())};
    const int64_t tokens = seqs_.tokens();
    const Tensor ids(ctx.arena, DType::i32, {tokens}), targets(ctx.arena, DType::i32, {tokens});
    for (int64_t i = 0; i < tokens; ++i) {
      ids.mut().as<int32_t>()[i] = static_cast<int32_t>((i * 7 + 3) % 50);
      targets.mut().as<int32_t>()[i] = i % 5 == 4 ? -1 : static_cast<int32_t>((i * 11 + 1) % 50);
    }
    Model::LossSums sums;
    model_->loss(run, ids, targets,
                 {.main_weight = 0.01, .mtp_weight = {model_->mtp_steps() > 0 ? 0.003 : 0}, .z = 1e-4f}, sums);
    return sums;
  }

  Arena arena_{};
  MasterWeights masters_;
  std::unique_ptr<Model> model_;
  SeqMap seqs_{};
};

class StepPlanTest : public FolderTest, public testing::WithParamInterface<DType> {};

TEST_P(StepPlanTest, NoPolicyChangesABit) {
  nlohmann::json config = hybrid();
  config["num_nextn_predict_layers"] = 1;
  config["mtp_layers_block_type"] = {"attention", "moe"};
  write(config, tensors_of(config));
  Step step(folder_, GetParam());
  const StepPlan none = step.plan("none");
  const Step::Result all = step.run(none);
  EXPECT_EQ(all.peak, none.bytes);
  EXPECT_EQ(all.flops, none.flops);
  int64_t least = all.kept;
  for (const char* policy : {"selective", "full"}) {
    const StepPlan plan = step.plan(policy);
    const Step::Result some = step.run(plan);
    EXPECT_LT(some.kept, least) << policy;
    least = some.kept;
    EXPECT_EQ(some.peak, plan.bytes) << policy;
    EXPECT_EQ(some.flops, plan.flops) << policy;
    EXPECT_GT(plan.flops_again, 0) << policy;
    const double share = std::string(policy) == "selective" ? kSelectiveShare : 1.0;
    EXPECT_LE(some.flops, (1 + share) * all.flops) << policy;
    EXPECT_EQ(some.loss.main, all.loss.main) << policy;
    EXPECT_EQ(some.loss.mtp, all.loss.mtp) << policy;
    ASSERT_EQ(0, std::memcmp(some.grads.data(), all.grads.data(), all.grads.size() * sizeof(float))) << policy;
  }
}

// Deferred gradients of weights retain the gradients and the inputs of products, and the plan accounts for it.
TEST_P(StepPlanTest, GradientsOfWeightsMadeLaterAreTheSame) {
  nlohmann::json config = hybrid();
  config["num_nextn_predict_layers"] = 1;
  config["mtp_layers_block_type"] = {"attention", "moe"};
  write(config, tensors_of(config));
  Step step(folder_, GetParam());
  const Step::Result now = step.run(step.plan("none"));
  for (const char* policy : {"none", "selective", "full"}) {
    const StepPlan plan = step.plan(policy, Weights::later);
    const Step::Result later = step.run(plan, Weights::later);
    ASSERT_EQ(0, std::memcmp(later.grads.data(), now.grads.data(), now.grads.size() * sizeof(float))) << policy;
    EXPECT_GT(later.late, now.late) << policy;
    EXPECT_EQ(later.peak, plan.bytes) << policy;
    EXPECT_GT(later.peak, step.plan(policy).bytes) << policy;
    EXPECT_EQ(later.flops, plan.flops) << policy;
  }
}

// With adapters on the last block alone no gradient below it is computed, and nothing there is retained or recomputed.
TEST_P(StepPlanTest, NothingRunsBelowTheFirstAdapter) {
  write(hybrid(), tensors_of(hybrid()));
  const std::string last = "layers.3.mixer.down_proj";
  Step one(folder_, GetParam(), {.rank = 2, .targets = {last}}),
      two(folder_, GetParam(), {.rank = 2, .targets = {"layers.0.mixer.in_proj", last}});
  std::vector<std::vector<float>> grads;
  Step::Result results[2];
  for (Step* step : {&one, &two}) {
    for (const MasterTensor& t : step->masters().tensors()) {
      // The other adapter is freshly initialised, and changes no bit.
      for (int64_t i = 0; i < t.count() && t.name.find(last) != std::string::npos; ++i)
        step->masters().values()[static_cast<size_t>(t.offset + i)] = static_cast<float>(i % 7) / 16 - 0.2f;
    }
    step->masters().round(1);
    Step::Result& result = results[step == &one ? 0 : 1] = step->run(step->plan("none"));
    for (const MasterTensor& t : step->masters().tensors()) {
      if (t.name.find(last) == std::string::npos) continue;
      const auto begin = result.grads.begin() + t.offset;
      grads.emplace_back(begin, begin + t.count());
      EXPECT_TRUE(std::any_of(begin, begin + t.count(), [](float g) { return g != 0; })) << t.name;
    }
  }
  ASSERT_EQ(grads.size(), 4u);
  EXPECT_EQ(grads[0], grads[2]);
  EXPECT_EQ(grads[1], grads[3]);
  EXPECT_LT(results[0].flops - results[0].flops_forward, 0.1 * results[0].flops_forward);
  EXPECT_GT(results[1].flops - results[1].flops_forward, 0.5 * results[1].flops_forward);
  EXPECT_LT(results[0].kept, results[1].kept / 3);
  for (const char* policy : {"selective", "full"}) {
    const StepPlan plan = one.plan(policy);
    const Step::Result some = one.run(plan);
    EXPECT_EQ(some.peak, plan.bytes) << policy;
    EXPECT_EQ(some.flops, plan.flops) << policy;
    EXPECT_LT(plan.flops_again, 0.2 * results[0].flops_forward) << policy;
    EXPECT_EQ(some.grads, results[0].grads) << policy;
  }
}

TEST_P(StepPlanTest, ABudgetIsKept) {
  write(hybrid(), tensors_of(hybrid()));
  Step step(folder_, GetParam());
  const StepPlan none = step.plan("none"), full = step.plan("full");
  const Step::Result all = step.run(none);
  for (const double share : {0.3, 0.7}) {
    const auto budget =
        static_cast<int64_t>(share * static_cast<double>(none.arena.bytes - full.arena.bytes)) + full.arena.bytes;
    const StepPlan plan = step.plan(fmt::format("fit:{:.12f}", static_cast<double>(budget + 1) / (1024.0 * kMiB)));
    EXPECT_LE(plan.arena.bytes, budget + 1);
    EXPECT_GT(plan.flops_again, 0);
    EXPECT_LT(plan.flops, full.flops) << "everything was recomputed for a budget of " << share;
    const Step::Result some = step.run(plan);
    EXPECT_LE(some.peak, budget + 1);
    EXPECT_EQ(some.loss.main, all.loss.main);
    ASSERT_EQ(0, std::memcmp(some.grads.data(), all.grads.data(), all.grads.size() * sizeof(float)));
  }
  EXPECT_EQ(step.plan("fit:1000").flops_again, 0);
  const std::string error = error_of([&] { step.plan("fit:0.00001"); });
  EXPECT_NE(error.find("a step does not fit"), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(Products, StepPlanTest, testing::Values(DType::f32, DType::bf16),
                         [](const testing::TestParamInfo<DType>& of) { return std::string(name_of(of.param)); });

TEST(Recompute, WordsAreRead) {
  EXPECT_EQ(parse_recompute("fit:1.5").bytes_max, 1536 * kMiB);
  EXPECT_EQ(parse_recompute("full").kind, Recompute::Kind::full);
  for (const char* bad : {"", "some", "fit:", "fit:0", "fit:-1", "fit:nan", "fit:1x", "fit:1e9"})
    EXPECT_NE(error_of([&] { parse_recompute(bad); }), "") << bad;
}

}  // namespace
}  // namespace braid::models
