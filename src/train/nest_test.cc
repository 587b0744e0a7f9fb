// The gradients that a model inside a nested one leaves in the masters, beside differences of its loss when the masters
// change; runs of one such model, beside those of its slice, and of all, whole and resumed.
#include "train/nest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tape.h"
#include "models/load.h"
#include "prune/row_pass.h"
#include "prune/write.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "train/nest_fixture.h"
#include "train/ranks_fixture.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

struct Subject {
  explicit Subject(const fs::path& out) : path(nested_hybrid(out)) {
    recipe.nest.budgets = {1, 0.6, 0.5};
    recipe.nest.sampling = {1, 0, 3};
    model = masters.load(path);
    nested.emplace(recipe, path, masters, *model);
    row = prune::read_rows(kNestChain, path, model->config(), 8)[0];
  }

  // Of the main targets and those of the prediction block.
  double loss(size_t budget, bool backward) {
    Arena arena;
    Tape tape;
    Ctx ctx{.arena = arena, .tape = backward ? &tape : nullptr};
    nested->take_values(budget, 1);
    const auto sums = prune::RowPass{.ctx = ctx}(nested->model(budget), row, 1, true);
    if (backward) {
      nested->add_gradients(budget, 1);
      masters.sum_uses(1);
    }
    return sums.main + sums.mtp[0];
  }

  io::ModelPath path;
  Recipe recipe;
  models::MasterWeights masters{DType::f32};
  std::unique_ptr<models::Model> model;
  std::optional<NestedModels> nested;
  data::Batch row;
};

TEST(NestedModels, GradientsAreThoseOfTheMasters) {
  const support::Folder place;
  Subject s(place.path() / "nested");
  for (const size_t budget : {size_t{0}, size_t{1}, size_t{2}}) {
    s.masters.zero_grads(1);
    s.loss(budget, true);
    std::map<ParamRole, std::vector<const models::MasterTensor*>> roles;
    for (const models::MasterTensor& t : s.masters.tensors()) roles[t.role].push_back(&t);
    const std::vector<float> grads(s.masters.grads().begin(), s.masters.grads().end()),
        values(s.masters.values().begin(), s.masters.values().end());
    int64_t compared = 0;
    // Along the gradient of all tensors of a role the loss changes by its norm.
    for (const auto& entry : roles) {
      double squares = 0;
      const auto each = [&](auto&& of) {
        for (const models::MasterTensor* t : entry.second) {
          for (int64_t i = t->offset; i < t->offset + t->count(); ++i) of(static_cast<size_t>(i));
        }
      };
      each([&](size_t i) { squares += static_cast<double>(grads[i]) * static_cast<double>(grads[i]); });
      const double norm = std::sqrt(squares);
      if (norm < 0.05) continue;  // below the rounding of differences
      const auto moved = [&](double by) {
        each([&](size_t i) {
          s.masters.values()[i] = values[i] + static_cast<float>(by * static_cast<double>(grads[i]) / norm);
        });
        const double loss = s.loss(budget, false);
        each([&](size_t i) { s.masters.values()[i] = values[i]; });
        return loss;
      };
      // The loss jumps where a token changes its experts: one of some steps has none.
      double slope = HUGE_VAL;
      for (const double share : {0.05, 0.02, 0.01}) {
        const double step = std::min(share / norm, 0.02), found = (moved(step) - moved(-step)) / (2 * step);
        if (std::fabs(found - norm) < std::fabs(slope - norm)) slope = found;
      }
      EXPECT_NEAR(slope, norm, 0.03 * norm) << name_of(entry.first) << " of budget " << s.nested->share(budget);
      ++compared;
    }
    EXPECT_GT(compared, 8);
  }
}

// All uses of a parameter count once, and nothing is left behind.
TEST(NestedModels, GradientsAddUpOnce) {
  const support::Folder place;
  Subject s(place.path() / "nested");
  s.masters.zero_grads(1);
  s.loss(2, true);
  const std::vector<float> once(s.masters.grads().begin(), s.masters.grads().end());
  s.loss(2, true);
  size_t used = 0;
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(s.masters.grads()[i], 2 * once[i]);
    used += once[i] != 0 ? 1 : 0;
  }
  EXPECT_GT(used, once.size() / 16);
  EXPECT_LT(used, once.size() / 2);  // the rest belongs to larger models
}

TEST(NestedModels, StepsDrawBudgetsByTheirShares) {
  const support::Folder place;
  const Subject s(place.path() / "nested");
  int64_t count[3] = {};
  for (int64_t step = 0; step < 4000; ++step) ++count[s.nested->draw(step)];
  EXPECT_EQ(count[1], 0);
  EXPECT_NEAR(static_cast<double>(count[2]) / 4000, 0.75, 0.04);
}

// Bit for bit: by predicting tokens, those of the prediction block too, and with a teacher.
TEST(NestedModels, OneTrainsAsItsSlice) {
  const support::Folder place;
  const fs::path nested = nested_hybrid(place.path() / "nested").folder,
                 slice = nest_slice(nested, "0.6", place.path() / "slice");
  for (const bool taught : {false, true}) {
    const auto with = [&](const fs::path& init, const std::string& out) {
      Recipe r = nest_recipe(init, place.path() / (out + (taught ? "-taught" : "")));
      taught ? void(r.distill.teacher = nested.string()) : void(r.loss.mtp_scale = 0.3);
      return r;
    };
    Recipe inside = with(nested, "inside");
    inside.nest.budgets = {0.6};
    const fs::path whole = train_nest(inside), apart = train_nest(with(slice, "apart")),
                   end = nest_slice(whole, "0.6", place.path() / (taught ? "end-taught" : "end"));
    EXPECT_EQ(different_tensors(end, apart), std::vector<std::string>{});
    EXPECT_GT(different_tensors(end, slice).size(), 10u);
  }
}

// Each budget's terms of the held-out loss have the factors that those of all have.
TEST(NestedModels, TermsHeldOutAreTheMeansOverBudgets) {
  const support::Folder place;
  Recipe r = nest_recipe(nested_hybrid(place.path() / "nested").folder, place.path() / "out");
  r.nest.budgets = {1, 0.6, 0.5};
  r.loss.mtp_scale = 0.3;
  r.loss.z = 0.01;
  r.steps = 1;
  r.eval = {.every = 1, .batches = 2};
  std::map<std::string, double> held;
  train_nest(r, {}, {.held_out = [&](const HeldOutLog& log) { held.insert(log.metrics.begin(), log.metrics.end()); }});
  for (const auto& [name, part] :
       {std::pair<std::string, std::string>{"z_loss", "z_loss"}, {"mtp_loss", "mtp_loss_1"}}) {
    EXPECT_GT(held.at(name), 0) << name;
    EXPECT_NEAR(held.at(name), (held.at(part + "_1") + held.at(part + "_0.6") + held.at(part + "_0.5")) / 3,
                1e-6 * held.at(name))
        << name;
  }
}

TEST(NestedModels, AllTrainWithTheSameBitsInPartsAndResumed) {
  const support::Folder place;
  const fs::path nested = nested_hybrid(place.path() / "nested").folder;
  Recipe r = nest_recipe(nested, place.path() / "whole");
  r.nest.budgets = {1, 0.6, 0.5};
  r.loss.mtp_scale = 0.3;
  r.eval = {.every = 3, .batches = 1};
  const fs::path whole = train_nest(r);
  r.out = (place.path() / "cut").string();
  r.steps = 3;
  const fs::path half = train_nest(r);
  r.steps = 6;
  r.accumulate = 2;
  const fs::path resumed = train_nest(r, half);
  EXPECT_NE(half, resumed);
  EXPECT_EQ(different_tensors(whole, resumed), std::vector<std::string>{});
  EXPECT_EQ(different_tensors(whole / "training" / "state.safetensors", resumed / "training" / "state.safetensors"),
            std::vector<std::string>{});
  EXPECT_GT(different_tensors(whole, half).size(), 10u);
  nest_slice(whole, "half", place.path() / "slice");  // a checkpoint is nested
}

// Ranks that divide the batch sum the gradients of the model that a step trains.
TEST(NestedModels, RanksTrainWhatOneDoes) {
  const support::Folder place;
  const fs::path nested = nested_hybrid(place.path() / "nested").folder;
  Recipe r = nest_recipe(nested, place.path() / "one");
  r.nest.budgets = {1, 0.6, 0.5};
  r.batch = 5;  // divided unevenly
  r.checkpoint.every = 0;
  r.log.every = 1;
  const auto logs_on = [&](int ranks, int64_t zero) {
    r.out = (place.path() / fmt::format("{}-{}", ranks, zero)).string();
    r.parallel.zero = zero;
    return train_on_ranks(r, ranks).logs;
  };
  const std::vector<StepLog> one = logs_on(1, 0);
  ASSERT_EQ(one.size(), 6u);
  for (const int64_t zero : {0, 1}) {
    const std::vector<StepLog> two = logs_on(2, zero);
    ASSERT_EQ(two.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(two[i].loss, one[i].loss, 1e-5 * one[i].loss) << i;
      EXPECT_NEAR(two[i].grad_norm, one[i].grad_norm, 1e-5 * one[i].grad_norm) << i;
    }
    EXPECT_TRUE(fs::exists(list_checkpoints(r.out).back() / prune::kNestedFile)) << zero;
  }
  r.parallel.zero = 2;
  EXPECT_NE(support::error_of([&] { check_mesh(r, 2); }).find("parallel.zero=1"), std::string::npos);
  r.parallel = {.overlap = true};
  EXPECT_NE(support::error_of([&] { check_mesh(r, 2); }).find("cannot be used with nest.budgets"), std::string::npos);
  r.parallel = {.exact = true};
  EXPECT_NE(support::error_of([&] { check_mesh(r, 2); }).find("parallel.exact"), std::string::npos);
}

TEST(NestedModels, RefuseWhatTheyAreNot) {
  const support::Folder place;
  const fs::path nested = nested_hybrid(place.path() / "nested").folder;
  const auto says = [&](auto&& change) {
    Recipe r = nest_recipe(nested, place.path() / "out");
    r.nest.budgets = {1, 0.5};
    change(r);
    return support::error_of([&] { train_nest(r); });
  };
  EXPECT_NE(says([](Recipe& r) { r.nest.budgets = {0.7}; }).find("no such budget; got 0.7"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.nest.budgets = {1, 1}; }).find("names one twice"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.nest.sampling = {1}; }).find("a number for each"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.nest.sampling = {0, 0}; }).find("trains no budget"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.nest = {.sampling = {1}}; }).find("no budgets"), std::string::npos);
  EXPECT_EQ(says([](Recipe& r) { r.nest.router_lr = 2; }),
            "[nest.router_lr] is of routers, which this run has none of; try nest.router = true, or leaving it out");
  EXPECT_NE(says([](Recipe& r) { r.nest = {.router_cost = 2}; }).find("[nest.router_cost] is of routers"),
            std::string::npos);  // without budgets, too
  EXPECT_NE(says([](Recipe& r) { r.loss.router_bias_rate = 0.1; }).find("router_bias_rate"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.loss.quantile = 0.1; }).find("quantile"), std::string::npos);
  EXPECT_NE(says([&](Recipe& r) { r.distill = {.teacher = nested.string(), .hidden = 1}; }).find("distill.hidden"),
            std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.spike.z = 5; }).find("[spike]"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.lora.rank = 2, r.lora.targets = {"*"}; }).find("[lora]"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.init = support::data("hf/nemotron-h-latent-mtp"); }).find("not a nested model"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::train
