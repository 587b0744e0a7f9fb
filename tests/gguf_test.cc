// GGUF against llama.cpp's own code: values of blocks as gguf-py decodes them, and a model as its converter wrote it
// against the folder that it was made from. The file is one of the fixtures; a clone has the blocks alone.
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "math/ggml_blocks.h"
#include "support/golden.h"

namespace braid {
namespace {

void expect_values(const std::filesystem::path& path, int64_t types_min) {
  const io::Safetensors file(path);
  int64_t types = 0;
  for (const GgmlTypeRow& row : ggml_types()) {
    const std::string name = row.name;
    const View *raw = file.find(name + ".raw"), *values = file.find(name + ".values");
    if (!raw || !decodes(row.type)) continue;
    ++types;
    ASSERT_EQ(raw->dim(1), row.bytes) << name;
    ASSERT_EQ(values->dim(1), row.values) << name;
    std::vector<float> got(static_cast<size_t>(values->count()), 99.0f);
    decode_ggml(row.type, raw->data, got);
    EXPECT_EQ(std::memcmp(got.data(), values->data, got.size() * sizeof(float)), 0) << name;
  }
  EXPECT_GE(types, types_min);
}

TEST(GgmlBlocks, HaveTheBitsOfGgufPy) {
  expect_values(BRAID_TEST_DATA "/ggml_blocks.safetensors", 16);
  if (const std::string fixtures = support::fixtures(); !fixtures.empty())
    expect_values(std::filesystem::path(fixtures) / "gguf/blocks.safetensors", 16);
}

// Nothing is quantised here: only A_log, stored as -exp of it, is rounded on the way.
TEST(GgufModel, HasTheLogitsOfItsFolder) {
  const std::string fixtures = support::fixtures();
  if (fixtures.empty()) GTEST_SKIP() << "BRAID_FIXTURES names no folder";
  const std::vector<int32_t> ids = {10, 304, 216, 11, 216, 10, 298, 216, 341, 314, 238, 38, 308};
  const engine::RunnerOptions options{.numerics = Numerics::serving(DType::f32)};
  const auto logits = [&](const std::string& name) {
    const auto runner = open_folder(std::filesystem::path(fixtures) / name, options);
    return prefill(*runner, 0, ids).logits;
  };
  const std::vector<float> want = logits("tiny-chat"), got = logits("gguf/tiny-chat-bf16.gguf");
  EXPECT_EQ(want.size(), ids.size() * 640);
  EXPECT_LE(worst(got, want), 1e-4);
}

}  // namespace
}  // namespace braid
