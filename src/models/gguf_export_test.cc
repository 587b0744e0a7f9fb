// Folders as GGUF files that read back as the same model: scaled RoPE, biases beside scales, heads of their own.
#include "models/gguf_export.h"

#include <gtest/gtest.h>

#include "models/gguf.h"
#include "support/models.h"

namespace braid::models {
namespace {

class GgufExportTest : public FolderTest {
 protected:
  // What its file is read back as.
  Config there_and_back(const nlohmann::json& config, GgmlType type = GgmlType::f32) const {
    write(config, tensors_of(config));
    const GgufExport file(io::find_model(folder_.string()), {.type = type});
    const auto path = folder_ / "x.gguf";
    std::filesystem::remove(path);
    file.write(path, {}, [](int64_t) { return true; });
    return load_model(io::find_model(path.string()))->config();
  }
};

nlohmann::json scaled(const char* family, const nlohmann::json& rope) {
  nlohmann::json config = dense(family);
  config["hidden_size"] = 64;
  config["intermediate_size"] = 128;
  config["rope_parameters"] = rope;
  return config;
}

void expect_same_rope(const Config& a, const Config& b) {
  const RopeOptions &x = a.rope->options, &y = b.rope->options;
  EXPECT_EQ(x.scaling, y.scaling);
  EXPECT_EQ(x.factor, y.factor);
  EXPECT_EQ(x.low_freq_factor, y.low_freq_factor);
  EXPECT_EQ(x.high_freq_factor, y.high_freq_factor);
  EXPECT_EQ(x.original_max_position_embeddings, y.original_max_position_embeddings);
  EXPECT_EQ(x.beta_fast, y.beta_fast);
  EXPECT_EQ(x.beta_slow, y.beta_slow);
  EXPECT_NEAR(x.attention_factor, y.attention_factor, 1e-6);
}

TEST_F(GgufExportTest, Llama3sScalingOfAnyNumbers) {
  for (const auto& [low, high, original] :
       {std::tuple{1.0, 4.0, 64}, {1.0, 8.0, 128}, {2.0, 6.5, 100}, {1.0, 4.0, 8000}}) {
    const nlohmann::json config = scaled("llama", {{"rope_type", "llama3"},
                                                   {"rope_theta", 10000.0},
                                                   {"factor", 32.0},
                                                   {"low_freq_factor", low},
                                                   {"high_freq_factor", high},
                                                   {"original_max_position_embeddings", original}});
    expect_same_rope(there_and_back(config), read(config));
  }
}

TEST_F(GgufExportTest, Yarn) {
  nlohmann::json rope = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  for (const char* family : {"llama", "qwen3"}) {
    expect_same_rope(there_and_back(scaled(family, rope)), read(scaled(family, rope)));
    nlohmann::json other = rope;
    other.update({{"beta_fast", 16.0}, {"beta_slow", 2.0}, {"attention_factor", 0.75}});
    expect_same_rope(there_and_back(scaled(family, other)), read(scaled(family, other)));
  }
  rope["truncate"] = false;
  const std::string refused = error_of([&] { there_and_back(scaled("llama", rope)); });
  EXPECT_NE(refused.find("llama.cpp cannot run this model: it has YaRN without truncate"), std::string::npos)
      << refused;
}

// The scale of a matrix has the name of the matrix's bias but for its last word.
TEST_F(GgufExportTest, ABiasBesideAScale) {
  nlohmann::json config = scaled("llama", {{"rope_type", "default"}, {"rope_theta", 10000.0}});
  config["attention_bias"] = config["mlp_bias"] = true;
  Config back;
  EXPECT_EQ(error_of([&] { back = there_and_back(config, GgmlType::nvfp4); }), "");
  EXPECT_EQ(describe(back), describe(read(config)));
}

// llama.cpp counts the tensors of blocks that it skips by their names, which those of scales are not among.
TEST_F(GgufExportTest, NoScalesInThePredictionBlock) {
  nlohmann::json config = hybrid();
  config["layers_block_type"] = {"mamba", "moe", "attention", "moe"};  // a dense one beside experts has no place
  config.update({{"hidden_size", 64}, {"moe_intermediate_size", 64}, {"moe_shared_expert_intermediate_size", 64}});
  config.update({{"num_nextn_predict_layers", 1}, {"mtp_layers_block_type", {"attention", "moe"}}});
  write(config, tensors_of(config));
  const GgufExport file(io::find_model(folder_.string()), {.type = GgmlType::nvfp4});
  EXPECT_EQ(file.notes().size(), 0u);
  int64_t scales = 0, predicting = 0;
  for (const GgufExport::Tensor& tensor : file.tensors()) {
    const std::string& name = tensor.spec.name;
    scales += name.ends_with(".scale");
    predicting += name.starts_with("blk.4.");
    EXPECT_FALSE(name.starts_with("blk.4.") && (name.ends_with(".scale") || tensor.spec.type == GgmlType::nvfp4))
        << name;
  }
  EXPECT_GT(scales, 0);
  EXPECT_GT(predicting, 0);
  EXPECT_TRUE(there_and_back(config, GgmlType::nvfp4).mtp.has_value());
}

TEST_F(GgufExportTest, AConvolutionWithoutBiasGetsZeros) {
  nlohmann::json config = hybrid();
  config["layers_block_type"] = {"mamba", "moe", "attention", "moe"};
  config["use_conv_bias"] = false;
  const Config back = there_and_back(config);
  EXPECT_TRUE(std::get<nn::Mamba2Spec>(back.layers[0].parts[0].block).conv_bias);
}

TEST_F(GgufExportTest, WhatLlamaCppLacksIsRefused) {
  nlohmann::json qwen = dense("qwen3");
  qwen["attention_bias"] = true;
  const std::string biased = error_of([&] { there_and_back(qwen); });
  EXPECT_NE(biased.find("it has a bias on the output of attention (attention_bias)"), std::string::npos) << biased;
  nlohmann::json config = hybrid();
  config["layers_block_type"] = {"mamba", "moe", "mamba", "moe"};
  const std::string refused = error_of([&] { there_and_back(config); });
  EXPECT_NE(refused.find("it has no attention layers"), std::string::npos) << refused;
}

TEST_F(GgufExportTest, AHeadOfItsOwn) {
  nlohmann::json config = scaled("llama", {{"rope_type", "default"}, {"rope_theta", 10000.0}});
  EXPECT_FALSE(there_and_back(config).tied);
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(there_and_back(config).tied);
}

}  // namespace
}  // namespace braid::models
