// Adapters over a hybrid with every letter: what they apply to, what they compute, and their gradients.
#include "models/adapters.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/tape.h"
#include "models/adapter_file.h"
#include "models/master_weights.h"
#include "models/save.h"
#include "support/models.h"

namespace braid::models {
namespace {

const std::vector<std::string> kEverywhere = {"in_proj", "out_proj", "q_proj", "o_proj", "up_proj", "down_proj"};
const std::vector<std::string> kExperts = {"experts.up_proj", "experts.down_proj", "lm_head.weight"};

class AdaptersTest : public FolderTest {
 protected:
  static constexpr int64_t kTokens = 7;

  AdaptersTest() { write(hybrid(), tensors_of(hybrid())); }
  io::ModelPath path() const { return io::find_model(folder_.string()); }

  // A and B are random: an adapter of zeros would hide mistakes.
  static std::unique_ptr<Model> adapt(MasterWeights& masters, const io::ModelPath& path, const AdapterSpec& spec) {
    auto model = masters.adapt(path, spec, 3);
    std::mt19937 random(2);
    for (float& v : masters.values()) v = static_cast<float>(random() % 64) / 128 - 0.25f;
    masters.round(1);
    return model;
  }
  // Sum of the losses of two sequences, and with a prediction block of half its own; with a tape, their gradients.
  static double loss(Model& model, DType act, bool backward, bool cut = false) {
    Arena arena;
    Tape tape;
    Ctx ctx{.arena = arena, .threads = 1};
    if (backward) ctx.tape = &tape;
    Model::LossSums sums;
    const double ahead = model.mtp_steps() > 0 ? 0.5 : 0;
    for (int part = 0; part < (cut ? 2 : 1); ++part) {
      SeqMap seqs;
      for (int s = 0; s < (cut ? 1 : 2); ++s) seqs.add(kTokens);
      const Tensor ids(arena, DType::i32, {seqs.tokens()}), targets(arena, DType::i32, {seqs.tokens()});
      for (int64_t t = 0; t < seqs.tokens(); ++t) {
        const auto global = static_cast<int32_t>(part * kTokens + t);
        ids.mut().as<int32_t>()[t] = global * 7 % 50;
        targets.mut().as<int32_t>()[t] = global * 11 % 50;
      }
      nn::StateView state;
      nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(act)};
      model.loss(run, ids, targets, {.mtp_weight = {ahead}}, sums);
      if (backward) tape.backward(ctx);
      tape.clear();
    }
    return sums.main + ahead * sums.mtp[0];
  }
  static std::vector<float> logits(Model& model, DType act) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    const SeqMap seqs = SeqMap::one(kTokens);
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(act)};
    const Tensor ids(arena, DType::i32, {kTokens});
    for (int32_t t = 0; t < kTokens; ++t) ids.mut().as<int32_t>()[t] = t * 7;
    const Tensor y = model.logits(run, model.forward(run, ids));
    return {y.view().as<float>(), y.view().as<float>() + y.view().count()};
  }
  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0, scale = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
      scale = std::max(scale, std::abs(static_cast<double>(a[i])));
    }
    return most / scale;
  }
  // Along the gradient of each tensor the loss grows by its square.
  void expect_gradients(const AdapterSpec& spec) const {
    MasterWeights masters(DType::f32);
    const auto model = adapt(masters, path(), spec);
    masters.zero_grads(1);
    loss(*model, DType::f32, true);
    masters.sum_uses(1);
    const std::vector<float> values(masters.values().begin(), masters.values().end());
    for (const MasterTensor& t : masters.tensors()) {
      const float* g = masters.grads().data() + t.offset;
      double square = 0;
      for (int64_t i = 0; i < t.count(); ++i) square += static_cast<double>(g[i]) * static_cast<double>(g[i]);
      ASSERT_GT(square, 0) << t.name;
      const double step = 0.03 / std::sqrt(square);
      double change = 0;
      for (const double sign : {1.0, -1.0}) {
        for (int64_t i = 0; i < t.count(); ++i)
          masters.values()[static_cast<size_t>(t.offset + i)] += static_cast<float>(sign * step) * g[i];
        masters.round(1);
        change += sign * loss(*model, DType::f32, false);
        std::copy(values.begin(), values.end(), masters.values().begin());
      }
      constexpr double kNoise = 3e-5;  // of FP32 losses
      EXPECT_NEAR(change, 2 * step * square, 0.03 * 2 * step * square + kNoise) << t.name;
    }
  }
};

TEST_F(AdaptersTest, WordsMeanWhatPeftMeansByThem) {
  const Config config = load_config(path());
  const OpenFolder files = open_folder(path());
  const AdapterPlaces places(config, *files.source);
  const auto modules = [&](const AdapterSpec& spec) {
    std::string list;
    for (const AdapterSite& s : places.find(spec))
      list += fmt::format("{} {}x{}->{}\n", s.module, s.count, s.in, s.out);
    return list;
  };
  EXPECT_EQ(modules({.rank = 2, .targets = {"q_proj", "layers.0.mixer.in_proj"}}),
            "model.layers.0.mixer.in_proj 1x32->222\nmodel.layers.2.mixer.q_proj 1x32->48\n");
  EXPECT_EQ(
      modules({.rank = 2,
               .targets = {"*.shared_experts.*"},
               .target_parameters = {"experts.down_proj", "experts.up_proj"}}),
      "model.layers.1.mixer.experts.base_layer 8x32->20\nmodel.layers.1.mixer.experts 8x20->32\n"
      "model.layers.1.mixer.shared_experts.up_proj 1x32->56\nmodel.layers.1.mixer.shared_experts.down_proj 1x56->32\n");
  EXPECT_EQ(places.find({.rank = 2, .targets = {"all-linear"}}).size(), 10u);  // the head not among them
  const std::string unknown = error_of([&] { places.find({.rank = 2, .targets = {"in_prj"}}); });
  EXPECT_NE(unknown.find("in_prj"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("down_proj, in_proj, k_proj"), std::string::npos) << unknown;
  EXPECT_NE(error_of([&] { places.find({.rank = 2, .target_parameters = {"up_prj"}}); }), "");
  const std::string dropout =
      error_of([&] { places.find({.rank = 2, .dropout = 0.1, .target_parameters = {"experts.up_proj"}}); });
  EXPECT_NE(dropout.find("lora.dropout"), std::string::npos) << dropout;
}

TEST_F(AdaptersTest, NewOnesChangeNoBit) {
  for (const DType act : {DType::f32, DType::bf16}) {
    MasterWeights masters(act);
    const auto model = masters.adapt(path(), {.rank = 3, .targets = kEverywhere, .target_parameters = kExperts}, 1);
    const auto base = load();
    const auto a = logits(*model, act), b = logits(*base, act);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
    for (const Param* p : model->params())
      EXPECT_TRUE(!p->grad || p->name.find("experts.") != std::string::npos || p->name == "lm_head.weight") << p->name;
  }
}

TEST_F(AdaptersTest, GradientsMatchFiniteDifferences) {
  expect_gradients({.rank = 3, .alpha = 2, .targets = kEverywhere, .target_parameters = kExperts});
}

// The prediction block uses the head a second time.
TEST_F(AdaptersTest, GradientsOfAMatrixThatIsUsedTwice) {
  nlohmann::json config = hybrid();
  config["num_nextn_predict_layers"] = 1;
  config["mtp_hybrid_override_pattern"] = "*E";
  write(config, tensors_of(config));
  expect_gradients({.rank = 3, .alpha = 2, .target_parameters = {"lm_head.weight"}});
}

// GPT-2 reads q, k and v from one matrix.
TEST_F(AdaptersTest, GradientsOfAFusedMatrix) {
  nlohmann::json gpt2 = dense("gpt2");
  gpt2["n_embd"] = 32, gpt2["n_head"] = 4, gpt2["n_layer"] = 2, gpt2["n_positions"] = 64;
  write(gpt2, tensors_of(gpt2));
  expect_gradients({.rank = 3, .alpha = 2, .targets = {"c_attn", "c_fc", "c_proj"}});
}

TEST_F(AdaptersTest, CutsOfABatchChangeNoBit) {
  MasterWeights masters(DType::bf16);
  const auto model = adapt(masters, path(), {.rank = 3, .targets = kEverywhere, .target_parameters = kExperts});
  std::vector<float> whole;
  for (const bool cut : {false, true}) {
    masters.zero_grads(1);
    loss(*model, DType::bf16, true, cut);
    masters.sum_uses(1);
    if (!cut) whole.assign(masters.grads().begin(), masters.grads().end());
  }
  EXPECT_EQ(std::memcmp(whole.data(), masters.grads().data(), whole.size() * sizeof(float)), 0);
}

TEST_F(AdaptersTest, SavedLoadedAndMerged) {
  MasterWeights masters(DType::f32);
  const auto model =
      adapt(masters, path(),
            {.rank = 3, .targets = kEverywhere, .target_parameters = {"experts.up_proj", "experts.down_proj"}});
  const auto wanted = logits(*model, DType::f32);
  EXPECT_GT(largest_difference(wanted, logits(*load(), DType::f32)), 0.05);
  const auto saved = folder_ / "adapter";
  save_model(masters, masters.values(), folder_, saved);
  const auto again = load_adapted(path(), saved, DType::f32);
  EXPECT_LT(largest_difference(wanted, logits(*again, DType::f32)), 1e-6);
  merge_adapter(path(), saved, folder_ / "merged");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "merged" / "DONE"));  // of checkpoints alone
  const auto merged = load_model(io::find_model((folder_ / "merged").string()));
  EXPECT_LT(largest_difference(wanted, logits(*merged, DType::f32)), 0.03);  // weights rounded to BF16
}

TEST_F(AdaptersTest, FilesThatDoNotFitAreRefused) {
  MasterWeights masters(DType::f32);
  adapt(masters, path(), {.rank = 3, .targets = {"q_proj"}});
  const auto saved = folder_ / "adapter";
  save_model(masters, masters.values(), folder_, saved);
  const auto refusal_of = [&](const std::string& config) {
    write(saved / kAdapterConfig, config);
    return error_of([&] { load_adapted(path(), saved, DType::f32); });
  };
  EXPECT_EQ(refusal_of(R"({"peft_type": "LORA", "lora_alpha": 4})"), "");
  EXPECT_NE(refusal_of(R"({"peft_type": "IA3", "lora_alpha": 4})").find("another kind"), std::string::npos);
  EXPECT_NE(refusal_of(R"({"peft_type": "LORA", "lora_alpha": 4, "use_dora": true})").find("use_dora"),
            std::string::npos);
  nlohmann::json narrow = hybrid();
  narrow["num_attention_heads"] = 2;
  const auto other = folder_ / "other";
  std::filesystem::create_directories(other);
  write(narrow, tensors_of(narrow));
  EXPECT_NE(refusal_of(R"({"peft_type": "LORA", "lora_alpha": 4})").find("wrong shape"), std::string::npos);
}

}  // namespace
}  // namespace braid::models
