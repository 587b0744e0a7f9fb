// Every published shape, made small, written in every format and read back.
#include "models/random_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "codec/codec.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "models/config_file.h"
#include "models/family.h"
#include "models/load.h"
#include "models/presets.h"
#include "support/folder.h"
#include "sys/error.h"

namespace braid::models {
namespace {
namespace fs = std::filesystem;

using support::Folder;

// The preset with the same kinds of layers and small widths.
io::Json small(const std::string& name) {
  const io::Json preset = *find_preset(name);
  nlohmann::json j = first_layers(preset, 9).raw();
  const auto shrink = [&j](const char* key, int64_t value) {
    if (j.contains(key) && !j[key].is_null()) j[key] = value;
  };
  for (const char* key : {"hidden_size", "n_embd"}) shrink(key, 64);
  for (const char* key : {"intermediate_size", "moe_intermediate_size", "moe_shared_expert_intermediate_size"})
    shrink(key, 48);
  for (const char* key : {"num_attention_heads", "n_head", "mamba_num_heads"}) shrink(key, 4);
  for (const char* key : {"num_key_value_heads", "n_groups", "num_experts_per_tok"}) shrink(key, 2);
  for (const char* key : {"n_routed_experts", "num_experts"}) shrink(key, 4);
  for (const char* key : {"head_dim", "mamba_head_dim", "ssm_state_size", "moe_latent_size"}) shrink(key, 16);
  shrink("vocab_size", 96);
  shrink("n_positions", 32);
  return io::Json::parse(j.dump(), name);
}

void write(const io::Json& json, const fs::path& folder, const RandomWeights& options, Spelling spelling) {
  ASSERT_TRUE(write_random_weights(read_config(json), folder, options, [](int64_t) { return true; }));
  io::write_text_file(folder / "config.json", config_text(json, spelling));
}

double deviation(const Weight& w) {
  double sum = 0;
  const std::vector<double> values = decode(w);
  for (double v : values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(RandomWeights, EveryPresetLoadsInEveryFormat) {
  for (const std::string& name : preset_names()) {
    for (const Format format : {Format::bf16, Format::f8_e4m3, Format::nvfp4}) {
      const Folder folder;
      const auto spelling = format == Format::bf16 ? Spelling::transformers : Spelling::released;
      const io::Json json = small(name);
      write(json, folder.path(), {.format = format, .threads = 2}, spelling);
      const auto model = load_model({name, folder.path(), folder.path()});
      EXPECT_EQ(model->config().pattern(), read_config(json).pattern()) << name;
      size_t quantised = 0;
      const double residual = 0.02 / std::sqrt(static_cast<double>(model->config().pattern().size()));
      for (const Param* p : model->params()) {
        quantised += p->value.spec.format == format;
        if (p->value.rows < 48) continue;  // a vector, or a small router
        const double width = deviation(p->value);
        EXPECT_TRUE(std::fabs(width / 0.02 - 1) < 0.15 || std::fabs(width / residual - 1) < 0.15 || width > 0.25)
            << name << " " << p->name << " " << width;
      }
      EXPECT_EQ(quantised > 0, name != "gpt2-124m" || format == Format::bf16) << name;
    }
  }
}

TEST(RandomWeights, NoTwoMatricesAreAlike) {
  const Folder folder;
  write(small("nemotron-3-super-120b-a12b"), folder.path(), {}, Spelling::transformers);
  std::set<std::vector<double>> beginnings;
  const io::Safetensors files(folder.path());
  for (const io::StoredTensor& t : files.tensors()) {
    if (t.view.shape.rank != 2) continue;
    std::vector<double> row;
    for (int64_t i = 0; i < 8; ++i) row.push_back(element(t.view, i));
    EXPECT_TRUE(beginnings.insert(row).second) << t.name;
  }
}

TEST(RandomWeights, ASliceIsTheBeginningOfTheWhole) {
  const Folder folder;
  const io::Json whole = small("nemotron-3-nano-30b-a3b");
  write(whole, folder.path() / "whole", {.seed = 7, .threads = 2}, Spelling::transformers);
  write(first_layers(whole, 3), folder.path() / "slice", {.seed = 7, .threads = 1}, Spelling::transformers);
  const io::Safetensors a(folder.path() / "whole"), b(folder.path() / "slice");
  // The width of what writes into the residual stream depends on the number of layers, the rest does not.
  const std::string name = "backbone.layers.1.mixer.experts.3.up_proj.weight";
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(element(a.need(name), i), element(b.need(name), i));
}

TEST(RandomWeights, NothingStaysWhenItIsStopped) {
  const Folder folder;
  EXPECT_FALSE(write_random_weights(read_config(small("hybrid-1b")), folder.path(), {}, [](int64_t) { return false; }));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ConfigFile, BothSpellingsSayTheSame) {
  for (const std::string& name : preset_names()) {
    const io::Json preset = *find_preset(name);
    for (const Spelling spelling : {Spelling::transformers, Spelling::released}) {
      const io::Json again = io::Json::parse(config_text(preset, spelling), name);
      EXPECT_EQ(read_config(again).pattern(), read_config(preset).pattern()) << name;
      EXPECT_EQ(read_config(again).mtp.has_value(), read_config(preset).mtp.has_value()) << name;
      EXPECT_EQ(config_text(again, Spelling::transformers), config_text(preset, Spelling::transformers)) << name;
    }
  }
}

TEST(ConfigFile, InfinityIsSpelledAsTransformersDoes) {
  const std::string head = R"({"model_type": "nemotron_h", "vocab_size": 8, "hidden_size": 16, "mamba_num_heads": 2,
    "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1, "hybrid_override_pattern": "MM", "time_step_limit": )";
  const io::Json json = io::Json::parse(head + "[0.0, Infinity]}", "config.json");
  for (const io::Json& j : {json, first_layers(json, 1)})
    EXPECT_NE(config_text(j, Spelling::released).find(R"("__float__": "Infinity")"), std::string::npos);
  EXPECT_THROW(first_layers(json, 3), Error);
  EXPECT_THROW(first_layers(json, 0), Error);
}

}  // namespace
}  // namespace braid::models
