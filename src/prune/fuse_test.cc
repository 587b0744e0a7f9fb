// A fused model against the formula, computed from the layers of the whole one; which blocks follow each other; what is
// refused.
#include "prune/fuse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "prune/prune_support.h"
#include "support/models.h"

namespace braid::prune {
namespace {

using nlohmann::json;

// Runs of three and two blocks of different widths, across a layer that does nothing, and a block after attention.
json nas() {
  json c = models::dense("nemotron-nas");
  c["architectures"] = {"DeciLMForCausalLM"};
  c["hidden_act"] = "silu";
  c["num_key_value_heads"] = nullptr;
  c["intermediate_size"] = nullptr;
  const json none = {{"no_op", true}}, attention = {{"n_heads_in_group", 2}};
  const auto ffn = [](int width) { return json{{"intermediate_size", width}}; };
  c["block_configs"] = {{{"attention", attention}, {"ffn", ffn(24)}}, {{"attention", none}, {"ffn", ffn(40)}},
                        {{"attention", none}, {"ffn", none}},         {{"attention", none}, {"ffn", ffn(17)}},
                        {{"attention", attention}, {"ffn", none}},    {{"attention", none}, {"ffn", ffn(16)}},
                        {{"attention", none}, {"ffn", ffn(9)}}};
  c["num_hidden_layers"] = 7;
  return c;
}

json hybrid() {
  json c = models::hybrid();
  c["layers_block_type"] = {"mamba", "mlp", "mlp", "attention", "mlp", "moe", "mlp", "mlp", "mlp"};
  c["num_hidden_layers"] = 9;
  return c;
}

class FuseTest : public models::FolderTest {
 protected:
  void write_f32(const json& config) const {
    std::vector<io::TensorSpec> specs = tensors_of(config);
    for (io::TensorSpec& spec : specs) spec.dtype = DType::f32;
    write(config, specs);
  }
  static bool go_on(const char*, int64_t, int64_t) { return true; }
};

// Logits where the blocks of each run all read the stream before it. Blocks are layers, or the second parts of layers
// whose first part comes before the run: a run's first block is computed as the whole layer less what attention gives.
std::vector<float> by_formula(models::Model& model, const std::vector<FfnRun>& runs, const data::Batch& row) {
  Arena arena;
  Ctx ctx{.arena = arena};
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = row.seqs, .state = state, .numerics = Numerics::training(DType::f32)};
  const Tensor ids = integers(arena, row.ids);
  Tensor x = model.forward(run, ids, {}, {0, 0});
  const auto layer = [&](size_t i, const Tensor& from) {
    return model.forward(run, ids, from, {static_cast<int64_t>(i), 1});
  };
  for (size_t i = 0; i < model.config().layers.size(); ++i) {
    const FfnRun* own = nullptr;
    for (const FfnRun& r : runs) own = r[0].layer == i ? &r : own;
    if (!own) {
      x = layer(i, x);
      continue;
    }
    CHECK(model.config().layers[i].parts.size() == 1, "layer {}", i);
    const Tensor sum(arena, DType::f32, x.view().shape);
    const auto* was = x.view().as<float>();
    std::copy_n(was, sum.view().count(), sum.mut().as<float>());
    for (const BlockAt& at : *own) {
      const Tensor out = layer(at.layer, x);
      for (int64_t k = 0; k < sum.view().count(); ++k) sum.mut().as<float>()[k] += out.view().as<float>()[k] - was[k];
    }
    x = sum;
    i = own->back().layer;
  }
  const Tensor logits = model.logits(run, x);
  const auto* values = logits.view().as<float>();
  return {values, values + logits.view().count()};
}

TEST_F(FuseTest, RunsAreBlocksWithNothingBetween) {
  const auto layers = [](const json& config) {
    std::vector<std::vector<size_t>> list;
    for (const FfnRun& run : ffn_runs(models::read(config))) {
      auto& own = list.emplace_back();
      for (const BlockAt& at : run) own.push_back(at.layer);
    }
    return list;
  };
  using Lists = std::vector<std::vector<size_t>>;
  EXPECT_EQ(layers(nas()), (Lists{{0, 1, 3}, {5, 6}}));
  EXPECT_EQ(layers(hybrid()), (Lists{{1, 2}, {6, 7, 8}}));
  EXPECT_EQ(layers(models::hybrid()), Lists{});
  json biased = hybrid();
  biased["layers_block_type"] = {"mlp", "mlp"};
  biased["num_hidden_layers"] = 2;
  EXPECT_EQ(layers(biased), (Lists{{0, 1}}));
  biased["mlp_bias"] = true;
  EXPECT_EQ(layers(biased), Lists{});
}

TEST_F(FuseTest, AWideBlockIsTheSumOfItsRun) {
  json apart = nas();  // attention of the first layer in one of its own, so that layers are blocks
  apart["block_configs"].insert(apart["block_configs"].begin(),
                                json{{"attention", {{"n_heads_in_group", 2}}}, {"ffn", {{"no_op", true}}}});
  apart["block_configs"][1]["attention"] = {{"no_op", true}};
  apart["num_hidden_layers"] = 8;
  for (const json& config : {apart, hybrid()}) {
    write_f32(config);
    const auto whole = load();
    const std::vector<FfnRun> runs = ffn_runs(whole->config());
    ASSERT_EQ(runs.size(), 2u);
    const std::filesystem::path out = folder_ / ("fused-" + whole->config().family);
    const FuseReport report = fuse_model(io::find_model(folder_.string()), out, go_on);
    ASSERT_TRUE(report.whole);
    const auto fused = models::load_model(io::find_model(out.string()));
    EXPECT_EQ(report.layers_after, std::ssize(fused->config().layers));
    EXPECT_EQ(report.layers_before - report.layers_after, std::ssize(runs[0]) + std::ssize(runs[1]) - 2);
    const data::Batch row = random_rows(50, 1, 20)[0];
    const std::vector<float> expected = by_formula(*whole, runs, row), one_by_one = logits_of(*whole, row);
    EXPECT_LT(difference(expected, logits_of(*fused, row)), 2e-6) << fused->config().pattern();
    EXPECT_GT(difference(expected, one_by_one), 1e-5);  // the formula is another one
  }
}

TEST_F(FuseTest, RefusesWhatItCannotFuse) {
  const auto refusal = [&](const json& config) {
    write_f32(config);
    return support::error_of([&] { fuse_model(io::find_model(folder_.string()), folder_ / "out", go_on); });
  };
  EXPECT_NE(refusal(models::hybrid()).find("no feed-forward block follows another"), std::string::npos);
  EXPECT_NE(refusal(models::dense("nemotron")).find("expected RMSNorm"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

}  // namespace
}  // namespace braid::prune
