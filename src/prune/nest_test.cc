// Nested models: reordered units change nothing, a slice is what a cut of the source keeps, bit for bit, its cost is
// that of its files, and nested.json is read back or refused.
#include "prune/nest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "models/config_file.h"
#include "models/count.h"
#include "models/load.h"
#include "prune/config_edit.h"
#include "prune/measure.h"
#include "prune/prune_support.h"
#include "prune/whole.h"
#include "support/error_of.h"
#include "support/golden.h"

namespace braid::prune {
namespace {

// A folder, its importance, drawn, and the nested model of it as a folder.
struct Source {
  explicit Source(const std::filesystem::path& folder)
      : path(io::find_model(folder.string())),
        config(models::load_config(path)),
        files(models::open_folder(path)),
        layouts(config, files.source.get()),
        model(whole_model(config, *files.source)),
        rows(random_rows(config.vocab, 3, 20)),
        scores(random_scores(config, 11)) {
    scores.energy = measured_scores(*model, rows, ExpertScore::all_tokens, 1, [](int64_t) { return true; }).energy;
    order = order_of(config, scores);
  }

  Keep keep(const Sizes& sizes) const {
    Keep k = first_of(config, order, sizes);
    scale_norms(config, layouts, scores, k);
    return k;
  }
  std::unique_ptr<models::Model> cut(const Keep& k, const Sizes& sizes) {
    return cut_model(config, layouts, k, sizes, *files.source);
  }
  Budget budget(const std::string& name, const Sizes& sizes) const {
    Budget b = budget_of(config, layouts, keep(sizes), sizes);
    b.name = name;
    return b;
  }
  io::ModelPath write(const std::filesystem::path& out, const Nested& nested) {
    const Keep all = first_of(config, order, {});
    WeightStore none;
    CutSource source(*files.source, layouts, all, none);
    const std::string text = models::config_text(io::Json::read(path.folder / "config.json").raw());
    EXPECT_TRUE(write_small(path, config, source, stacks_experts(layouts), text, out,
                            [](int64_t, int64_t) { return true; },
                            {.exact_norms = true, .sizes = nested_text(nested)}));
    return io::find_model(out.string());
  }

  io::ModelPath path;
  models::Config config;
  models::OpenFolder files;
  Layouts layouts;
  std::unique_ptr<models::Model> model;
  std::vector<data::Batch> rows;
  Scores scores;
  Keep order;
};

// Sizes that a model can have: every axis at about three quarters, or at the least.
Sizes smaller(const models::Config& config, bool least) {
  Sizes sizes;
  for (const AxisRange& r : axes_of(config, {})) {
    if (r.why.empty()) sizes[r.axis] = least ? r.least : std::clamp(3 * r.full / 4 / r.step * r.step, r.least, r.full);
  }
  return sizes;
}

bool written_by_family(const Source& s, const Sizes& sizes) {
  try {
    const Keep k = s.keep(sizes);
    (void)small_config_text(io::Json::read(s.path.folder / "config.json"), resized(s.config, sizes, k.layers),
                            k.layers);
    return true;
  } catch (const Error&) {
    return false;
  }
}

models::Model::LossSums losses_of(models::Model& model, const data::Batch& row) {
  Arena arena;
  Ctx ctx{.arena = arena};
  return RowPass{.ctx = ctx}(model, row, 1, true);
}

class Nest : public testing::TestWithParam<GoldenFolder> {};

TEST_P(Nest, ReorderedUnitsChangeNothing) {
  Source s(GetParam().path);
  const support::Folder place;
  const auto nested = models::load_model(s.write(place.path() / "nested", {.budgets = {s.budget("1", {})}}));
  EXPECT_NE(s.order.hidden, order_of(s.config).hidden);
  for (const data::Batch& row : s.rows) {
    EXPECT_LT(difference(logits_of(*s.model, row), logits_of(*nested, row)), 2e-5);
    const auto a = losses_of(*s.model, row), b = losses_of(*nested, row);
    for (size_t i = 0; i < a.mtp.size(); ++i) EXPECT_NEAR(a.mtp[i], b.mtp[i], 2e-5 * std::fabs(a.mtp[i]));
  }
}

TEST_P(Nest, SlicesAreCutsOfTheSource) {
  Source s(GetParam().path);
  const support::Folder place;
  Sizes sizes[2] = {smaller(s.config, false), smaller(s.config, true)};
  for (Sizes& size : sizes) {  // what the family cannot say together it says without depth
    if (!written_by_family(s, size)) size[Axis::layers] = 0;
    if (!written_by_family(s, size)) size = {.of = {size[Axis::hidden]}};
  }
  const Nested nested{.budgets = {s.budget("1", {}), s.budget("mid", sizes[0]), s.budget("small", sizes[1])}};
  const io::ModelPath folder = s.write(place.path() / "nested", nested);
  const models::OpenFolder files = models::open_folder(folder);
  const Layouts layouts(s.config, files.source.get());
  const Nested read = read_nested(folder.folder, s.config, layouts);
  const std::string names[2] = {"mid", "small"};
  for (size_t i = 0; i < 2; ++i) {
    const std::filesystem::path out = place.path() / names[i];
    const Stage go = [](const char*, int64_t, int64_t) { return true; };
    const SliceReport report = slice_model(folder, names[i], out, go);
    ASSERT_TRUE(report.whole);
    const auto slice = models::load_model(io::find_model(out.string()));
    const Keep prefix = keep_of(s.config, layouts, read.find("", names[i]));
    const auto inside = cut_model(s.config, layouts, prefix, sizes[i], *files.source);
    const Keep kept = s.keep(sizes[i]);
    const auto cut = s.cut(kept, sizes[i]);
    Keep in_place = kept;  // as prune leaves them
    std::sort(in_place.hidden.begin(), in_place.hidden.end());
    for (auto& [layer, own] : in_place.of_layer) {
      for (auto& units : own.units) std::sort(units.begin(), units.end());
      for (auto& units : own.expert_ffn) std::sort(units.begin(), units.end());
    }
    in_place.norm_scale.clear();
    scale_norms(s.config, s.layouts, s.scores, in_place);
    const auto pruned = s.cut(in_place, sizes[i]);
    for (const data::Batch& row : s.rows) {
      const std::vector<float> own = logits_of(*slice, row);
      EXPECT_EQ(own, logits_of(*inside, row));
      EXPECT_EQ(own, logits_of(*cut, row));
      EXPECT_LT(difference(logits_of(*pruned, row), own), 2e-5);
    }
    // Its cost is what its files have.
    const io::Safetensors stored(out);
    int64_t values = 0;
    for (const io::StoredTensor& t : stored.tensors()) values += t.view.count();
    EXPECT_EQ(report.cost.params, values);
    EXPECT_EQ(report.cost.active, models::count_parameters(slice->config()).active);
  }
}

// Every axis alone, so that no product of two sizes hides a wrong one.
TEST_P(Nest, CostsAreThoseOfSlices) {
  Source s(GetParam().path);
  const support::Folder place;
  Nested nested{.budgets = {s.budget("1", {})}};
  for (const AxisRange& r : axes_of(s.config, {})) {
    Sizes sizes;
    sizes[r.axis] = r.least;
    if (r.why.empty() && written_by_family(s, sizes)) nested.budgets.push_back(s.budget(name_of(r.axis), sizes));
  }
  const io::ModelPath folder = s.write(place.path() / "nested", nested);
  for (const Budget& b : nested.budgets) {
    const Stage go = [](const char*, int64_t, int64_t) { return true; };
    const SliceReport report = slice_model(folder, b.name, place.path() / b.name, go);
    const io::Safetensors stored(place.path() / b.name);
    int64_t values = 0;
    for (const io::StoredTensor& t : stored.tensors()) values += t.view.count();
    EXPECT_EQ(report.cost.params, values) << b.name;
    const CostModel costs(s.config, s.order.layers);  // as the search counts
    EXPECT_EQ(costs.of(b.sizes).params, values) << b.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Nest, testing::ValuesIn(unquantised_folders()),
                         [](const auto& test) { return test.param.label; });

// Heads stay with what they share, however the scores lie.
TEST(Order, HeadsStayInTheirGroups) {
  const Source s(support::data("hf/nemotron-h-latent-mtp"));
  const auto& m = std::get<nn::Mamba2Spec>(s.config.layers[0].parts[0].block);
  const std::vector<int64_t>& heads = s.order.of_layer.at(0)[Label::mamba_heads];
  const int64_t size = m.heads / m.groups;
  for (int64_t i = 0; i < m.heads; ++i) EXPECT_EQ(heads[static_cast<size_t>(i)] / size, i / size);
  for (const auto& [layer, own] : s.order.of_layer) {
    const std::vector<int64_t>&keys = own[Label::kv_heads], &queries = own[Label::q_heads];
    const size_t each = keys.empty() ? 1 : queries.size() / keys.size();
    for (size_t i = 0; i < queries.size(); ++i) EXPECT_EQ(queries[i] / static_cast<int64_t>(each), keys[i / each]);
  }
}

TEST(Budgets, AreReadAndRefused) {
  const std::vector<Budget> list = parse_budgets("small=0.25,0.5");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].share, 1);
  EXPECT_EQ(list[1].name, "0.5");
  EXPECT_EQ(list[2].name, "small");
  const std::map<std::string, std::string> wrong = {
      {"", "no smaller"},       {"1", "no smaller"}, {"0.5,0.5", "twice"},
      {"a=0.5,a=0.4", "twice"}, {"2", "share"},      {"x", "share"},
      {"=0.5", "share"},        {"0.5x", "share"},   {"0.5=0.75", "a number that is not"}};
  for (const auto& entry : wrong) {
    const std::string message = support::error_of([&] { parse_budgets(entry.first); });
    EXPECT_NE(message.find(entry.second), std::string::npos) << entry.first << ": " << message;
  }
}

TEST(NestedFile, RefusesWhatDoesNotFit) {
  Source s(support::data("hf/nemotron-h-latent-mtp"));
  Nested nested{.budgets = {s.budget("1", {}), s.budget("0.5", smaller(s.config, false))}};
  nested.budgets[1].share = 0.5;
  const support::Folder place;
  const nlohmann::json good = nlohmann::json::parse(nested_text(nested));
  const auto says = [&](const nlohmann::json& j) {
    io::write_text_file(place.path() / kNestedFile, j.dump());
    return support::error_of([&] { (void)read_nested(place.path(), s.config, s.layouts); });
  };
  EXPECT_EQ(says(good), "");
  const Nested again = read_nested(place.path(), s.config, s.layouts);
  EXPECT_EQ(again.budgets[1].sizes, nested.budgets[1].sizes);
  EXPECT_EQ(again.budgets[1].layers, nested.budgets[1].layers);
  EXPECT_EQ(again.budgets[1].norm_scale, nested.budgets[1].norm_scale);
  const auto with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json j = good;
    j[nlohmann::json::json_pointer(pointer)] = value;
    return says(j);
  };
  EXPECT_NE(with("/budgets", nlohmann::json::array()).find("has none"), std::string::npos);
  EXPECT_NE(with("/measure", "bytes").find("measure"), std::string::npos);
  EXPECT_NE(with("/budgets/1/sizes/hidden", s.config.hidden + 1).find("hidden"), std::string::npos);
  EXPECT_NE(with("/budgets/1/sizes/hidden", 0).find("hidden"), std::string::npos);
  EXPECT_NE(with("/budgets/1/sizes/experts", 1).find("cannot have"), std::string::npos);
  EXPECT_NE(with("/budgets/1/sizes/mamba_heads", 3).find("cannot have"), std::string::npos);
  EXPECT_NE(with("/budgets/1/sizes/wings", 2).find("is not an axis"), std::string::npos);
  EXPECT_NE(with("/budgets/1/skipped_layers", nlohmann::json::array()).find("skips 0"), std::string::npos);
  EXPECT_NE(with("/budgets/1/skipped_layers", {1000}).find("skipped_layers"), std::string::npos);
  EXPECT_NE(with("/budgets/1/norm_scale", {{"lm_head.weight", {1}}}).find("is not a norm"), std::string::npos);
  const std::string norm = nested.budgets[1].norm_scale.begin()->first;
  EXPECT_NE(with("/budgets/1/norm_scale", {{norm, {1, 1, 1}}}).find("3 scales"), std::string::npos);
  EXPECT_NE(with("/budgets/1/norm_scale", {{norm, {-1}}}).find(norm), std::string::npos);
  std::filesystem::remove(place.path() / kNestedFile);
  EXPECT_NE(support::error_of([&] { (void)read_nested(place.path(), s.config, s.layouts); }).find("not a nested model"),
            std::string::npos);
  EXPECT_NE(support::error_of([&] { (void)again.find("--budget", "0.6"); }).find("expected 1, 0.5"), std::string::npos);
  EXPECT_EQ(again.find("--budget", "0.50").name, "0.5");
}

}  // namespace
}  // namespace braid::prune
