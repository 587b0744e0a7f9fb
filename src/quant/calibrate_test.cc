// Calibration of a small hybrid with every kind of layer, compared with inputs and errors that the test computes
// itself, and with the model that is read back from the folder that was written.
#include "quant/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "codec/codec.h"
#include "codec/scale_search.h"
#include "core/integers.h"
#include "io/safetensors.h"
#include "models/load.h"
#include "quant/fold.h"
#include "quant/inputs.h"
#include "quant/sensitivity.h"
#include "support/models.h"

namespace braid::quant {
namespace {

using models::QuantRecipe;

constexpr const char* kMixerInProj = "backbone.layers.0.mixer.in_proj.weight";  // [222, 32]
constexpr const char* kMlpUp = "backbone.layers.3.mixer.up_proj.weight";        // [44, 32]
constexpr auto go_on = [](int64_t, int64_t) { return true; };

using Samples = std::vector<std::vector<int32_t>>;

Samples samples_of(size_t n, size_t length) {
  std::mt19937 random(3);
  Samples out(n, std::vector<int32_t>(length));
  for (auto& ids : out) {
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 50);
  }
  return out;
}

QuantRecipe recipe_of(std::vector<std::pair<std::string, QuantFormat>> rules) {
  QuantRecipe recipe{.name = "test", .rules = {}};
  for (const auto& [role, format] : rules) recipe.rules.push_back({.roles = {role}, .format = format});
  return recipe;
}

class Calibrate : public models::FolderTest {
 protected:
  Calibrate() { write_model(false); }

  // Weights of both signs, those of the head times `last`; with `uneven` norms whose channels differ by a factor of 64.
  void write_model(bool uneven, double last = 1) const {
    write("config.json", models::hybrid().dump());
    io::SafetensorsWriter file(folder_ / "model.safetensors", tensors_of(models::hybrid()));
    std::mt19937 random(1);
    std::normal_distribution<double> draw(0, 0.1);
    for (const io::TensorSpec& spec : file.order()) {
      std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
      const MutView values(bytes.data(), spec.dtype, spec.shape);
      const bool norm = spec.shape.rank == 1 && spec.name.find("norm") != std::string::npos;
      for (int64_t i = 0; i < values.count(); ++i)
        set_element(
            values, i,
            norm ? (uneven && i % 4 == 0 ? 8 : 0.125) : draw(random) * (spec.name == "lm_head.weight" ? last : 1));
      file.write(spec.name, bytes);
    }
    file.finish();
  }

  io::ModelPath path() const { return io::find_model(folder_.string()); }
  Calibrated run(const QuantRecipe& recipe, Method method, const Samples& samples, int threads = 2) const {
    return calibrate(path(), recipe, samples, {.method = method, .threads = threads}, go_on);
  }
  std::filesystem::path written(const QuantRecipe& recipe, const Calibrated& calibrated, const char* name) const {
    models::QuantOptions options{.threads = 2};
    options.calibrated = calibrated.matrices;
    options.folded = calibrated.folded;
    models::quantize_model(path(), recipe, folder_ / name, options, go_on);
    return folder_ / name;
  }

  std::vector<double> values_of(const Calibrated& calibrated, const std::string& name, QuantFormat format, int64_t rows,
                                int64_t cols) const {
    WeightStore store;
    const models::CalibratedMatrix& m = calibrated.matrices.at(name);
    return decode(models::weight_of(m.matrix, rows, cols, format, m.global, store));
  }
};

const MatrixResult& result_of(const Calibrated& calibrated, const std::string& name) {
  const auto found = std::find_if(calibrated.results.begin(), calibrated.results.end(),
                                  [&](const MatrixResult& r) { return r.name == name; });
  CHECK(found != calibrated.results.end(), "{} was not quantised with inputs", name);
  return *found;
}

// The mean over tokens of |(W - Q) x|^2 for the first layer's in_proj, whose inputs are normed rows of the embedding.
TEST_F(Calibrate, ErrorsAreThoseOfTheOutputsAndFeedbackLowersThem) {
  const Samples samples = samples_of(6, 40);
  const io::Safetensors files(folder_ / "model.safetensors");
  const View table = files.need("backbone.embeddings.weight"), norm = files.need("backbone.layers.0.norm.weight"),
             w = files.need(kMixerInProj);
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::int4, QuantFormat::fp8}) {
    const QuantRecipe recipe = recipe_of({{"mamba_in", format}});
    double errors[2];
    for (const Method method : {Method::awq, Method::gptq}) {  // awq finds nothing to scale here: the nearest
      const Calibrated got = run(recipe, method, samples);
      ASSERT_TRUE(got.whole && got.folded.empty());
      const std::vector<double> q = values_of(got, kMixerInProj, format, 222, 32);
      double sum = 0;
      int64_t tokens = 0;
      for (const auto& ids : samples) {
        for (const int32_t id : ids) {
          double square = 0, x[32];
          for (int64_t c = 0; c < 32; ++c) square += std::pow(element(table, id * 32 + c), 2);
          for (int64_t c = 0; c < 32; ++c)
            x[c] = element(table, id * 32 + c) / std::sqrt(square / 32 + 1e-6) * element(norm, c);
          for (int64_t r = 0; r < 222; ++r) {
            double y = 0;
            for (int64_t c = 0; c < 32; ++c) y += (element(w, r * 32 + c) - q[static_cast<size_t>(r * 32 + c)]) * x[c];
            sum += y * y;
          }
          ++tokens;
        }
      }
      const MatrixResult& result = result_of(got, kMixerInProj);
      EXPECT_NEAR(result.chosen, sum / static_cast<double>(tokens), 2e-3 * result.chosen);
      EXPECT_LE(result.chosen, result.nearest);
      EXPECT_EQ(result.feedback, method == Method::gptq);
      errors[method == Method::gptq] = sum;
    }
    EXPECT_LT(errors[1], 0.9 * errors[0]) << codec_of(format).name;
  }
}

double outputs_in(const io::ModelPath& path, const Samples& samples, const std::string& matrix) {
  const auto model = models::load_model(path);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  Inputs inputs;
  for (const auto& ids : samples) {
    const SeqMap seqs = SeqMap::one(std::ssize(ids));
    nn::StateView state;
    nn::Run run{
        .ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::f32), .observer = &inputs};
    inputs.begin_sample(false);
    model->forward(run, integers(arena, ids));
  }
  const std::vector<double> gram = inputs.gram(ctx, matrix, Part::all);
  double sum = 0;
  const auto cols = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(gram.size()))));
  for (const Param* p : model->params()) {
    if (p->name != matrix) continue;
    const std::vector<double> w = decode(p->value);
    for (size_t r = 0; r < w.size(); r += cols) {
      for (size_t i = 0; i < cols; ++i) {
        for (size_t j = 0; j < cols; ++j) sum += w[r + i] * gram[i * cols + j] * w[r + j];
      }
    }
  }
  return sum;
}

// The matrix of the last layer is last in its recipe: its own inputs come from all layers before it as written.
TEST_F(Calibrate, ALayerReadsWhatTheWrittenLayersBeforeItProduce) {
  const Samples samples = samples_of(5, 33);
  for (const Method method : {Method::gptq, Method::automatic}) {
    const QuantRecipe before = recipe_of({{"mamba_*", QuantFormat::int3}, {"expert_up", QuantFormat::int3}});
    QuantRecipe all = before;
    all.rules.push_back({.roles = {"up"}, .layers = {3}, .format = QuantFormat::int3});
    const char* name = method == Method::gptq ? "gptq" : "auto";
    const auto folder = written(before, run(before, method, samples), name);
    const double want = outputs_in(io::find_model(folder.string()), samples, kMlpUp),
                 whole = outputs_in(path(), samples, kMlpUp),
                 got = result_of(run(all, method, samples), kMlpUp).outputs;
    EXPECT_NEAR(got, want, 1e-6 * want);
    EXPECT_GT(std::fabs(got - whole), 1e-3 * whole);
  }
}

std::vector<float> logits_of(const io::ModelPath& path, const std::vector<int32_t>& ids) {
  const auto model = models::load_model(path);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  const SeqMap seqs = SeqMap::one(std::ssize(ids));
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::f32)};
  const Tensor logits = model->logits(run, model->forward(run, integers(arena, ids)));
  const float* values = logits.view().as<float>();
  return {values, values + logits.view().count()};
}

double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
    all += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(sum / all);
}

// Norms with uneven channels: scales are chosen, and what reads the same norms unquantised is scaled along with it.
TEST_F(Calibrate, ScalesFoldIntoNormsAndKeepTheModel) {
  write_model(true);
  const Samples samples = samples_of(8, 40);
  const QuantRecipe recipe =
      recipe_of({{"mamba_in", QuantFormat::int8}, {"q", QuantFormat::int8}, {"expert_up", QuantFormat::int8}});
  for (const Method method : {Method::awq, Method::automatic}) {
    const Calibrated got = run(recipe, method, samples);
    EXPECT_TRUE(result_of(got, kMixerInProj).scaled);
    EXPECT_LT(result_of(got, kMixerInProj).chosen, 0.8 * result_of(got, kMixerInProj).nearest);
    for (const char* name : {"backbone.layers.0.norm.weight", "backbone.layers.2.norm.weight",
                             "backbone.layers.2.mixer.k_proj.weight", "backbone.layers.1.mixer.gate.weight"})
      EXPECT_TRUE(got.folded.contains(name)) << name;
    const auto folder = written(recipe, got, method == Method::awq ? "awq" : "auto");
    EXPECT_LT(apart(logits_of(path(), samples[0]), logits_of(io::find_model(folder.string()), samples[0])), 0.02);
  }
}

// As readers join them: one scale of whole tensors, of the matrices as they are scaled.
TEST_F(Calibrate, QueriesKeysAndValuesHaveOneScale) {
  write_model(true);
  const QuantRecipe recipe =
      recipe_of({{"q", QuantFormat::nvfp4}, {"k", QuantFormat::nvfp4}, {"v", QuantFormat::nvfp4}});
  for (const Method method : {Method::gptq, Method::awq, Method::automatic}) {
    const Calibrated got = run(recipe, method, samples_of(8, 40));
    ASSERT_EQ(got.matrices.size(), 3u);
    const float global = got.matrices.begin()->second.global;
    for (const auto& [name, matrix] : got.matrices) {
      EXPECT_EQ(matrix.global, global) << name;
      EXPECT_LT(result_of(got, name).chosen, 0.02 * result_of(got, name).outputs) << name;
    }
  }
}

// The error in the report is that of the files, whatever the method did to codes and channels.
TEST_F(Calibrate, ReportedErrorsAreThoseOfTheFiles) {
  write_model(true);
  const QuantRecipe recipe = recipe_of({{"mamba_in", QuantFormat::nvfp4}});
  const io::Safetensors files(folder_ / "model.safetensors");
  const View w = files.need(kMixerInProj), norm = files.need("backbone.layers.0.norm.weight");
  for (const Method method : {Method::gptq, Method::awq}) {
    const Calibrated got = run(recipe, method, samples_of(8, 40));
    EXPECT_EQ(result_of(got, kMixerInProj).scaled, method == Method::awq);
    const std::vector<double> q = values_of(got, kMixerInProj, QuantFormat::nvfp4, 222, 32);
    const auto folded = got.folded.find("backbone.layers.0.norm.weight");
    double error = 0, square = 0;
    for (int64_t i = 0; i < w.count(); ++i) {
      double scale = 1;  // the norm was divided by it
      if (folded != got.folded.end())
        scale = element(norm, i % 32) / element(View(folded->second.data(), norm.dtype, norm.shape), i % 32);
      error += std::pow(element(w, i) - q[static_cast<size_t>(i)] / scale, 2);
      square += std::pow(element(w, i), 2);
    }
    models::QuantOptions options{.threads = 2};
    options.calibrated = got.matrices;
    options.folded = got.folded;
    const models::QuantReport report =
        models::quantize_model(path(), recipe, folder_ / (method == Method::awq ? "awq" : "gptq"), options, go_on);
    EXPECT_NEAR(report.groups.at(0).error, std::sqrt(error / square), 1e-6);
  }
}

TEST_F(Calibrate, ASensitivityThatIsNotFiniteIsAnError) {
  write_model(false, HUGE_VAL);
  const QuantRecipe recipe = recipe_of({{"mamba_in", QuantFormat::int4}});
  const QuantFormat formats[] = {QuantFormat::int4};
  EXPECT_NE(models::error_of([&] {
              sensitivities(path(), recipe, formats, samples_of(1, 9), {.threads = 2}, go_on);
            }).find("is not finite"),
            std::string::npos);
}

TEST(Fold, ScalesArePowersOfTwoAndRoundNothing) {
  const std::vector<double> magnitudes = {0, 1, 3, 100, 1e-3, 1e9};
  const std::vector<float> scales = fold_scales(magnitudes, 1);
  EXPECT_EQ(scales[0], 1);
  for (const float s : scales) EXPECT_EQ(s, std::exp2(std::round(std::log2(s))));
  EXPECT_TRUE(std::is_sorted(scales.begin() + 1, scales.begin() + 4));
  const Bf16 values[] = {to_bf16(0.1f), to_bf16(-3), to_bf16(7), to_bf16(0), to_bf16(1e-3f), to_bf16(2)};
  const View view = view_of(values, {6});
  const auto down = folded(view, scales, true);
  ASSERT_TRUE(down);
  const auto up = folded(View(down->data(), DType::bf16, {6}), scales, false);
  ASSERT_TRUE(up);
  EXPECT_TRUE(std::equal(up->begin(), up->end(), view.data));
  const F16 small[] = {to_f16(6e-5f)};
  EXPECT_FALSE(folded(view_of(small, {1}), std::vector<float>{256}, true));
}

TEST_F(Calibrate, AnExpertThatFewTokensChoseIsRoundedToTheNearestAndNamed) {
  const QuantRecipe recipe = recipe_of({{"expert_up", QuantFormat::int4}});
  const Calibrated few = run(recipe, Method::gptq, samples_of(1, 16)),
                   many = run(recipe, Method::gptq, samples_of(40, 60));
  EXPECT_EQ(few.few.size() + few.results.size(), 8u);
  EXPECT_GE(few.few.size(), 5u);
  EXPECT_NE(few.few[0].find("experts."), std::string::npos);
  EXPECT_EQ(many.few.size() + many.results.size(), 8u);
  EXPECT_GE(many.results.size(), 3u);
  models::QuantOptions plain{.threads = 1};
  models::quantize_model(path(), recipe, folder_ / "plain", plain, go_on);
  const io::Safetensors files(folder_ / "plain");
  for (const std::string& line : few.few) {
    const std::string name = line.substr(0, line.find(':'));
    const View codes = files.need(name + "_packed");
    const auto& got = few.matrices.at(name).matrix.codes;
    EXPECT_TRUE(std::equal(got.begin(), got.end(), codes.data)) << line;
  }
}

TEST_F(Calibrate, ThreadsChangeNoByte) {
  const Samples samples = samples_of(5, 40);
  const QuantRecipe recipe = recipe_of({{"*", QuantFormat::int4}});
  const Calibrated one = run(recipe, Method::automatic, samples, 1), three = run(recipe, Method::automatic, samples, 3);
  ASSERT_EQ(one.matrices.size(), three.matrices.size());
  for (const auto& [name, matrix] : one.matrices) EXPECT_EQ(matrix.matrix.codes, three.matrices.at(name).matrix.codes);
}

TEST_F(Calibrate, Refusals) {
  const QuantRecipe recipe = recipe_of({{"mamba_in", QuantFormat::int4}});
  const auto refused = [&](const Samples& samples, Method method = Method::gptq) {
    return models::error_of([&] { run(recipe, method, samples); });
  };
  EXPECT_NE(refused({{1, 50}}).find("outside of the vocabulary; got 50"), std::string::npos);
  EXPECT_NE(refused({{1, -1}}).find("got -1"), std::string::npos);
  EXPECT_NE(refused({}).find("no calibration samples"), std::string::npos);
  EXPECT_NE(refused({{}}).find("without tokens"), std::string::npos);
  EXPECT_NE(refused(samples_of(3, 9), Method::automatic).find("at least 4"), std::string::npos);
  const Calibrated stopped = calibrate(path(), recipe, samples_of(4, 9), {.method = Method::gptq},
                                       [](int64_t done, int64_t) { return done < 3; });
  EXPECT_FALSE(stopped.whole);
}

double mean_kl(const std::vector<float>& p, const std::vector<float>& q, size_t vocab) {
  double sum = 0;
  for (size_t at = 0; at < p.size(); at += vocab) {
    double p_sum = 0, q_sum = 0;
    for (size_t i = 0; i < vocab; ++i) {
      p_sum += std::exp(static_cast<double>(p[at + i]));
      q_sum += std::exp(static_cast<double>(q[at + i]));
    }
    for (size_t i = 0; i < vocab; ++i) {
      const double a = std::exp(static_cast<double>(p[at + i])) / p_sum,
                   b = std::exp(static_cast<double>(q[at + i])) / q_sum;
      sum += a * std::log(a / b);
    }
  }
  return sum / static_cast<double>(p.size() / vocab);
}

// Of every group: the divergence of a folder in which it alone is quantised, and its bytes there.
TEST_F(Calibrate, SensitivitiesAreDivergencesOfFolders) {
  const Samples samples = samples_of(1, 30);
  QuantRecipe recipe =
      recipe_of({{"mamba_in", QuantFormat::int4}, {"*", QuantFormat::int4}, {"head", QuantFormat::int4}});
  recipe.rules[0].scales = ScaleSearch::mse;
  const QuantFormat formats[] = {QuantFormat::int3, QuantFormat::int8};
  const std::vector<SensitiveGroup> groups = sensitivities(path(), recipe, formats, samples, {.threads = 2}, go_on);
  const std::vector<float> base = logits_of(path(), samples[0]);
  ASSERT_GE(groups.size(), 5u);
  bool head = false;
  for (const SensitiveGroup& group : groups) {
    head = head || group.roles.contains(ParamRole::head);
    // Readers have these in one module, of one format.
    EXPECT_EQ(group.roles.contains(ParamRole::q), group.roles.contains(ParamRole::v));
    EXPECT_EQ(group.roles.contains(ParamRole::q), group.roles.contains(ParamRole::k));
    for (const FormatCost& cost : group.formats) {
      if (cost.format == QuantFormat::bf16) {
        EXPECT_EQ(cost.kl, 0);
        EXPECT_EQ(cost.bytes, 2 * group.values);
        continue;
      }
      QuantRecipe alone = recipe_of({});
      for (const auto& [role, scales] : group.roles) {
        EXPECT_EQ(scales == ScaleSearch::mse, role == ParamRole::mamba_in);
        models::QuantRule& rule = alone.rules.emplace_back();
        rule = {.roles = {name_of(role)}, .format = cost.format, .scales = scales};
        if (group.layer >= 0) rule.layers = {group.layer};
      }
      std::filesystem::remove_all(folder_ / "alone");
      const models::QuantReport report =
          models::quantize_model(path(), alone, folder_ / "alone", {.threads = 2}, go_on);
      ASSERT_EQ(report.groups.size(), group.roles.size());
      int64_t bytes = 0;
      for (const models::QuantGroup& written : report.groups) bytes += written.bytes;
      EXPECT_EQ(cost.bytes, bytes);
      const double want = mean_kl(base, logits_of(io::find_model((folder_ / "alone").string()), samples[0]), 50);
      EXPECT_NEAR(cost.kl, want, 1e-3 * want + 1e-8) << alone.rules[0].roles[0] << " " << group.layer;
    }
    EXPECT_EQ(group.formats.back().format, QuantFormat::bf16);
  }
  EXPECT_TRUE(head);
}

}  // namespace
}  // namespace braid::quant
