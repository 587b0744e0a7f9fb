// Training has the values of the files: every number comes back under its own name and in its own shape.
#include "models/master_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "models/save.h"
#include "support/models.h"

namespace braid::models {
namespace {

class MastersTest : public FolderTest {
 protected:
  void expect_round_trip(const nlohmann::json& config) {
    const Specs specs = tensors_of(config);
    write(config, specs);
    MasterWeights masters(DType::f32);
    const auto model = masters.load(io::find_model(folder_.string()));
    const io::Safetensors files(folder_);
    ASSERT_EQ(masters.tensors().size(), files.tensors().size());
    for (const MasterTensor& t : masters.tensors()) {
      const View stored = files.need(t.name);
      ASSERT_EQ(t.shape, stored.shape) << t.name;
      std::vector<std::byte> bytes(static_cast<size_t>(t.count()) * 4);
      to_stored(t, masters.values(), true, DType::f32, bytes);
      for (int64_t i = 0; i < t.count(); ++i)
        ASSERT_NEAR(reinterpret_cast<const float*>(bytes.data())[i], element(stored, i), t.plus != 0 ? 1e-6 : 0)
            << t.name;
      std::vector<float> again(static_cast<size_t>(masters.size()));
      from_stored(t, bytes, true, again);
      for (int64_t i = t.offset; i < t.offset + t.count(); ++i)
        ASSERT_NEAR(again[static_cast<size_t>(i)], masters.values()[static_cast<size_t>(i)], t.plus != 0 ? 1e-6 : 0);
    }
    for (const Param* p : model->params()) {
      const MasterTensor& t = masters.tensor_of(*p);
      EXPECT_TRUE(p->name.starts_with(t.name)) << p->name << " in " << t.name;
    }
  }
  using Specs = std::vector<io::TensorSpec>;
};

TEST_F(MastersTest, EveryTensorOfAHybrid) { expect_round_trip(hybrid()); }

TEST_F(MastersTest, TransposedFusedAndShifted) {
  nlohmann::json gpt2 = dense("gpt2");
  gpt2["n_embd"] = 32, gpt2["n_head"] = 4, gpt2["n_layer"] = 2, gpt2["n_positions"] = 64;
  gpt2["architectures"] = {"GPT2LMHeadModel"};
  expect_round_trip(gpt2);
  nlohmann::json minitron = dense("nemotron");
  minitron["architectures"] = {"NemotronForCausalLM"};
  minitron["hidden_act"] = "relu2";
  expect_round_trip(minitron);
}

// BF16 products read the rounded matrices and the vectors as they are; a saved folder holds the same numbers.
TEST_F(MastersTest, SavedAndLoadedAgain) {
  nlohmann::json config = hybrid();
  config["num_nextn_predict_layers"] = 1;
  config["mtp_layers_block_type"] = {"attention", "moe"};
  write(config, tensors_of(config));
  write("tokenizer.json", "{}");
  MasterWeights masters(DType::bf16);
  const auto model = masters.load(io::find_model(folder_.string()));
  for (const Param* p : model->params())
    EXPECT_EQ(p->value.codes.dtype, masters.tensor_of(*p).matrix ? DType::bf16 : DType::f32) << p->name;
  const std::filesystem::path saved = folder_ / "saved";
  save_model(masters, masters.values(), folder_, saved);
  EXPECT_TRUE(std::filesystem::exists(saved / "tokenizer.json"));
  MasterWeights again(DType::bf16);
  again.load(io::find_model(saved.string()));
  ASSERT_EQ(again.size(), masters.size());
  EXPECT_EQ(std::memcmp(again.values().data(), masters.values().data(), masters.values().size_bytes()), 0);
  EXPECT_EQ(io::Json::read(saved / "config.json").need({"dtype"}).as_string(), "bfloat16");
}

TEST_F(MastersTest, QuantisedWeightsAreRefused) {
  auto specs = tensors_of(hybrid());
  for (io::TensorSpec& s : specs) {
    if (!s.name.ends_with("layers.0.mixer.in_proj.weight")) continue;
    s.dtype = DType::f8_e4m3;
    specs.push_back({s.name + "_scale", DType::f32, {}});
    break;
  }
  write(hybrid(), specs);
  const std::string error = error_of([&] { MasterWeights(DType::f32).load(io::find_model(folder_.string())); });
  EXPECT_NE(error.find("quantised weights cannot be trained"), std::string::npos) << error;
}

}  // namespace
}  // namespace braid::models
