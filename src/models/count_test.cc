// The published figures follow from the published configs (docs/internals/families.md, Published shapes).
#include "models/count.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/family.h"
#include "models/inventory.h"
#include "models/presets.h"
#include "models/storage.h"

namespace braid::models {
namespace {

struct Published {
  const char* name;
  int layers;
  double total, active;  // in 1e9, as many digits as were published
  double digits;
  int64_t kv_bytes;          // BF16, a token
  double ssm_mib, conv_mib;  // FP32, BF16
};

constexpr Published kPublished[] = {
    {"nemotron-h-8b", 52, 8.10, 8.10, 0.01, 16384, 96, 1.41},
    {"nemotron-h-47b", 98, 46.8, 46.8, 0.1, 20480, 720, 5.27},
    {"nemotron-nano-12b-v2", 62, 12.31, 12.31, 0.01, 24576, 140, 1.97},
    {"nemotron-nano-9b-v2", 56, 8.89, 8.89, 0.01, 16384, 135, 1.90},
    {"nemotron-3-nano-4b", 42, 3.973556832, 3.973556832, 1e-9, 16384, 78.8, 1.17},
    {"nemotron-3-nano-30b-a3b", 52, 31.58, 3.58, 0.01, 6144, 46, 0.81},
    {"nemotron-3.5-lightning-30b-a3b", 52, 31.58, 3.58, 0.01, 6144, 46, 0.81},
    {"nemotron-3-super-120b-a12b", 88, 120.67, 12.77, 0.01, 8192, 160, 2.34},
    {"nemotron-3-ultra-550b-a55b", 108, 549.3, 56.1, 0.1, 12288, 384, 5.06},
    {"hybrid-8.5m", 10, 0.00850, 0.00614, 0.00001, 512, 0, 0},
    {"hybrid-1b", 23, 0.98, 0.387, 0.01, 3072, 0, 0},
    {"gpt2-124m", 12, 0.124439808, 0.124439808, 1e-9, 36864, 0, 0},
    {"qwen3-30b-a3b", 48, 30.5, 3.3, 0.15, 98304, 0, 0},
    {"llama-3.1-8b", 32, 8.030261248, 8.030261248, 1e-9, 131072, 0, 0},
};

TEST(Count, PublishedFigures) {
  for (const Published& p : kPublished) {
    SCOPED_TRACE(p.name);
    const Config config = read_config(*find_preset(p.name));
    const Parameters n = count_parameters(config);
    int64_t total = 0, mtp = 0, tensors = 0;  // tensor by tensor
    for (const TensorSpec& t : inventory(config)) {
      (t.mtp ? mtp : total) += t.shape.count();
      ++tensors;
    }
    EXPECT_EQ(n.total, total);
    EXPECT_EQ(n.mtp, mtp);
    EXPECT_EQ(n.tensors, tensors);
    const SequenceValues v = count_sequence(config);
    EXPECT_EQ(std::ssize(config.layers), p.layers);
    EXPECT_NEAR(static_cast<double>(n.total) / 1e9, p.total, p.digits / 2 + 1e-12);
    EXPECT_NEAR(static_cast<double>(n.active) / 1e9, p.active, p.digits / 2 + 1e-12);
    EXPECT_EQ(2 * v.kv_per_token, p.kv_bytes);
    if (p.conv_mib == 0) continue;
    EXPECT_NEAR(static_cast<double>(4 * v.ssm) / (1 << 20), p.ssm_mib, 0.05);
    EXPECT_NEAR(static_cast<double>(2 * v.conv) / (1 << 20), p.conv_mib, 0.005);
  }
  EXPECT_EQ(std::size(kPublished), preset_names().size());
}

TEST(Count, ExactFigures) {
  const auto of = [](const char* name) { return count_parameters(read_config(*find_preset(name))); };
  EXPECT_EQ(of("nemotron-3-nano-4b").total, 3973556832);
  EXPECT_EQ(of("nemotron-3-nano-4b").tensors, 263);
  EXPECT_NEAR(static_cast<double>(of("nemotron-3.5-lightning-30b-a3b").mtp), 1.34e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(of("nemotron-3-ultra-550b-a55b").mtp), 11.2e9, 0.1e9);
  const Parameters nano = of("nemotron-3-nano-30b-a3b");
  EXPECT_EQ(nano.mtp, 0);
  EXPECT_NEAR(static_cast<double>(nano.active - nano.embedding), 3.2e9, 0.05e9);
  EXPECT_EQ(of("gpt2-124m").embedding, 0);
}

// Braid trains without dropout, so no preset may leave a rate to the 0.1 that transformers takes for a missing one.
TEST(Presets, AskForNoDropout) {
  for (const std::string& name : preset_names()) {
    const io::Json json = *find_preset(name);
    const bool gpt2 = json.string_of({"model_type"}) == "gpt2";
    for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
      const std::optional<double> rate = json.number_of({key});
      EXPECT_EQ(rate.value_or(gpt2 ? 0.1 : 0.0), 0) << name << " " << key;
    }
  }
}

TEST(Count, SmallerFormatsAreSmaller) {
  const Config config = read_config(*find_preset("nemotron-3-nano-30b-a3b"));
  const auto bits = [&](Format f) {
    return 8 * static_cast<double>(stored_bytes(config, f)) / static_cast<double>(count_parameters(config).total);
  };
  EXPECT_NEAR(bits(Format::bf16), 16, 0.01);
  EXPECT_NEAR(bits(Format::f8_e4m3), 8.2, 0.1);  // embedding, head, attention and router stay BF16
  EXPECT_NEAR(bits(Format::nvfp4), 4.8, 0.1);
}

}  // namespace
}  // namespace braid::models
