// Models whose sizes routers choose: with one size of every axis the masked model is its slice, slopes of shares are
// differences of the loss, axes that are of no use are the ones that are cut, and runs are the same whole and resumed.
#include "train/nest_router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/philox.h"
#include "core/tape.h"
#include "io/safetensors_write.h"
#include "prune/row_pass.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/read.h"
#include "train/nest_fixture.h"
#include "train/ranks_fixture.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

struct MaskedSubject {
  explicit MaskedSubject(const fs::path& out)
      : path(nested_hybrid(out)),
        model(masters.load(path)),
        folder(models::open_folder(path)),
        layouts(model->config(), folder.source.get()),
        nested(prune::read_nested(path.folder, model->config(), layouts)),
        sizes(model->config(), layouts, nested, "nest.router"),
        masked(model->config(), folder, layouts, masters),
        row(prune::read_rows(kNestChain, path, model->config(), 8)[0]) {}

  double loss_of(models::Model& of, bool backward = false) {
    Arena arena;
    Tape tape;
    Ctx ctx{.arena = arena, .tape = backward ? &tape : nullptr};
    const auto sums = prune::RowPass{.ctx = ctx}(of, row, 1, true);
    return sums.main + sums.mtp[0];
  }
  double loss(const prune::Shares& shares) {
    sizes.set(shares);
    masked.take_values(sizes, 1);
    return loss_of(masked.model());
  }

  io::ModelPath path;
  models::MasterWeights masters{DType::f32};
  std::unique_ptr<models::Model> model;
  models::OpenFolder folder;
  prune::Layouts layouts;
  prune::Nested nested;
  prune::SoftSizes sizes;
  MaskedModel masked;
  data::Batch row;
};

TEST(MaskedModel, OneSizeOfEachAxisIsTheSlice) {
  const support::Folder place;
  MaskedSubject s(place.path() / "nested");
  EXPECT_EQ(s.loss(s.sizes.whole()), s.loss_of(*s.model));
  for (uint64_t draw = 0; draw < 12; ++draw) {
    prune::Shares shares = s.sizes.smallest();
    for (size_t a = 0; draw > 0 && a < shares.size(); ++a) {
      shares[a][0] = 0;
      shares[a][philox({.seed = 3, .stream = static_cast<uint32_t>(a)}, draw)[0] % shares[a].size()] = 1;
    }
    const prune::Budget budget = s.sizes.budget(shares);
    const prune::Keep keep = prune::keep_of(s.model->config(), s.layouts, budget);
    const auto slice = prune::cut_model(s.model->config(), s.layouts, keep, budget.sizes, *s.folder.source);
    const double expected = s.loss_of(*slice);
    EXPECT_NEAR(s.loss(shares), expected, 2e-4 * expected) << draw;
    EXPECT_GT(std::fabs(expected - s.loss_of(*s.model)), 1e-3 * expected) << draw;  // and not the whole
  }
}

// Shares of all sizes, which move by a little from the first size of an axis to another.
TEST(MaskedModel, SlopesOfSharesAreDifferences) {
  const support::Folder place;
  MaskedSubject s(place.path() / "nested");
  prune::Shares at = s.sizes.smallest();
  for (size_t a = 0; a < at.size(); ++a) {
    double sum = 0;
    for (size_t j = 0; j < at[a].size(); ++j) sum += at[a][j] = 1.0 + static_cast<double>((3 * j + a) % 4);
    for (double& share : at[a]) share /= sum;
  }
  s.masters.zero_grads(1);
  s.sizes.set(at);
  s.masked.take_values(s.sizes, 1);
  s.loss_of(s.masked.model(), true);
  s.masked.add_gradients(s.sizes, 1);
  const prune::Shares slopes = s.sizes.take_slopes();
  int64_t compared = 0;
  for (size_t a = 0; a < at.size(); ++a) {
    // Towards all: of every axis the last size against the first.
    const double slope = slopes[a].back() - slopes[a][0];
    double found = HUGE_VAL;
    for (const double by : {0.01, 0.003, 0.001}) {  // a token that changes its experts makes the loss jump
      const auto moved = [&](double d) {
        prune::Shares shares = at;
        shares[a].back() += d;
        shares[a][0] -= d;
        return s.loss(shares);
      };
      const double difference = (moved(by) - moved(-by)) / (2 * by);
      if (std::fabs(difference - slope) < std::fabs(found - slope)) found = difference;
    }
    EXPECT_NEAR(found, slope, 0.03 * std::fabs(slope) + 0.02) << name_of(s.sizes.axes()[a].axis);
    compared += std::fabs(slope) > 0.1 ? 1 : 0;
  }
  EXPECT_GT(compared, 4);
}

Recipe routed_recipe(const fs::path& nested, const fs::path& out) {
  Recipe r = nest_recipe(nested, out);
  r.nest.budgets = {1, 0.6, 0.5};
  r.nest.router = true;
  r.loss.mtp_scale = 0.3;
  return r;
}

prune::Nested sizes_in(const fs::path& folder) {
  const io::ModelPath path = io::find_model(folder.string());
  const models::Config config = models::load_config(path);
  return prune::read_nested(folder, config, prune::Layouts(config, models::open_folder(path).source.get()));
}

// Their last product is zero.
void silence_shared_experts(const fs::path& folder) {
  const io::Safetensors was(folder);
  std::vector<io::TensorSpec> specs;
  for (const io::StoredTensor& t : was.tensors()) specs.push_back({t.name, t.view.dtype, t.view.shape});
  const fs::path copy = folder.parent_path() / "silent.safetensors";
  io::SafetensorsWriter out(copy, specs);
  int64_t silent = 0;
  for (const io::StoredTensor& t : was.tensors()) {
    const bool shared = t.name.find("shared_experts.down_proj") != std::string::npos;
    silent += shared ? 1 : 0;
    std::vector<std::byte> bytes(static_cast<size_t>(t.view.bytes()));
    if (!shared) std::memcpy(bytes.data(), t.view.data, bytes.size());
    out.write(t.name, bytes);
  }
  out.finish();
  EXPECT_GT(silent, 2);
  fs::rename(copy, folder / "model.safetensors");
}

// Drawn shares become those of one size as steps go by, and routers leave what their slopes are against.
TEST(NestRouter, DrawsHardenAndFollowSlopes) {
  const std::vector<prune::SoftAxis> axes = {{prune::Axis::hidden, {8, 16, 32}}, {prune::Axis::ffn, {4, 8}}};
  NestRouter router(axes, {{2, 1}, {0, 0}}, 7);
  const auto hard = [&](int64_t from) {
    int64_t count = 0;
    for (int64_t step = from; step < from + 100; ++step) {
      for (const std::vector<double>& shares : router.draw(0, step, 5000)) {
        EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
        count += std::ranges::count(shares, 1.0);
      }
    }
    return count;
  };
  EXPECT_LT(hard(0), 80);  // 1 - 0.996^50 of 200
  EXPECT_GT(hard(4000), 195);
  EXPECT_EQ(router.draw(1, 3, 10), router.draw(1, 3, 10));
  EXPECT_NE(router.draw(1, 3, 10), router.draw(1, 4, 10));
  const prune::Shares whole = {{0, 0, 1}, {0, 1}}, least = {{1, 0, 0}, {1, 0}};
  EXPECT_EQ(router.best(0), whole);
  EXPECT_EQ(router.best(1), least);
  for (int64_t step = 0; step < 60; ++step) {
    router.draw(0, step, 60);
    router.learn({{0, -1, 2}, {0, 0}}, 0.03);
  }
  EXPECT_EQ(router.best(0), (prune::Shares{{0, 1, 0}, {0, 1}}));  // the other axis has no slope
}

TEST(NestRouter, RunsAreTheSameResumedAndInParts) {
  const support::Folder place;
  const fs::path nested = nested_hybrid(place.path() / "nested").folder;
  Recipe r = routed_recipe(nested, place.path() / "whole");
  r.eval = {.every = 3, .batches = 1};
  const fs::path whole = train_nest(r);
  r.out = (place.path() / "cut").string();
  const fs::path all = train_nest(r);
  fs::remove_all(all);  // what a kill before the last checkpoint leaves
  r.accumulate = 2;
  const fs::path resumed = train_nest(r, list_checkpoints(r.out).back());
  EXPECT_EQ(different_tensors(whole, resumed), std::vector<std::string>{});
  for (const char* file : {"state.safetensors", "nest_router.safetensors"})
    EXPECT_EQ(different_tensors(whole / "training" / file, resumed / "training" / file), std::vector<std::string>{});
  const fs::path half = list_checkpoints((place.path() / "whole").string()).front();
  EXPECT_EQ(different_tensors(half / "training/nest_router.safetensors", whole / "training/nest_router.safetensors"),
            (std::vector<std::string>{"first", "second", "updates", "values"}));
}

TEST(NestRouter, RanksLearnWhatOneDoes) {
  const support::Folder place;
  Recipe r = routed_recipe(nested_hybrid(place.path() / "nested").folder, place.path() / "one");
  r.batch = 5;  // divided unevenly
  r.checkpoint.every = 0;
  r.log.every = 1;
  r.optimizer.lr = 1e-4;
  const auto logs_on = [&](int ranks) {
    r.out = (place.path() / fmt::format("{}", ranks)).string();
    return train_on_ranks(r, ranks).logs;
  };
  const std::vector<StepLog> one = logs_on(1), two = logs_on(2);
  ASSERT_EQ(one.size(), 6u);
  ASSERT_EQ(two.size(), one.size());
  bool smaller = false;
  for (size_t i = 0; i < one.size(); ++i) {
    const auto cost = [&](const StepLog& log) {
      return std::ranges::find(log.metrics, "cost", [](const auto& m) { return std::string(m.first); })->second;
    };
    EXPECT_NEAR(two[i].loss, one[i].loss, 1e-4 * one[i].loss) << i;
    EXPECT_NEAR(cost(two[i]), cost(one[i]), 1e-4) << i;
    smaller = smaller || cost(one[i]) < 0.9;
  }
  EXPECT_TRUE(smaller);
}

// A chain is learnt, then the shared experts are made to give nothing. Routers that have to leave out a tenth of the
// parameters find some of it there, though a narrower stream, which costs loss, would save the most.
TEST(NestRouter, CutsTheAxisThatIsOfNoUse) {
  const support::Folder place;
  Recipe r = nest_recipe(nested_hybrid(place.path() / "nested").folder, place.path() / "learnt");
  r.steps = 60;
  r.checkpoint.every = 0;
  r.optimizer.lr = 3e-3;
  r.nest.budgets = {1};
  const fs::path learnt = train_nest(r);
  const models::Config config = models::load_config(io::find_model(learnt.string()));
  silence_shared_experts(learnt);
  nlohmann::json nested = nlohmann::json::parse(sys::read_file((learnt / prune::kNestedFile).string()));
  nested["budgets"] = {nested["budgets"][0], {{"name", "small"}, {"share", 0.9}, {"sizes", nlohmann::json::object()}}};
  io::write_text_file(learnt / prune::kNestedFile, nested.dump());
  r = routed_recipe(learnt, place.path() / "out");
  r.nest = {.budgets = {1, 0.9}, .sampling = {0, 1}, .router = true, .router_lr = 4e4};
  r.loss.mtp_scale = 0;
  r.steps = 200;
  r.eval = {.every = r.steps, .batches = 8};
  r.checkpoint.every = 0;
  r.optimizer.lr = 1e-6;  // weights stay
  std::map<std::string, double> held;
  const fs::path end = train_nest(
      r, {}, {.held_out = [&](const HeldOutLog& log) { held.insert(log.metrics.begin(), log.metrics.end()); }});
  const prune::Sizes full = prune::full_sizes(config), chosen = sizes_in(end).budgets[1].sizes;
  EXPECT_EQ(chosen[prune::Axis::hidden], full[prune::Axis::hidden]);
  EXPECT_LT(chosen[prune::Axis::shared_ffn], full[prune::Axis::shared_ffn]);
  EXPECT_NEAR(held.at("cost_0.9"), 0.9, 0.03);
  EXPECT_LT(held.at("loss_0.9"), 1.03 * held.at("loss_1"));
  nest_slice(end, "small", place.path() / "slice");
}

TEST(NestRouter, RefusesWhatItCannotLearn) {
  const support::Folder place;
  const fs::path nested = nested_hybrid(place.path() / "nested").folder;
  const auto says = [&](auto&& change) {
    Recipe r = routed_recipe(nested, place.path() / "out");
    change(r);
    return support::error_of([&] { train_nest(r); });
  };
  EXPECT_NE(says([](Recipe& r) { r.nest.budgets = {1}; }).find("no smaller model"), std::string::npos);
  EXPECT_NE(says([](Recipe& r) { r.nest.budgets = {}; }).find("no budgets"), std::string::npos);
  nlohmann::json sizes = nlohmann::json::parse(sys::read_file((nested / prune::kNestedFile).string()));
  sizes["budgets"][2]["share"] = 0.1;
  io::write_text_file(nested / prune::kNestedFile, sizes.dump());
  EXPECT_NE(says([](Recipe& r) { r.nest.budgets = {0.1}; }).find("routers cannot make half that small"),
            std::string::npos);
  sizes.erase("layer_order");
  io::write_text_file(nested / prune::kNestedFile, sizes.dump());
  EXPECT_NE(says([](Recipe& r) { r.nest.budgets = {0.6}; }).find("[nest.router] the nested model was made without"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::train
