// Variants beside what they stand for: a whole block cut to its own size changes no bit, scores are those of the folder
// with one block replaced (loaded anew, divergences computed again from its logits), bytes are those of the files, and
// distillation moves weights against a gradient that is computed here from the streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "models/random_weights.h"
#include "prune/prune.h"
#include "prune/prune_support.h"
#include "puzzle/distill.h"
#include "puzzle/judge.h"
#include "puzzle/linear_fit.h"
#include "puzzle/search.h"
#include "puzzle/stream.h"
#include "puzzle/times.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "support/golden.h"
#include "support/models.h"

namespace braid::puzzle {
namespace {

using support::error_of;

Lists lists_of(const std::string& text) { return read_lists(io::Json::parse(text, "variants")); }

// A Llama with random weights.
std::filesystem::path llama_in(const std::filesystem::path& folder) {
  nlohmann::json json = models::dense("llama");
  json["architectures"] = {"LlamaForCausalLM"};
  json["hidden_act"] = "silu";
  json["num_key_value_heads"] = 4;
  std::ofstream(folder / "config.json") << json.dump();
  CHECK(models::write_random_weights(models::read(json), folder, {.seed = 3}, [](int64_t) { return true; }), "stopped");
  return folder;
}

// Hybrids with latent experts and with a dense block, Llama-Nemotron and a Llama; of the fixtures one whose layers have
// their own experts.
std::vector<std::string> folders() {
  std::vector<std::string> list = {"llama"};
  for (const char* name : {"nemotron-h-latent-mtp", "nemotron-h-legacy", "nemotron-nas"})
    list.push_back(support::data(std::string("hf/") + name));
  const std::string more = support::fixtures() + "/hf/nemotron-h-puzzle";
  if (!support::fixtures().empty() && std::filesystem::exists(more)) list.push_back(more);
  return list;
}

struct Subject {
  explicit Subject(const std::string& folder)
      : path(io::find_model(folder == "llama" ? llama_in(place.path()).string() : folder)),
        parent(path),
        rows(prune::random_rows(parent.config().vocab, 3, 24)) {
    parent.measure(rows, 1, [](int64_t) { return true; });
    Lists lists = default_lists(parent.config());
    lists.of["kv_heads"].sizes = {0.5};
    sites = sites_of(parent.config(), lists);
  }

  support::Folder place;
  io::ModelPath path;
  Parent parent;
  std::vector<data::Batch> rows;
  std::vector<Site> sites;
};

class Folders : public testing::TestWithParam<std::string> {};

TEST_P(Folders, WholeBlocksChangeNoBit) {
  Subject s(GetParam());
  Judge judge(s.parent, s.rows, 1);
  for (size_t i = 0; i < s.sites.size(); ++i) {
    const Variant same{.change = Change::cut, .block = s.sites[i].whole(), .name = "same"};
    const auto block = s.parent.block(s.sites[i], i, same, {});
    EXPECT_EQ(judge.local_error(block.get()), 0) << i;
    const Difference d = judge.replaced(block.get());
    EXPECT_EQ(d.kl, 0);
    EXPECT_EQ(d.loss, 0);
    EXPECT_LT(d.cosine, 1e-12);
    judge.advance();
  }
}

double log_sum(const float* logits, int64_t n) {
  double most = -HUGE_VAL, sum = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, static_cast<double>(logits[i]));
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return most + std::log(sum);
}

// KL and the increase of the loss of a folder, from its logits.
Difference again(const Subject& s, models::Model& parent, const std::filesystem::path& folder) {
  const auto child = models::load_model(io::find_model(folder.string()));
  Difference d;
  int64_t targets = 0;
  const int64_t vocab = parent.config().vocab;
  for (const data::Batch& row : s.rows) {
    const std::vector<float> p = prune::logits_of(parent, row), q = prune::logits_of(*child, row);
    for (int64_t t = 0; t < std::ssize(row.ids); ++t) {
      const int32_t target = row.targets[static_cast<size_t>(t)];
      if (target < 0) continue;
      const float *lp = p.data() + t * vocab, *lq = q.data() + t * vocab;
      const double sp = log_sum(lp, vocab), sq = log_sum(lq, vocab);
      for (int64_t i = 0; i < vocab; ++i) {
        const double own = static_cast<double>(lp[i]) - sp;
        d.kl += std::exp(own) * (own - (static_cast<double>(lq[i]) - sq));
      }
      d.loss += (static_cast<double>(lp[target]) - sp) - (static_cast<double>(lq[target]) - sq);
      ++targets;
    }
  }
  d.kl /= static_cast<double>(targets);
  d.loss /= static_cast<double>(targets);
  return d;
}

TEST_P(Folders, ScoresAreThoseOfTheFolderWithOneBlockReplaced) {
  Subject s(GetParam());
  const auto parent = models::load_model(s.path);
  Judge judge(s.parent, s.rows, 1);
  size_t tried = 0;
  for (size_t i = 0; i < s.sites.size(); ++i) {
    const Site& site = s.sites[i];
    for (size_t v = 1; v < site.variants.size(); ++v) {
      if ((i + v) % 3 != 0 && site.variants[v].change == Change::cut) continue;  // some of them
      const Values values = s.parent.first_values(site, site.variants[v]);
      const auto block =
          site.variants[v].change == Change::none ? nullptr : s.parent.block(site, i, site.variants[v], values);
      const Difference d = judge.replaced(block.get());
      std::vector<int64_t> choice(s.sites.size());
      choice[i] = static_cast<int64_t>(v);
      const support::Folder place;
      const std::filesystem::path out = place.path() / "one";
      ASSERT_TRUE(s.parent.write(s.sites, choice, values.of, out, [](int64_t, int64_t) { return true; }));
      const Difference folder = again(s, *parent, out);
      // Scaled norms of Mamba are rounded to the type of the files.
      const double bound = std::holds_alternative<nn::Mamba2Spec>(site.whole()) ? 0.03 : 1e-3;
      EXPECT_NEAR(d.kl, folder.kl, bound * folder.kl + 1e-6) << i << " " << site.variants[v].name;
      EXPECT_NEAR(d.loss, folder.loss, bound * std::fabs(folder.loss) + 1e-5) << i << " " << site.variants[v].name;
      EXPECT_EQ(prune::stored_bytes(out), s.parent.bytes_of(s.parent.assembled(s.sites, choice), s.sites, nullptr));
      ++tried;
    }
    judge.advance();
  }
  EXPECT_GT(tried, s.sites.size() / 2);
}

// Bytes add up over blocks, also where all of them have changed at once.
TEST_P(Folders, BytesAddUp) {
  Subject s(GetParam());
  std::vector<int64_t> whole(s.sites.size()), choice;
  int64_t sum = s.parent.bytes_of(s.parent.assembled(s.sites, whole), s.sites, nullptr);
  prune::Replacements replaced;
  std::vector<Values> kept;
  for (size_t i = 0; i < s.sites.size(); ++i) {
    const auto& variants = s.sites[i].variants;
    const size_t v = i == 0 ? 0 : (i + 1) % variants.size();
    choice.push_back(static_cast<int64_t>(v));
    const auto bytes = [&](size_t k) {
      return variants[k].change == Change::none
                 ? 0
                 : s.parent.bytes_of(s.parent.block_config(i, variants[k]), s.sites, nullptr);
    };
    sum += bytes(v) - bytes(0);
    kept.push_back(s.parent.first_values(s.sites[i], variants[v]));
    replaced.insert(kept.back().of.begin(), kept.back().of.end());
  }
  const support::Folder place;
  const std::filesystem::path out = place.path() / "mixed";
  ASSERT_TRUE(s.parent.write(s.sites, choice, replaced, out, [](int64_t, int64_t) { return true; }));
  EXPECT_EQ(prune::stored_bytes(out), sum);
  // Every layer has the block that was chosen.
  const models::Config read = models::load_config(io::find_model(out.string()));
  std::vector<std::string> shapes;
  for (const models::LayerSpec& layer : read.layers) {
    for (const models::PartSpec& part : layer.parts) shapes.push_back(shape_of(part.block));
  }
  size_t at = 0;
  for (size_t i = 0; i < s.sites.size(); ++i) {
    const Variant& v = s.sites[i].variants[static_cast<size_t>(choice[i])];
    if (v.change == Change::none) continue;
    ASSERT_LT(at, shapes.size());
    EXPECT_EQ(shapes[at++], shape_of(v.block)) << i;
  }
  EXPECT_EQ(at, shapes.size());
}

std::vector<DistillRow> rows_of(Judge& judge) {
  std::vector<DistillRow> rows;
  for (size_t i = 0; i < judge.rows(); ++i) rows.push_back({&judge.row(i), judge.stream(i)});
  judge.advance();
  for (size_t i = 0; i < rows.size(); ++i) rows[i].after = judge.stream(i);
  return rows;
}

TEST_P(Folders, DistillationLowersTheErrorOfABlock) {
  Subject s(GetParam());
  Judge judge(s.parent, s.rows, 1), streams(s.parent, s.rows, 1, true);
  for (size_t i = 0; i < s.sites.size(); ++i) {
    const std::vector<DistillRow> rows = rows_of(streams);
    for (size_t v = 1; v < s.sites[i].variants.size(); ++v) {
      const Variant& variant = s.sites[i].variants[v];
      if (variant.change == Change::none || (i + v) % 2 != 0) continue;
      const Values first = s.parent.first_values(s.sites[i], variant);
      const double before = judge.local_error(s.parent.block(s.sites[i], i, variant, first).get());
      const Values trained =
          distilled(s.parent, s.sites[i], i, variant, first, rows, {.tokens = 3000, .lr = 3e-3, .batch_tokens = 64});
      const double after = judge.local_error(s.parent.block(s.sites[i], i, variant, trained).get());
      EXPECT_LT(after, before) << i << " " << variant.name;
    }
    judge.advance();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Folders, testing::ValuesIn(folders()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).filename().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '-'; }, '_');
  return name;
});

// The first step of Adam moves every weight by the learning rate against the sign of its gradient. Of a linear map of
// zeros that is -2 sum o n^T / sum |o|^2, n the normed input and o the output of the parent's block.
TEST(Distill, AStepGoesAgainstTheGradient) {
  Subject s("llama");
  Judge streams(s.parent, s.rows, 1, true);
  const std::vector<DistillRow> rows = rows_of(streams);
  const Site& site = s.sites[0];
  const auto linear = std::find_if(site.variants.begin(), site.variants.end(),
                                   [](const Variant& v) { return v.change == Change::linear; });
  ASSERT_NE(linear, site.variants.end());
  const Values first = s.parent.first_values(site, *linear);
  ASSERT_EQ(first.of.size(), 1u);
  const std::string name = first.of.begin()->first;
  const Values moved =
      distilled(s.parent, site, 0, *linear, first, rows, {.tokens = 1, .lr = 0.25, .batch_tokens = 1 << 20});
  const auto width = static_cast<size_t>(s.parent.config().hidden);
  std::vector<double> norm, gradient(width * width);
  for (Param* p : s.parent.model().params()) {
    if (p->name != "model.layers.0.input_layernorm.weight") continue;
    for (size_t i = 0; i < width; ++i) norm.push_back(element(p->value.codes, static_cast<int64_t>(i)));
  }
  ASSERT_EQ(norm.size(), width);
  for (const DistillRow& row : rows) {
    for (size_t t = 0; t < row.row->ids.size(); ++t) {
      const float *x = row.before.data() + t * width, *y = row.after.data() + t * width;
      double mean = 0;
      for (size_t i = 0; i < width; ++i) mean += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      const double scale =
          1 / std::sqrt(mean / static_cast<double>(width) + static_cast<double>(s.parent.config().eps));
      for (size_t r = 0; r < width; ++r) {
        for (size_t c = 0; c < width; ++c)
          gradient[r * width + c] -=
              (static_cast<double>(y[r]) - static_cast<double>(x[r])) * static_cast<double>(x[c]) * scale * norm[c];
      }
    }
  }
  double largest = 0;
  for (const double g : gradient) largest = std::max(largest, std::fabs(g));
  const View w = moved.of.at(name).value;
  int64_t compared = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (std::fabs(gradient[i]) < 0.01 * largest) continue;
    EXPECT_NEAR(element(w, static_cast<int64_t>(i)), gradient[i] < 0 ? 0.25 : -0.25, 0.01) << i;
    ++compared;
  }
  EXPECT_GT(compared, std::ssize(gradient) / 4);
}

// No other map is closer: of the map that was fitted, the error does not fall when it is scaled.
TEST(Linear, TheFitIsTheClosestMap) {
  Subject s(support::data("hf/nemotron-nas"));
  Judge judge(s.parent, s.rows, 1), streams(s.parent, s.rows, 1, true);
  size_t fitted = 0;
  for (size_t i = 0; i < s.sites.size(); ++i) {
    const std::vector<DistillRow> rows = rows_of(streams);
    const Site& site = s.sites[i];
    const char letter = models::letter_of(site.whole());
    const ParamRole role = letter == '*' ? ParamRole::linear_attention : ParamRole::linear_mlp;
    if (letter == 'L') {
      judge.advance();
      continue;
    }
    const Variant variant{
        .change = Change::linear, .block = models::LinearSpec{s.parent.config().hidden, role}, .name = "linear"};
    const Values first = s.parent.first_values(site, variant), fit = fitted_linear(s.parent, i, first, rows, 1);
    const auto error = [&](const Values& values) {
      return judge.local_error(s.parent.block(site, i, variant, values).get());
    };
    const double best = error(fit);
    EXPECT_NEAR(error(first), 1, 1e-6);  // zeros: all of the output is missing
    EXPECT_LT(best, 0.9) << i;
    for (const double factor : {0.9, 1.1}) {
      Values other{.store = std::make_shared<WeightStore>()};
      for (const auto& [name, value] : fit.of) {
        const MutView v = other.store->make(value.value.dtype, value.value.shape);
        for (int64_t k = 0; k < v.count(); ++k) set_element(v, k, factor * element(value.value, k));
        other.of[name] = {.value = v, .like = value.like};
      }
      EXPECT_GT(error(other), best) << i;
    }
    ++fitted;
    judge.advance();
  }
  EXPECT_GT(fitted, 2u);
}

TEST(Merged, KeyHeadsAreMeansOfNeighbours) {
  Subject s("llama");
  const Site& site = s.sites[0];
  const auto merged = std::find_if(site.variants.begin(), site.variants.end(),
                                   [](const Variant& v) { return v.change == Change::merged; });
  ASSERT_NE(merged, site.variants.end());
  const auto &was = std::get<nn::AttentionSpec>(site.whole()), &is = std::get<nn::AttentionSpec>(merged->block);
  EXPECT_EQ(is.heads, was.heads);
  EXPECT_EQ(2 * is.kv_heads, was.kv_heads);
  const Values values = s.parent.first_values(site, *merged);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  const View k = values.of.at(name).value;
  EXPECT_TRUE(values.of.contains("model.layers.0.self_attn.v_proj.weight"));
  const View whole = s.parent.files().get(s.parent.layouts().of(name).spec).value.codes;
  for (int64_t r = 0; r < k.dim(0); ++r) {
    const int64_t head = r / is.head_dim, inside = r % is.head_dim;
    for (int64_t c = 0; c < k.dim(1); ++c) {
      const double a = element(whole, (2 * head * is.head_dim + inside) * k.dim(1) + c),
                   b = element(whole, ((2 * head + 1) * is.head_dim + inside) * k.dim(1) + c);
      ASSERT_NEAR(element(k, r * k.dim(1) + c), (a + b) / 2, 1e-2 * std::max(std::fabs(a), std::fabs(b)) + 1e-9);
    }
  }
}

TEST(Variants, AreCombinationsOfTheSizesOfABlock) {
  const models::Config config = models::load_config(io::find_model(support::data("hf/nemotron-h-latent-mtp")));
  const auto sites =
      sites_of(config, lists_of(R"({"experts": [0.5], "expert_ffn": [0.5, 1], "moe": ["none"], "keep": [0]})"));
  ASSERT_EQ(sites.size(), config.layers.size());
  EXPECT_EQ(sites[0].variants.size(), 1u);
  for (const Site& site : sites) {
    if (!std::holds_alternative<nn::MoeSpec>(site.whole()) || site.layer == 0) continue;
    const auto& was = std::get<nn::MoeSpec>(site.whole());
    ASSERT_EQ(site.variants.size(), 5u);  // the whole, either, both, none
    EXPECT_EQ(std::get<nn::MoeSpec>(site.variants[1].block).experts, std::max(was.experts / 2, was.top_k));
    EXPECT_EQ(site.variants[4].change, Change::none);
  }
}

TEST(Variants, Refusals) {
  const models::Config config = models::load_config(io::find_model(support::data("hf/nemotron-h-latent-mtp")));
  const auto refused = [&](const std::string& text) { return error_of([&] { sites_of(config, lists_of(text)); }); };
  EXPECT_NE(refused(R"({"width": [1]})").find("is not a kind of variant"), std::string::npos);
  EXPECT_NE(refused(R"({"experts": 3})").find("is not a list of sizes"), std::string::npos);
  EXPECT_NE(refused(R"({"experts": ["half"]})").find("is not a variant"), std::string::npos);
  EXPECT_NE(refused(R"({"experts": [-1]})").find("experts[0]"), std::string::npos);
  EXPECT_NE(refused(R"({"moe": [0.5]})").find("is not a variant"), std::string::npos);
  EXPECT_NE(refused(R"({"ffn": [0.5]})").find("no such blocks"), std::string::npos);
  EXPECT_NE(refused(R"({"attention": ["linear"]})").find("can be linear"), std::string::npos);
  EXPECT_NE(refused(R"({"keep": [99]})").find("no such layer"), std::string::npos);
  EXPECT_NE(refused("[]").find("not a table"), std::string::npos);
  const models::Config llama = models::read(models::dense("llama"));
  EXPECT_NE(error_of([&] { sites_of(llama, lists_of(R"({"kv_groups": [0.5]})")); }).find("cannot differ"),
            std::string::npos);
  const models::Config qwen = models::read(models::dense("qwen3"));
  EXPECT_NE(error_of([&] { sites_of(qwen, default_lists(qwen)); }).find("layers of this family"), std::string::npos);
}

TEST(Limits, AreRead) {
  const std::vector<Limit> limits = parse_limits("gib=75%,decode_ms=12.5,kv=0.5x,params=2e6");
  ASSERT_EQ(limits.size(), 4u);
  EXPECT_EQ(limits[0].value, 0.75);
  EXPECT_TRUE(limits[0].share);
  EXPECT_EQ(limits[1].kind, CostKind::decode_ms);
  EXPECT_EQ(limits[1].value, 12.5);
  EXPECT_FALSE(limits[1].share);
  EXPECT_TRUE(limits[2].share);
  for (const char* text : {"", "gib", "gib=", "gib=-1", "gib=nan", "size=1", "gib=1y", "gib=1,gib=2"})
    EXPECT_NE(error_of([&] { parse_limits(text); }), "") << text;
}

// Blocks of one shape have the same times, no block none; and blocks are timed in every pass.
TEST(Times, AreOfShapes) {
  Subject s(support::data("hf/nemotron-h-latent-mtp"));
  const TimeOptions options{.batch = 3, .length = 70, .rounds = 2};
  TimeInputs inputs(options);
  Judge judge(s.parent, s.rows, 1);
  for (size_t i = 0; i < s.sites.size(); ++i) {
    inputs.take(judge);
    const auto width = static_cast<size_t>(s.parent.config().hidden);
    EXPECT_EQ(inputs.step(i).size(), 3 * width);
    EXPECT_EQ(inputs.prompt(i).size(), 70 * width);
    EXPECT_TRUE(std::equal(inputs.prompt(i).begin(), inputs.prompt(i).begin() + 24 * static_cast<std::ptrdiff_t>(width),
                           judge.stream(0).begin()));
    judge.advance();
  }
  const TimeTable table = measure_times(s.parent, s.sites, inputs, options, [](int64_t, int64_t) { return true; });
  std::map<std::string, double> known;
  EXPECT_GT(table.rest.decode, 0);
  for (size_t i = 0; i < s.sites.size(); ++i) {
    for (size_t v = 0; v < s.sites[i].variants.size(); ++v) {
      const Variant& variant = s.sites[i].variants[v];
      const double ms = table.of[i][v].decode;
      EXPECT_EQ(ms > 0, variant.change != Change::none);
      if (variant.change == Change::none) continue;
      EXPECT_EQ(known.emplace(shape_of(variant.block), ms).first->second, ms);
    }
  }
  EXPECT_TRUE(measure_times(s.parent, s.sites, inputs, options, [](int64_t, int64_t) { return false; }).of.empty());
}

}  // namespace
}  // namespace braid::puzzle
