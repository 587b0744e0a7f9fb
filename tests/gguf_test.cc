// GGUF against llama.cpp's own code: values of blocks as gguf-py decodes them, and a model as its converter wrote it
// against the folder that it was made from. The file is one of the fixtures; a clone has the blocks alone.
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "math/ggml_blocks.h"
#include "math/ggml_encode.h"
#include "support/golden.h"

namespace braid {
namespace {

void expect_values(const std::filesystem::path& path, int64_t types_min) {
  const io::Safetensors file(path);
  int64_t types = 0;
  for (const GgmlTypeRow& row : ggml_types()) {
    const std::string name = row.name;
    const View *raw = file.find(name + ".raw"), *values = file.find(name + ".values");
    if (!raw || !values) continue;  // F32, F16 and BF16
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
  expect_values(BRAID_TEST_DATA "/ggml_blocks.safetensors", 23);
  if (const std::string fixtures = support::fixtures(); !fixtures.empty())
    expect_values(std::filesystem::path(fixtures) / "gguf/blocks.safetensors", 23);
}

void expect_encoded(const std::filesystem::path& path, int64_t types_min) {
  const io::Safetensors file(path);
  int64_t types = 0;
  for (const GgmlTypeRow& row : ggml_types()) {
    const std::string name = row.name;
    const View *source = file.find(name + ".source"), *want = file.find(name + ".encoded");
    if (!source || !encodes(row.type)) continue;
    ++types;
    const int64_t blocks = source->dim(0), values = source->dim(1), bytes = want->dim(1);
    ASSERT_EQ(bytes, values / row.values * row.bytes) << name;
    std::vector<std::byte> got(static_cast<size_t>(want->bytes()), std::byte{99});
    encode_ggml(row.type, {source->as<float>(), static_cast<size_t>(source->count())}, got.data());
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < blocks; ++i) {
      if (std::memcmp(got.data() + i * bytes, want->data + i * bytes, static_cast<size_t>(bytes)) == 0) continue;
      if (wrong++ == 0) first = i;
    }
    EXPECT_EQ(wrong, 0) << name << ", of " << blocks << " blocks, first " << first;
  }
  EXPECT_GE(types, types_min);
}

TEST(GgmlEncode, HasTheBytesOfGgmlAndGgufPy) {
  expect_encoded(BRAID_TEST_DATA "/ggml_encoded.safetensors", 13);
  if (const std::string fixtures = support::fixtures(); !fixtures.empty())
    expect_encoded(std::filesystem::path(fixtures) / "gguf/blocks.safetensors", 6);
}

// Values that a type holds come back as they were, so encoding twice changes nothing.
TEST(GgmlEncode, ValuesOfBlocksOfOneScaleComeBack) {
  const io::Safetensors file(BRAID_TEST_DATA "/ggml_encoded.safetensors");
  for (const GgmlType type : {GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_0, GgmlType::q5_0}) {
    const GgmlTypeRow& row = *ggml_type(static_cast<uint32_t>(type));
    const View& blocks = *file.find(std::string(row.name) + ".encoded");
    std::vector<float> once(static_cast<size_t>(blocks.bytes() / row.bytes * row.values)), twice(once.size());
    decode_ggml(type, blocks.data, once);
    std::vector<std::byte> again(static_cast<size_t>(blocks.bytes()));
    encode_ggml(type, once, again.data());
    decode_ggml(type, again.data(), twice);
    EXPECT_EQ(once, twice) << row.name;
  }
}

// Numbers so small that their scale has no inverse are zeros, not undefined.
TEST(GgmlEncode, TinyNumbersAreZeros) {
  const std::vector<float> tiny(256, 1e-40f);
  for (const GgmlTypeRow& row : ggml_types()) {
    if (!encodes(row.type) || row.type == GgmlType::f32 || row.type == GgmlType::bf16) continue;
    std::vector<std::byte> blocks(static_cast<size_t>(256 / row.values * row.bytes));
    encode_ggml(row.type, tiny, blocks.data());
    std::vector<float> got(256, 99.0f);
    decode_ggml(row.type, blocks.data(), got);
    for (const float v : got) ASSERT_NEAR(v, 0, 1e-30) << row.name;
  }
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
