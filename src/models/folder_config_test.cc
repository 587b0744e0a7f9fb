// What files have is used where config.json says otherwise, as in transformers.
#include "models/folder_config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/config_file.h"

#include "support/models.h"

namespace braid::models {
namespace {

using Object = nlohmann::json;

Object merged(Object config, const Object& more) {
  config.update(more);
  return config;
}

class FolderConfigTest : public FolderTest {
 protected:
  // All tensors have the same bytes.
  void write_alike(const Object& config, const std::vector<io::TensorSpec>& specs) const {
    write("config.json", config.dump());
    io::SafetensorsWriter file(folder_ / "model.safetensors", specs);
    for (const io::TensorSpec& spec : file.order())
      file.write(spec.name, std::vector<std::byte>(static_cast<size_t>(spec.bytes()), std::byte{0x3c}));
    file.finish();
  }
  Object raw() const { return Object::parse(config_text(folder_config(folder_).raw())); }
};

TEST_F(FolderConfigTest, AHeadOfItsOwnIsNotTied) {
  for (const Object& free : {dense("llama"), dense("qwen3"), hybrid()}) {
    const Object tied = merged(free, {{"tie_word_embeddings", true}});
    write(tied, tensors_of(free));
    EXPECT_FALSE(load()->config().tied);
    EXPECT_EQ(raw(), free);  // what is written next to these weights
    write_alike(tied, tensors_of(free));
    EXPECT_TRUE(load_config(io::find_model(folder_.string())).tied);
    EXPECT_EQ(raw(), tied);
    write(tied, tensors_of(tied));
    EXPECT_TRUE(load()->config().tied);
  }
}

TEST_F(FolderConfigTest, AHeadOfAnotherTypeIsItsOwn) {
  const Object tied = merged(dense("llama"), {{"tie_word_embeddings", true}});
  std::vector<io::TensorSpec> specs = tensors_of(dense("llama"));
  for (io::TensorSpec& spec : specs) {
    if (spec.name == "lm_head.weight") spec.dtype = DType::f32;
  }
  write_alike(tied, specs);
  EXPECT_FALSE(load()->config().tied);
}

TEST_F(FolderConfigTest, WithoutWeightsConfigJsonCounts) {
  const Object tied = merged(hybrid(), {{"tie_word_embeddings", true}, {"attention_bias", true}});
  write("config.json", tied.dump());
  EXPECT_EQ(raw(), tied);
}

TEST_F(FolderConfigTest, BiasesOfAHybridsAttentionAreThoseStored) {
  const Object biased = merged(hybrid(), {{"attention_bias", true}});
  write(biased, tensors_of(hybrid()));
  const size_t without = load()->params().size();
  EXPECT_EQ(without, tensors_of(hybrid()).size());
  write(biased, tensors_of(biased));
  EXPECT_EQ(load()->params().size(), without + 4);
  // A part of them is a damaged folder, and so are those of a config without.
  std::vector<io::TensorSpec> some = tensors_of(biased);
  std::erase_if(some, [](const io::TensorSpec& spec) { return spec.name.ends_with("k_proj.bias"); });
  write(biased, some);
  EXPECT_NE(error_of([&] { load(); }).find("k_proj.bias is missing"), std::string::npos);
  write(hybrid(), tensors_of(biased));
  EXPECT_NE(error_of([&] { load(); }).find("has no place in the model of config.json"), std::string::npos);
}

TEST_F(FolderConfigTest, SharedExpertsAreAsWideAsStored) {
  const Object one = merged(hybrid(), {{"n_shared_experts", 1}});
  write(hybrid(), tensors_of(one));  // it says two
  EXPECT_EQ(describe(load()->config()), describe(read(one)));
  write(hybrid(), tensors_of(hybrid()));
  EXPECT_EQ(describe(load()->config()), describe(read(hybrid())));
}

}  // namespace
}  // namespace braid::models
