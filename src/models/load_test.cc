// Folders that load, and those that do not fit their config: the error names the tensor, what it is, what it should be
// and the config keys.
#include "models/load.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/save.h"
#include "support/models.h"

namespace braid::models {
namespace {

using Specs = std::vector<io::TensorSpec>;

class Load : public FolderTest {
 protected:
  // The error after `change` of the tensors of a good folder.
  template <class Change>
  std::string error_after(Change change) {
    Specs specs = tensors_of(hybrid());
    change(specs);
    write(hybrid(), specs);
    return error_of([&] { load(); });
  }
};

io::TensorSpec& find(Specs& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == name; });
  EXPECT_NE(found, specs.end()) << name;
  return *found;
}

void expect_says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

constexpr const char* kInProj = "backbone.layers.0.mixer.in_proj.weight";

TEST_F(Load, AWholeFolder) {
  EXPECT_EQ(error_after([](Specs&) {}), "");
  const auto model = load();
  EXPECT_EQ(model->config().pattern(), "ME*-");
  EXPECT_EQ(model->params().size(), tensors_of(hybrid()).size());
  EXPECT_EQ(model->state_shapes().size(), 2u);
  ASSERT_EQ(model->mamba_layers().size(), 1u);
  EXPECT_EQ(model->mamba_layers()[0].first, 0);
}

TEST_F(Load, OtherPrefixes) {
  for (const char* prefix : {"model.", "language_model.backbone.", "language_model.model."}) {
    EXPECT_EQ(error_after([&](Specs& specs) {
                for (auto& s : specs) {
                  if (s.name.starts_with("backbone.")) s.name = prefix + s.name.substr(9);
                }
              }),
              "")
        << prefix;
  }
}

// A weight that the config says nothing of would be missing in silence. What lies outside of the layers, buffers and
// scales may be there.
TEST_F(Load, AWeightWithoutAPlace) {
  for (const char* name : {"backbone.layers.2.mixer.q_proj.bias", "backbone.layers.0.mixer.gate.weight"})
    expect_says(error_after([&](Specs& specs) {
                  specs.push_back({name, DType::bf16, {48}});
                }),
                {std::string(name) + " has no place in the model"});
  EXPECT_EQ(
      error_after([](Specs& specs) {
        for (const char* name : {"backbone.layers.4.mixer.q_proj.bias", "mtp.layers.0.mixer.q_proj.weight",
                                 "vision_model.encoder.layers.0.fc1.weight", "backbone.layers.2.rotary_emb.inv_freq",
                                 "backbone.layers.2.mixer.q_proj.input_scale"})
          specs.push_back({name, DType::f32, {1}});
      }),
      "");
}

TEST_F(Load, ExpertsStoredInOneTensor) {
  EXPECT_EQ(error_after([](Specs& specs) {
              std::erase_if(specs, [](const auto& s) { return s.name.find(".experts.") != std::string::npos; });
              specs.push_back({"backbone.layers.1.mixer.experts.up_proj", DType::bf16, {8, 20, 32}});
              specs.push_back({"backbone.layers.1.mixer.experts.down_proj", DType::bf16, {8, 32, 20}});
            }),
            "");
}

TEST_F(Load, AWrongShape) {
  expect_says(error_after([](Specs& specs) {
                find(specs, kInProj).shape = {32, 222};
              }),
              {kInProj, "got [32, 222]", "expected [222, 32]", "mamba_num_heads", "config.json"});
  expect_says(error_after([](Specs& specs) {
                find(specs, "lm_head.weight").shape = {49, 32};
              }),
              {"lm_head.weight", "got [49, 32]", "vocab_size"});
  expect_says(error_after([](Specs& specs) {
                find(specs, "backbone.layers.0.mixer.A_log").shape = {6, 1};
              }),
              {"A_log", "got [6, 1]", "expected [6]"});
}

TEST_F(Load, AWrongType) {
  expect_says(error_after([](Specs& specs) { find(specs, kInProj).dtype = DType::i64; }), {kInProj, "got I64", "BF16"});
  expect_says(error_after([](Specs& specs) { find(specs, "backbone.norm_f.weight").dtype = DType::f8_e4m3; }),
              {"norm_f.weight", "got F8_E4M3", "F32"});
}

TEST_F(Load, MissingTensors) {
  for (const std::string name :
       {"backbone.embeddings.weight", "lm_head.weight", "backbone.layers.1.mixer.experts.7.up_proj.weight",
        "backbone.layers.1.mixer.gate.e_score_correction_bias", "backbone.layers.3.norm.weight"}) {
    expect_says(error_after([&](Specs& specs) { std::erase_if(specs, [&](const auto& s) { return s.name == name; }); }),
                {name, "missing"});
  }
}

TEST_F(Load, ScalesOfFp8) {
  const std::string weight = kInProj, scale = weight + "_scale";
  const auto store = [&](DType dtype, const Shape& shape) {
    return error_after([&](Specs& specs) {
      find(specs, weight).dtype = DType::f8_e4m3;
      specs.push_back({scale, dtype, shape});
    });
  };
  EXPECT_EQ(store(DType::f32, {}), "");
  EXPECT_EQ(store(DType::f32, {1}), "");
  EXPECT_EQ(store(DType::bf16, {}), "");
  EXPECT_EQ(store(DType::f16, {1}), "");
  expect_says(store(DType::f32, {222}), {scale, "scales of rows", "got F32 [222]", "one for the whole tensor"});
  expect_says(store(DType::i32, {}), {scale, "got I32 []"});
  expect_says(error_after([&](Specs& specs) { find(specs, weight).dtype = DType::f8_e4m3; }), {scale, "missing"});
}

// As any quantiser writes a matrix of zeros: largest magnitude / 448 = 0. Of other matrices, 0 is damage.
TEST_F(Load, AScaleOfZeroIsThatOfZeros) {
  const std::string weight = kInProj;
  for (const bool fp8 : {true, false}) {
    for (const int code : {0, 0x80, 1}) {
      Specs specs = tensors_of(hybrid());
      find(specs, weight) =
          fp8 ? io::TensorSpec{weight, DType::f8_e4m3, {222, 32}} : io::TensorSpec{weight, DType::u8, {222, 16}};
      const std::string scale = weight + (fp8 ? "_scale" : "_scale_2");
      specs.push_back({scale, DType::f32, {}});
      if (!fp8) specs.push_back({weight + "_scale", DType::f8_e4m3, {222, 2}});
      write("config.json", hybrid().dump());
      io::SafetensorsWriter file(folder_ / "model.safetensors", specs);
      for (const io::TensorSpec& spec : file.order()) {
        std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
        if (spec.name == weight) bytes[77] = std::byte(code);
        file.write(spec.name, bytes);
      }
      file.finish();
      const std::string error = error_of([&] { load(); });
      if (code == 1)
        expect_says(error, {scale, "damaged", "got 0"});
      else
        EXPECT_EQ(error, "") << fp8 << " " << code;
    }
  }
}

TEST_F(Load, WhatCompressedTensorsPacks) {
  const std::string weight = kInProj;  // [222, 32]
  struct Part {
    const char* word;
    DType dtype;
    Shape shape;
  };
  const auto store = [&](const std::vector<Part>& parts) {
    return error_after([&](Specs& specs) {
      std::erase_if(specs, [&](const auto& s) { return s.name == weight; });
      for (const Part& p : parts) specs.push_back({weight + p.word, p.dtype, p.shape});
    });
  };
  const Part codes{"_packed", DType::i32, {222, 4}}, scales{"_scale", DType::bf16, {222, 1}};
  EXPECT_EQ(store({codes, scales}), "");
  EXPECT_EQ(store({codes, {"_scale", DType::f32, {222, 1}}}), "");
  expect_says(store({codes}), {weight + "_scale"});
  expect_says(store({codes, scales, {"_zero_point", DType::i32, {222, 1}}}), {"_zero_point", "symmetric"});
  expect_says(store({codes, {"_scale", DType::bf16, {222, 3}}}), {weight + "_scale", "[222, 3]", "groups"});
  expect_says(store({{"_packed", DType::i32, {222, 5}}, scales}), {"_packed", "[222, 5]", "3, 4 or 8 bits"});
  expect_says(store({{"_packed", DType::bf16, {222, 4}}, scales}), {"_packed", "BF16"});
  const Part bytes{"_packed", DType::u8, {222, 16}};
  EXPECT_EQ(store({bytes, {"_scale", DType::u8, {222, 1}}}), "");
  expect_says(store({bytes, {"_scale", DType::u8, {222, 2}}}), {weight + "_scale", "[222, 2]", "[222, 1]"});
  expect_says(store({bytes, {"_scale", DType::f8_e4m3, {222, 2}}}), {"_global_scale"});
  expect_says(store({bytes, scales}), {weight + "_scale", "BF16", "F8_E4M3"});
}

TEST_F(Load, WhatCompressedTensorsSaysOfIt) {
  const auto refused = [&](const char* key, const nlohmann::json& value, bool symmetric = true) {
    nlohmann::json config = hybrid();
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"config_groups", {{"group_0", {{"weights", {{"symmetric", symmetric}}}}}}},
                                     {key, value}};
    write(config, tensors_of(hybrid()));
    return error_of([&] { load(); });
  };
  EXPECT_EQ(refused("sparsity_config", nullptr), "");
  expect_says(refused("sparsity_config", {{"format", "sparse-24-bitmask"}}), {"sparsity_config"});
  expect_says(refused("transform_config", {{"config_groups", {{"R1", 1}}}}), {"transform_config", "rotated"});
  expect_says(refused("version", "1", false), {"symmetric", "true"});
}

TEST_F(Load, ScalesOfNvfp4) {
  const std::string weight = kInProj;
  const auto store = [&](const Shape& codes, const Shape& scales, DType scale_type) {
    return error_after([&](Specs& specs) {
      find(specs, weight) = {weight, DType::u8, codes};
      specs.push_back({weight + "_scale", scale_type, scales});
      specs.push_back({weight + "_scale_2", DType::f32, {}});
    });
  };
  EXPECT_EQ(store({222, 16}, {222, 2}, DType::f8_e4m3), "");
  expect_says(store({222, 32}, {222, 2}, DType::f8_e4m3), {weight, "got [222, 32]", "expected [222, 16]"});
  expect_says(store({222, 16}, {222, 1}, DType::f8_e4m3), {weight + "_scale", "got [222, 1]", "expected [222, 2]"});
  expect_says(store({222, 16}, {222, 2}, DType::u8), {weight + "_scale", "U8", "F8_E4M3"});
}

TEST_F(Load, UnknownQuantisation) {
  nlohmann::json config = hybrid();
  config["quantization_config"] = {{"quant_algo", "W3A5_WARP"}};
  write(config, tensors_of(hybrid()));
  expect_says(error_of([&] { load(); }), {"quant_algo", "W3A5_WARP", "NVFP4"});
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  write(config, tensors_of(hybrid()));
  expect_says(error_of([&] { load(); }), {"quant_method", "gptq", "modelopt or compressed-tensors"});
}

// As ModelOpt writes it since it has config_groups, alone or with the older keys.
TEST_F(Load, GroupsOfModelOpt) {
  const auto refused = [&](const nlohmann::json& weights, const nlohmann::json& algorithm = nullptr) {
    nlohmann::json config = hybrid();
    config["quantization_config"] = {{"quant_method", "modelopt"},
                                     {"quant_algo", algorithm},
                                     {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}},
                                     {"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"Linear"}}}}}}};
    write(config, tensors_of(hybrid()));
    return error_of([&] { load(); });
  };
  const nlohmann::json fp8 = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  nlohmann::json nvfp4 = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  EXPECT_EQ(refused(fp8), "");
  EXPECT_EQ(load()->config().kv_cache, DType::f8_e4m3);
  for (const char* algorithm : {"NVFP4", "nvfp4", "NVFP4_W4A16", "W4A16_NVFP4", "MIXED_PRECISION"})
    EXPECT_EQ(refused(nvfp4, algorithm), "") << algorithm;
  for (const char* algorithm : {"NVFP4_AWQ", "MXFP8", "FP8_PER_CHANNEL_PER_TOKEN"})
    expect_says(refused(nvfp4, algorithm), {"quant_algo", algorithm});
  nvfp4["group_size"] = 32;
  expect_says(refused(nvfp4), {"config_groups.group_0.weights", "groups of 16"});
  expect_says(refused({{"num_bits", 4}, {"type", "int"}, {"group_size", 16}}), {"config_groups.group_0.weights"});
  expect_says(refused({{"num_bits", 8}, {"type", "float"}, {"group_size", 32}}), {"config_groups.group_0.weights"});
}

TEST_F(Load, EveryEndTokenOfBothFilesCounts) {
  nlohmann::json config = hybrid();
  config["eos_token_id"] = 2;
  write(config, tensors_of(hybrid()));
  write("generation_config.json", R"({"eos_token_id": [2, 11]})");
  EXPECT_EQ(load()->config().eos, (std::vector<int64_t>{2, 11}));
  write("generation_config.json", R"({"eos_token_id": -1})");
  EXPECT_EQ(load()->config().eos, std::vector<int64_t>{2});
}

TEST_F(Load, TemplatesOfOtherNamesAreCopied) {
  const auto to = folder_ / "to";
  std::filesystem::create_directories(folder_ / "from/additional_chat_templates");
  std::filesystem::create_directory(to);
  write("from/chat_template.jinja", "a");
  copy_companions(folder_ / "from", to);
  EXPECT_TRUE(std::filesystem::exists(to / "chat_template.jinja"));
  write("from/additional_chat_templates/tool_use.jinja", "b");
  write("from/additional_chat_templates/notes.txt", "c");
  copy_companions(folder_ / "from", to);
  EXPECT_EQ(std::filesystem::file_size(to / "additional_chat_templates/tool_use.jinja"), 1u);
  EXPECT_FALSE(std::filesystem::exists(to / "additional_chat_templates/notes.txt"));
}

}  // namespace
}  // namespace braid::models
