#include "io/gguf_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "io/gguf.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

using support::error_of;
class GgufWriteTest : public support::FolderTest {};

std::vector<std::byte> numbered(int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST_F(GgufWriteTest, WhatIsWrittenIsRead) {
  const auto path = folder_ / "a.gguf";
  const GgufFields fields = {{"general.architecture", std::string("nemotron_h")},
                             {"a.count", std::numeric_limits<uint32_t>::max()},
                             {"a.real", 0.1f},
                             {"a.yes", true},
                             {"a.list", std::vector<int32_t>{0, -1, 7}},
                             {"a.none", std::vector<int32_t>{}},
                             {"a.words", std::vector<std::string>{"", "\xc4\xa0x", std::string("\0y", 2)}}};
  const std::vector<GgufSpec> specs = {{"scalars", GgmlType::f32, {3}},  // 12 bytes: what follows is padded
                                       {"stack", GgmlType::q4_0, {2, 3, 64}},
                                       {"halves", GgmlType::f16, {5, 1}},
                                       {"big", GgmlType::q6_k, {2, 512}}};
  GgufWriter writer(path, fields, specs);
  for (const GgufSpec& spec : writer.order()) {
    const auto bytes = numbered(spec.bytes());
    writer.write(spec.name, std::span(bytes).first(5));
    writer.write(spec.name, std::span(bytes).subspan(5));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  const Gguf file(path);
  EXPECT_EQ(file.string_of("general.architecture"), "nemotron_h");
  EXPECT_EQ(file.int_of("a.count"), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(file.number_of("a.real"), static_cast<double>(0.1f));
  EXPECT_EQ(file.bool_of("a.yes"), true);
  EXPECT_EQ(file.ints_of("a.list", 3), (std::vector<int64_t>{0, -1, 7}));
  EXPECT_EQ(file.ints_of("a.none", 0), std::vector<int64_t>{});
  ASSERT_EQ(file.tensors().size(), specs.size());
  for (const GgufSpec& spec : specs) {
    const GgufTensor* tensor = file.find(spec.name);
    ASSERT_TRUE(tensor) << spec.name;
    EXPECT_EQ(tensor->type->type, spec.type);
    EXPECT_EQ(tensor->shape, spec.shape);
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, numbered(spec.bytes()))) << spec.name;
  }
}

TEST_F(GgufWriteTest, AFileMayHaveNoTensorsAndAnUnfinishedOneDoesNotAppear) {
  const auto path = folder_ / "a.gguf";
  { const GgufWriter unfinished(path, {}, {{"t", GgmlType::f32, {4}}}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  GgufWriter writer(path, {{"k", true}}, {});
  writer.finish();
  EXPECT_EQ(Gguf(path).bool_of("k"), true);
}

TEST_F(GgufWriteTest, WhatNoReaderTakesIsRefused) {
  const auto wrong = [&](const GgufFields& fields, const std::vector<GgufSpec>& specs) {
    return error_of([&] { const GgufWriter writer(folder_ / "a.gguf", fields, specs); });
  };
  const auto tensor = [&](const std::string& name, GgmlType type, const Shape& shape) {
    return wrong({}, {{name, type, shape}});
  };
  const std::pair<std::string, const char*> cases[] = {
      {wrong({{"k", true}, {"k", 1u}}, {}), "duplicate name k"},
      {wrong({{"", true}}, {}), "GGUF cannot hold the name ; got 0 bytes"},
      {tensor(std::string(64, 'a'), GgmlType::f32, {4}), "got 64 bytes; expected 1 to 63"},
      {wrong({}, {{"t", GgmlType::f32, {4}}, {"t", GgmlType::f32, {4}}}), "duplicate name t"},
      {tensor("t", GgmlType::f32, {}), "tensor t cannot be F32; got []"},
      {tensor("t", GgmlType::f32, {4, 0}), "tensor t cannot be F32; got [4, 0]"},
      {tensor("t", GgmlType::f32, {1, 1, 1, 1, 1}), "1 to 4 axes"},
      {tensor("t", GgmlType::q4_k, {256, 2688}), "the last a multiple of 256"}};
  for (const auto& [got, wanted] : cases) EXPECT_NE(got.find(wanted), std::string::npos) << got;
}

}  // namespace
}  // namespace braid::io
