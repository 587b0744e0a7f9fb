// Importance against formulas computed again from the weights and the tokens, in double precision and without the
// program's blocks; rankings by hand; costs against the inventory.
#include "prune/scores.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "models/count.h"
#include "models/family.h"
#include "models/master_weights.h"
#include "models/presets.h"
#include "prune/cost.h"
#include "prune/cut_model.h"
#include "prune/measure.h"
#include "prune/prune.h"
#include "prune/prune_support.h"
#include "prune/search.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "support/golden.h"

namespace braid::prune {
namespace {

using Matrix = std::vector<std::vector<double>>;
using List = std::vector<int64_t>;

TEST(Ranking, GroupsKeepTheSameNumberEach) {
  const std::vector<double> scores = {9, 8, 7, 6, 1, 2, 3, 4};
  EXPECT_EQ(keep_best(scores, 4), (List{0, 1, 2, 3}));  // blind to groups: one of them would be left without heads
  EXPECT_EQ(keep_in_groups(scores, 2, 4), (List{0, 1, 6, 7}));
  EXPECT_EQ(keep_in_groups(scores, 4, 4), (List{0, 2, 5, 7}));
  EXPECT_EQ(keep_best(std::vector<double>{1, 1, 1}, 2), (List{0, 1}));
  EXPECT_EQ(ranked(std::vector<double>{1, 3, 2}), (List{1, 2, 0}));
}

TEST(Ranking, ChannelsOfMambaAreRankedForAllHeadsAlike) {
  const std::vector<double> scores = {3, 0, 1, 4, 0, 2};  // two heads of three channels
  const std::vector<double> channels = channels_over_heads(scores, 2);
  EXPECT_EQ(channels, (std::vector<double>{5, 0, std::sqrt(5.0)}));
  EXPECT_EQ(keep_best(channels, 2), (List{0, 2}));
  // A head counts by what stays of it.
  EXPECT_EQ(heads_over_channels(scores, 2, List{0, 2}), (std::vector<double>{std::sqrt(10.0), std::sqrt(20.0)}));
  EXPECT_EQ(heads_over_channels(scores, 2, List{2}), (std::vector<double>{1, 2}));
}

// Four groups of two heads, of which the first two groups have all the best: blind to groups, the second head of group
// 0 lands where group 1 was.
TEST(Ranking, MambaHeadsOverAllGroupsOnlyWhereAsked) {
  const nn::Mamba2Spec was{.hidden = 8, .heads = 8, .head_dim = 1, .state = 4, .groups = 4};
  nn::Mamba2Spec is = was;
  is.heads = 4;
  Scores scores;
  scores.of[{Axis::mamba_heads, 0}] = {8, 7, 6, 5, 1, 2, 3, 4};
  LayerKeep grouped, blind;
  keep_units(was, is, scores, 0, grouped);
  scores.ungrouped = true;
  keep_units(was, is, scores, 0, blind);
  EXPECT_EQ(grouped[Label::mamba_heads], (List{0, 2, 5, 7}));
  EXPECT_EQ(blind[Label::mamba_heads], (List{0, 1, 2, 3}));
  EXPECT_EQ(blind[Label::inner], (List{0, 1, 2, 3}));
}

// A Nemotron-H, layer by layer.
class Brute {
 public:
  explicit Brute(models::Model& model) : config_(model.config()) {
    for (const Param* p : model.params()) {
      if (!p->mtp) params_.push_back(p);
    }
  }

  const Matrix& weight(ParamRole role, int layer, int expert = -1, bool shared = false) {
    Matrix& known = read_[{role, layer, expert, shared}];
    if (known.empty()) known = read(role, layer, expert, shared);
    return known;
  }

  Matrix read(ParamRole role, int layer, int expert, bool shared) const {
    for (const Param* p : params_) {
      if (p->role != role || p->layer != layer || p->expert != expert) continue;
      if (shared != (p->name.find("shared") != std::string::npos)) continue;
      Matrix m(static_cast<size_t>(p->value.rows), std::vector<double>(static_cast<size_t>(p->value.cols)));
      for (size_t r = 0; r < m.size(); ++r) {
        for (size_t c = 0; c < m[r].size(); ++c)
          m[r][c] = element(p->value.codes, static_cast<int64_t>(r * m[r].size() + c));
      }
      return m;
    }
    ADD_FAILURE() << name_of(role) << " of layer " << layer;
    return {};
  }

  static std::vector<double> times(const Matrix& w, const std::vector<double>& x) {
    std::vector<double> y;
    for (const auto& row : w) {
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
      y.push_back(sum);
    }
    return y;
  }

  Matrix normed(const std::vector<float>& stream, int layer) {
    const auto width = static_cast<size_t>(config_.hidden);
    const std::vector<double> w = weight(ParamRole::norm, layer)[0];
    Matrix rows;
    for (size_t begin = 0; begin < stream.size(); begin += width) {
      double mean = 0;
      std::vector<double> row;
      for (size_t i = 0; i < width; ++i) row.push_back(static_cast<double>(stream[begin + i]));
      for (const double v : row) mean += v * v / static_cast<double>(width);
      for (size_t i = 0; i < width; ++i) row[i] *= w[i] / std::sqrt(mean + static_cast<double>(config_.eps));
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Matrix attention(const Matrix& x, int layer, const nn::AttentionSpec& a) {
    const Matrix wq = weight(ParamRole::q, layer), wk = weight(ParamRole::k, layer), wv = weight(ParamRole::v, layer);
    Matrix q, k, v;
    for (const auto& row : x) q.push_back(times(wq, row)), k.push_back(times(wk, row)), v.push_back(times(wv, row));
    const auto dim = static_cast<size_t>(a.head_dim), group = static_cast<size_t>(a.heads / a.kv_heads);
    Matrix out(x.size(), std::vector<double>(q[0].size()));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < static_cast<size_t>(a.heads); ++h) {
        std::vector<double> weights;
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (size_t i = 0; i < dim; ++i) dot += q[t][h * dim + i] * k[s][h / group * dim + i];
          weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
          total += weights.back();
        }
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < dim; ++i) out[t][h * dim + i] += weights[s] / total * v[s][h / group * dim + i];
        }
      }
    }
    return out;
  }

 private:
  const models::Config& config_;
  std::vector<const Param*> params_;
  std::map<std::tuple<ParamRole, int, int, bool>, Matrix> read_;
};

// Of every sample [tokens, channels]: root of the sum over samples of squared means of magnitudes.
std::vector<double> aggregate(const std::vector<Matrix>& samples) {
  std::vector<double> out(samples[0][0].size());
  for (size_t i = 0; i < out.size(); ++i) {
    for (const Matrix& sample : samples) {
      double sum = 0;
      for (const auto& row : sample) sum += std::fabs(row[i]);
      out[i] += std::pow(sum / static_cast<double>(sample.size()), 2);
    }
    out[i] = std::sqrt(out[i]);
  }
  return out;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double v : want) largest = std::max(largest, std::fabs(v));
  EXPECT_GT(largest, 0) << what;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * largest) << what << " " << i;
}

double relu2(double v) { return v > 0 ? v * v : 0; }

class Importance : public testing::Test {
 protected:
  Importance() {
    for (const data::Batch& row : rows_) {
      Arena arena;
      Ctx ctx{.arena = arena};
      nn::Probe probe{.want_hidden = true, .want_routes = true};
      const RowPass pass{.ctx = ctx, .probe = &probe};
      pass(*model_, row, 1, false);
      probes_.push_back(probe);
    }
  }
  Scores measured(ExpertScore kind) {
    return measured_scores(*model_, rows_, kind, 2, [](int64_t) { return true; });
  }
  template <class Spec>
  std::vector<std::pair<int, Spec>> blocks() const {
    std::vector<std::pair<int, Spec>> list;
    for (size_t l = 0; l < model_->config().layers.size(); ++l) {
      if (const auto* spec = std::get_if<Spec>(&model_->config().layers[l].parts[0].block))
        list.emplace_back(static_cast<int>(l), *spec);
    }
    return list;
  }
  std::vector<Matrix> normed(int layer) {
    std::vector<Matrix> samples;
    for (const nn::Probe& p : probes_) samples.push_back(brute_.normed(p.hidden[static_cast<size_t>(layer)], layer));
    return samples;
  }

  std::unique_ptr<models::Model> model_ = models::load_model(io::find_model(support::data("hf/nemotron-h-latent-mtp")));
  std::vector<data::Batch> rows_ = random_rows(model_->config().vocab, 3, 18);
  Brute brute_{*model_};
  std::vector<nn::Probe> probes_;
};

TEST_F(Importance, OfHiddenChannelsAndLayers) {
  const Scores scores = measured(ExpertScore::all_tokens);
  const size_t depth = model_->config().layers.size();
  std::vector<double> hidden(static_cast<size_t>(model_->config().hidden)), layers(depth);
  for (size_t l = 0; l <= depth; ++l) {
    std::vector<Matrix> samples;
    for (const nn::Probe& p : probes_)
      samples.push_back(brute_.normed(p.hidden[l], l < depth ? static_cast<int>(l) : -1));
    const std::vector<double> own = aggregate(samples);
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] += own[i];
  }
  expect_close(scores.of.at({Axis::hidden, -1}), hidden, "hidden");
  double tokens = 0;
  for (const nn::Probe& p : probes_) {
    for (size_t begin = 0; begin < p.hidden[0].size(); begin += hidden.size()) {
      ++tokens;
      for (size_t l = 0; l < depth; ++l) {
        double ab = 0, aa = 0, bb = 0;
        for (size_t i = begin; i < begin + hidden.size(); ++i) {
          const auto a = static_cast<double>(p.hidden[l][i]), b = static_cast<double>(p.hidden[l + 1][i]);
          ab += a * b, aa += a * a, bb += b * b;
        }
        layers[l] += 1 - ab / std::sqrt(aa * bb);
      }
    }
  }
  for (double& v : layers) v /= tokens;
  expect_close(scores.of.at({Axis::layers, -1}), layers, "layers");
}

TEST_F(Importance, OfHeads) {
  const Scores scores = measured(ExpertScore::all_tokens);
  for (const auto& [layer, spec] : blocks<nn::Mamba2Spec>()) {
    const Matrix w = brute_.weight(ParamRole::mamba_in, layer);
    const auto inner = static_cast<size_t>(spec.inner());
    std::vector<Matrix> samples;
    for (const Matrix& x : normed(layer)) {
      Matrix& sample = samples.emplace_back();
      for (const auto& row : x) {
        const std::vector<double> u = Brute::times(w, row);  // z, x, B, C, dt
        sample.emplace_back(u.begin() + static_cast<int64_t>(inner), u.begin() + 2 * static_cast<int64_t>(inner));
      }
    }
    expect_close(scores.of.at({Axis::mamba_heads, layer}), aggregate(samples), "Mamba");
  }
  for (const auto& [layer, spec] : blocks<nn::AttentionSpec>()) {
    std::vector<Matrix> samples;
    for (const Matrix& x : normed(layer)) {
      Matrix& sample = samples.emplace_back();
      for (const auto& row : brute_.attention(x, layer, spec)) {
        std::vector<double>& norms = sample.emplace_back(static_cast<size_t>(spec.heads));
        for (size_t i = 0; i < row.size(); ++i) norms[i / static_cast<size_t>(spec.head_dim)] += row[i] * row[i];
        for (double& v : norms) v = std::sqrt(v);
      }
    }
    expect_close(scores.of.at({Axis::heads, layer}), aggregate(samples), "attention");
  }
}

TEST_F(Importance, OfExpertsAndWhatIsInThem) {
  const Scores scores = measured(ExpertScore::all_tokens), reap = measured(ExpertScore::routed_tokens);
  for (const auto& [layer, spec] : blocks<nn::MoeSpec>()) {
    const auto count = static_cast<size_t>(spec.experts), width = static_cast<size_t>(spec.width),
               chosen = static_cast<size_t>(spec.top_k);
    const Matrix router = brute_.weight(ParamRole::router, layer), in = brute_.weight(ParamRole::latent_in, layer),
                 shared_up = brute_.weight(ParamRole::up, layer, -1, true);
    std::vector<double> weighted(count), routed(count), tokens(1);
    std::vector<Matrix> hidden, shared, latent_in, latent_out;
    const std::vector<Matrix> samples = normed(layer);
    for (size_t s = 0; s < samples.size(); ++s) {
      hidden.emplace_back(), shared.emplace_back(), latent_in.emplace_back(), latent_out.emplace_back();
      for (size_t t = 0; t < samples[s].size(); ++t) {
        const std::vector<double>& x = samples[s][t];
        std::vector<double> h = Brute::times(shared_up, x);
        for (double& v : h) v = relu2(v);
        shared[s].push_back(h);
        const std::vector<double> v = Brute::times(in, x), logits = Brute::times(router, x);
        latent_in[s].push_back(v);
        std::vector<double>& channels = hidden[s].emplace_back(count * width);
        std::vector<double>& sum = latent_out[s].emplace_back(v.size());
        double total = 0;
        std::vector<size_t> own;
        for (size_t k = 0; k < chosen; ++k) {
          own.push_back(static_cast<size_t>(probes_[s].routes.at(layer)[t * chosen + k]));
          total += 1 / (1 + std::exp(-logits[own.back()]));
        }
        ++tokens[0];
        for (const size_t e : own) {
          const double weight = static_cast<double>(spec.scale) / (1 + std::exp(-logits[e])) / total;
          std::vector<double> u = Brute::times(brute_.weight(ParamRole::expert_up, layer, static_cast<int>(e)), v);
          for (size_t i = 0; i < width; ++i) channels[e * width + i] = u[i] = relu2(u[i]);
          const std::vector<double> y =
              Brute::times(brute_.weight(ParamRole::expert_down, layer, static_cast<int>(e)), u);
          double squares = 0;
          for (size_t i = 0; i < y.size(); ++i) sum[i] += weight * y[i], squares += y[i] * y[i];
          weighted[e] += weight * std::sqrt(squares);
          ++routed[e];
        }
      }
    }
    expect_close(scores.of.at({Axis::shared_ffn, layer}), aggregate(shared), "shared");
    expect_close(scores.of.at({Axis::expert_ffn, layer}), aggregate(hidden), "in experts");
    std::vector<double> latent = aggregate(latent_in), over_all(count), over_routed(count);
    const std::vector<double> out = aggregate(latent_out);
    for (size_t i = 0; i < latent.size(); ++i) latent[i] += out[i];
    expect_close(scores.of.at({Axis::latent, layer}), latent, "latent");
    for (size_t e = 0; e < count; ++e) {
      over_all[e] = weighted[e] / tokens[0];
      over_routed[e] = routed[e] > 0 ? weighted[e] / routed[e] : 0;
    }
    expect_close(scores.of.at({Axis::experts, layer}), over_all, "experts");
    expect_close(reap.of.at({Axis::experts, layer}), over_routed, "REAP");
  }
}

// The loss without a unit, to first order: by a small step that shrinks all of its parameters.
TEST_F(Importance, TaylorIsTheSlopeOfTheLoss) {
  const auto path = io::find_model(support::data("hf/nemotron-h-latent-mtp"));
  const std::span<const data::Batch> one(rows_.data(), 1);
  const Scores scores = taylor_scores(path, one, 1, [](int64_t) { return true; });
  const Scores want = random_scores(model_->config(), 0);
  for (const auto& [key, values] : want.of) EXPECT_EQ(scores.of.at(key).size(), values.size()) << name_of(key.first);
  // Of layer 1, experts: the shared expert's channel that counts most.
  const int64_t unit = ranked(scores.of.at({Axis::shared_ffn, 1}))[0];
  models::MasterWeights masters(DType::f32);
  const auto model = masters.load(path);
  const auto loss = [&](float factor) {
    std::vector<std::pair<float*, float>> changed;
    for (Param* p : model->params()) {
      if (p->layer != 1 || p->name.find("shared") == std::string::npos) continue;
      const bool up = p->role == ParamRole::up;
      for (int64_t i = 0; i < (up ? p->value.cols : p->value.rows); ++i) {
        auto* values = const_cast<float*>(p->value.codes.as<float>());
        float* at = up ? values + unit * p->value.cols + i : values + i * p->value.cols + unit;
        changed.emplace_back(at, *at);
        *at *= factor;
      }
    }
    Arena arena;
    Ctx ctx{.arena = arena};
    const RowPass pass{.ctx = ctx};
    const auto sums = pass(*model, rows_[0], 1, true);
    for (const auto& [at, value] : changed) *at = value;
    return (sums.main + sums.mtp[0]) / static_cast<double>(rows_[0].trained);
  };
  constexpr float kStep = 0.002f;  // so small that no token chooses other experts
  const double slope = (loss(1 + kStep) - loss(1 - kStep)) / (2 * static_cast<double>(kStep));
  EXPECT_NEAR(scores.of.at({Axis::shared_ffn, 1})[static_cast<size_t>(unit)], std::fabs(slope),
              0.02 * std::fabs(slope));
}

TEST(Costs, AreThoseOfTheInventory) {
  std::vector<models::Config> configs;
  for (const char* name : {"nemotron-h-8b", "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b"})
    configs.push_back(models::read_config(*models::find_preset(name)));
  for (const GoldenFolder& folder : all_folders())
    configs.push_back(models::load_config(io::find_model(folder.path.string())));
  for (const models::Config& config : configs) {
    std::vector<int64_t> order;
    for (int64_t l = 0; l < std::ssize(config.layers); ++l) order.push_back(l);
    const auto ranges = axes_of(config, {});
    const CostModel costs(config, order);
    const auto value_bytes = [](const models::TensorSpec& spec) {  // types differ by role and layer
      return int64_t{2} << (static_cast<int>(spec.role) + (spec.mtp ? 0 : spec.layer)) % 2;
    };
    const FileBytes bytes(config, Layouts(config), order, value_bytes);
    Sizes sizes;
    for (size_t i = 0; i <= kAxes; ++i) {  // one axis more each time
      std::vector<int64_t> layers = order;
      if (sizes[Axis::layers] > 0) layers.resize(static_cast<size_t>(sizes[Axis::layers]));
      const models::Parameters want = count_parameters(resized(config, sizes, layers));
      const Cost got = costs.of(sizes);
      EXPECT_EQ(got.params, want.total + want.mtp) << config.family << " " << i;
      EXPECT_EQ(got.active, want.active) << config.family << " " << i;
      int64_t stored = 0;
      for (const models::TensorSpec& spec : inventory(resized(config, sizes, layers)))
        stored += spec.shape.count() * value_bytes(spec);
      EXPECT_EQ(bytes.of(sizes), stored) << config.family << " " << i;
      if (i < kAxes && ranges[i].why.empty()) sizes[ranges[i].axis] = ranges[i].least;
    }
  }
}

TEST(Axes, KeepWhatModelsNeed) {
  const models::Config nano = models::read_config(*models::find_preset("nemotron-3-nano-30b-a3b"));
  const auto ranges = axes_of(nano, {});
  const auto of = [&](Axis a) { return ranges[static_cast<size_t>(a)]; };
  EXPECT_EQ(of(Axis::mamba_heads).step, 8);  // groups of B and C
  EXPECT_EQ(of(Axis::expert_ffn).step % 16, 0);
  EXPECT_EQ(of(Axis::expert_ffn).least % of(Axis::expert_ffn).step, 0);
  EXPECT_GE(of(Axis::experts).least, 6);  // num_experts_per_tok
  EXPECT_EQ(of(Axis::latent).full, 0);
  EXPECT_EQ(of(Axis::heads).full, 16);
  const auto refused = [&](const char* text) { return support::error_of([&] { parse_axes(text, ranges); }); };
  EXPECT_NE(refused("latent").find("cannot be cut along latent"), std::string::npos);
  EXPECT_NE(refused("ffn").find("cannot be cut along ffn"), std::string::npos);
  EXPECT_NE(refused("depth").find("no such axis"), std::string::npos);
  EXPECT_EQ(parse_axes("experts,hidden,experts", ranges), (std::vector<Axis>{Axis::experts, Axis::hidden}));
}

TEST(Targets, AreReadAndRefused) {
  EXPECT_TRUE(parse_target("params=0.75").share);
  EXPECT_FALSE(parse_target("params=2e9").share);
  EXPECT_DOUBLE_EQ(parse_target("gib=75%").value, 0.75);
  EXPECT_TRUE(parse_target("tok_s=1.3x").share);
  EXPECT_FALSE(parse_target("gib=0.5").share);
  for (const char* text :
       {"", "params", "params=", "params=x", "size=1", "params=nan", "params=-1", "gib=1e99", "active=2q"})
    EXPECT_NE(support::error_of([&] { parse_target(text); }).find("no such target"), std::string::npos) << text;
  EXPECT_EQ(support::error_of([&] { parse_target("params=1.5"); }),
            "[--target] is neither a share of the parameters nor a number of them; got params=1.5; expected a share up "
            "to 1, a whole number above it, or a percentage; try params=0.75, which keeps 75%");
  EXPECT_NE(support::error_of([&] { parse_target("active=7.2"); }).find("active=0.75"), std::string::npos);
  EXPECT_FALSE(parse_target("active=1.5e3").share);
  EXPECT_FALSE(parse_target("gib=1.5").share);
}

// The search finds the best of a loss that adds up, and says how near one can get otherwise.
TEST(Search, FindsTheBestWithinATarget) {
  const models::Config config = models::load_config(io::find_model(support::data("hf/nemotron-h-latent-mtp")));
  std::vector<int64_t> order;
  for (int64_t l = 0; l < std::ssize(config.layers); ++l) order.push_back(l);
  const auto ranges = axes_of(config, {});
  const CostModel costs(config, order);
  const Candidate whole{.cost = costs.of({}), .bytes = 1 << 20, .loss = 1, .tokens_s = 10};
  const Sizes full = full_sizes(config);
  const auto loss = [&](const Sizes& sizes) {
    double sum = 1;
    for (const auto& [axis, price] : {std::pair(Axis::hidden, 3.0), {Axis::experts, 0.1}, {Axis::shared_ffn, 1.0}}) {
      if (sizes[axis] > 0) sum += price * (1 - static_cast<double>(sizes[axis]) / static_cast<double>(full[axis]));
    }
    return sum;
  };
  const Trials trials{.loss = loss,
                      .tokens_s = [&](const Sizes& s) { return 20 - static_cast<double>(costs.of(s).active) / 1e6; }};
  SearchOptions options{.target = parse_target("params=0.8"), .axes = parse_axes("hidden,experts,shared_ffn", ranges)};
  const auto go = [](int64_t, int64_t) { return true; };
  const Found found = search(ranges, whole, costs, options, trials, go);
  ASSERT_FALSE(found.tried.empty());
  double best = HUGE_VAL;
  for (const int64_t d : sizes_of(ranges[0], 5)) {
    for (const int64_t e : sizes_of(ranges[static_cast<size_t>(Axis::experts)], 5)) {
      for (const int64_t f : sizes_of(ranges[static_cast<size_t>(Axis::shared_ffn)], 5)) {
        Sizes s;
        s[Axis::hidden] = d, s[Axis::experts] = e, s[Axis::shared_ffn] = f;
        if (static_cast<double>(costs.of(s).params) <= 0.8 * static_cast<double>(whole.cost.params))
          best = std::min(best, loss(s));
      }
    }
  }
  EXPECT_DOUBLE_EQ(found.tried[0].loss, best);
  for (const Candidate& c : found.tried) EXPECT_LE(c.cost.params * 10, whole.cost.params * 8);
  options.target = parse_target("params=0.05");
  const std::string text = support::error_of([&] { search(ranges, whole, costs, options, trials, go); });
  EXPECT_NE(text.find("no combination of cuts"), std::string::npos) << text;
  // The offer is one that works.
  const std::string word = "try --target ";
  const std::string offered =
      text.substr(text.find(word) + word.size(), text.find(", more axes") - text.find(word) - word.size());
  options.target = parse_target(offered);
  EXPECT_FALSE(search(ranges, whole, costs, options, trials, go).tried.empty()) << offered;
}

// Speeds between the whole and the smallest differ from the estimate: targets are met as measured, and refused only
// where the smallest model is too slow.
TEST(Search, ASpeedIsMeasured) {
  const models::Config config = models::load_config(io::find_model(support::data("hf/nemotron-h-latent-mtp")));
  std::vector<int64_t> order;
  for (int64_t l = 0; l < std::ssize(config.layers); ++l) order.push_back(l);
  const auto ranges = axes_of(config, {});
  const CostModel costs(config, order);
  const Candidate whole{.cost = costs.of({}), .bytes = 1 << 20, .loss = 1, .tokens_s = 10};
  const Sizes full = full_sizes(config);
  SearchOptions options{.axes = parse_axes("hidden,shared_ffn", ranges), .candidates = 4};
  Sizes least;
  for (const Axis a : options.axes) least[a] = sizes_of(ranges[static_cast<size_t>(a)], 5).back();
  const auto active = [&](const Sizes& s) { return static_cast<double>(costs.of(s).active); };
  const double most = active({}), range = most - active(least);
  const auto go = [](int64_t, int64_t) { return true; };
  for (const double off : {0.75, 1.0, 1.3}) {
    int asked = 0;
    const auto speed = [&](const Sizes& s) {  // 10 tokens/s of the whole, 20 of the smallest
      ++asked;
      return (s == least ? 1 : off) / (0.1 - 0.05 * (most - active(s)) / range);
    };
    const auto loss = [&](const Sizes& s) {
      return s[Axis::hidden] > 0 ? 3.0 - static_cast<double>(s[Axis::hidden]) / static_cast<double>(full[Axis::hidden])
                                 : 2;
    };
    const Trials trials{.loss = loss, .tokens_s = speed};
    for (const char* target : {"tok_s=1.2x", "tok_s=15", "tok_s=1.95x"}) {
      options.target = parse_target(target);
      const double limit = options.target.share ? options.target.value * 10 : options.target.value;
      const Found found = search(ranges, whole, costs, options, trials, go);
      ASSERT_FALSE(found.tried.empty()) << target << " " << off;
      for (const Candidate& c : found.tried) {
        EXPECT_EQ(c.tokens_s, speed(c.sizes));
        EXPECT_GE(c.tokens_s, limit) << target << " " << off;
      }
    }
    options.target = parse_target("tok_s=2.1x");
    asked = 0;
    const std::string text = support::error_of([&] { search(ranges, whole, costs, options, trials, go); });
    EXPECT_NE(text.find("20 tokens/s (200.0% of the whole) of the smallest, measured"), std::string::npos) << text;
    EXPECT_NE(text.find("--target tok_s=2.000x"), std::string::npos) << text;
    EXPECT_EQ(asked, 1);
  }
}

// What is refused before anything is measured cannot be met whichever layers stay: those of every subset are tried
// here.
TEST(Search, ATargetOutOfReachIsKnownBeforeMeasuring) {
  const models::Config config = models::load_config(io::find_model(support::data("hf/nemotron-h-latent-mtp")));
  std::vector<int64_t> order(config.layers.size());
  const auto count = std::ssize(order);
  const auto ranges = axes_of(config, {.width = 0.5, .depth = 0.6});
  const CostModel costs(config, order);
  std::iota(order.begin(), order.end(), 0);
  const Candidate whole{.cost = costs.of({}), .bytes = 2 * costs.of({}).params};
  const auto bytes = [&](const Sizes& sizes) { return 2 * costs.of(sizes).params; };
  for (const char* axes : {"layers", "hidden,experts", "hidden,experts,layers"}) {
    SearchOptions options{.axes = parse_axes(axes, ranges)};
    Sizes least;
    for (const Axis a : options.axes) least[a] = ranges[static_cast<size_t>(a)].least;
    const int64_t kept = least[Axis::layers] > 0 ? least[Axis::layers] : count;
    int64_t params = whole.cost.params, active = whole.cost.active;
    for (uint64_t subset = 0; subset < uint64_t{1} << count; ++subset) {
      if (std::popcount(subset) != kept) continue;
      std::ranges::stable_sort(order, std::greater<>(), [&](int64_t layer) { return subset >> layer & 1; });
      params = std::min(params, costs.of(least).params);
      active = std::min(active, costs.of(least).active);
    }
    for (const auto& [word, most] : {std::pair("params", params), {"active", active}}) {
      const auto refused = [&, word = word](int64_t target) {
        options.target = parse_target(fmt::format("{}={}", word, target));
        return support::error_of([&] { check_target(ranges, whole, costs, order, options, bytes); });
      };
      EXPECT_EQ(refused(most), "") << axes;
      EXPECT_NE(refused(most - 1).find("no combination of cuts has at most"), std::string::npos) << axes << word;
    }
    const auto refused = [&](double gib) {
      options.target = {.what = Measure::gib, .value = gib};
      return support::error_of([&] { check_target(ranges, whole, costs, order, options, bytes); });
    };
    EXPECT_EQ(refused(static_cast<double>(2 * params + 1) / 0x1p30), "");
    EXPECT_NE(refused(static_cast<double>(2 * params - 1) / 0x1p30), "");
  }
}

TEST(Search, NothingIsMeasuredForATargetOutOfReach) {
  const io::ModelPath model = io::find_model(support::data("tiny-chat"));
  const support::Folder folder;
  const data::DataSpec data{.kind = "text", .path = support::data("calibration/text.txt"), .batch = 1, .length = 96};
  for (const auto& [target, says] : {std::pair("params=0.01", "no combination of cuts"),
                                     {"gib=1%", "no combination"},
                                     {"active=2", "no combination"},
                                     {"params=1", "meets it as it is"},
                                     {"tok_s=0.5x", "meets it as it is"},
                                     {"tok_s=1e-9", "meets it as it is"}}) {
    int stages = 0;
    const auto stage = [&](const char*, int64_t, int64_t) { return ++stages, true; };
    const std::string text = support::error_of([&, wanted = target] {
      (void)prune_model(model, data, folder.path() / "out", {.target = parse_target(wanted)}, stage);
    });
    EXPECT_NE(text.find(says), std::string::npos) << target << text;
    EXPECT_EQ(stages, 0) << target;
  }
}

}  // namespace
}  // namespace braid::prune
