// GGUF against llama.cpp's own code: values of blocks as gguf-py decodes them, and whole models as its converter and
// quantiser wrote them.
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "math/ggml_blocks.h"
#include "support/folder.h"

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

}  // namespace
}  // namespace braid
