// What is written is read back, in one file and in shards, and nothing half-written is ever seen.
#include "io/safetensors_write.h"

#include "io/json.h"
#include "io/safetensors.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/read.h"

namespace braid::io {
namespace {

using support::error_of;

class SafetensorsWriteTest : public support::FolderTest {};

const std::vector<TensorSpec> kSpecs = {{"codes", DType::u8, {3}}, {"x \"quoted\"", DType::bf16, {2, 5}},
                                        {"scale", DType::f32, {}}, {"none", DType::f32, {0, 4}},
                                        {"ids", DType::i64, {2}},  {"last", DType::f8_e4m3, {7}}};

// Every byte of a tensor is the length of its name, so that a tensor in the wrong place shows.
std::vector<std::byte> bytes_of(const TensorSpec& t) {
  return std::vector<std::byte>(static_cast<size_t>(t.bytes()), static_cast<std::byte>(t.name.size()));
}

void write_all(SafetensorsWriter& writer) {
  for (const TensorSpec& t : std::vector<TensorSpec>(writer.order().begin(), writer.order().end())) {
    const auto bytes = bytes_of(t);
    const std::span all(bytes);
    if (bytes.size() > 2) writer.write(t.name, all.first(2));
    writer.write(t.name, bytes.size() > 2 ? all.subspan(2) : all);
  }
  writer.finish();
}

void expect_all(const Safetensors& file) {
  ASSERT_EQ(file.tensors().size(), kSpecs.size());
  for (const TensorSpec& t : kSpecs) {
    const View v = file.need(t.name);
    EXPECT_EQ(v.dtype, t.dtype);
    EXPECT_EQ(v.shape, t.shape);
    const auto expected = bytes_of(t);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), v.data)) << t.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(size_of(t.dtype)), 0u) << t.name;
  }
}

TEST_F(SafetensorsWriteTest, OneFileWithAlignedTensors) {
  SafetensorsWriter writer(folder_ / "state.safetensors", kSpecs);
  EXPECT_EQ(writer.order()[0].name, "ids");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "state.safetensors"));
  write_all(writer);
  expect_all(Safetensors(folder_ / "state.safetensors"));
  EXPECT_EQ(sys::read_file(folder_ / "state.safetensors").substr(8, 32), R"({"__metadata__":{"format":"pt"},)");
}

TEST_F(SafetensorsWriteTest, ShardsAndIndexThenOneFileInTheSameFolder) {
  const auto out = folder_ / "new/model";
  SafetensorsWriter sharded(out, kSpecs, 20);
  write_all(sharded);
  expect_all(Safetensors(out));
  const Json index = Json::read(out / "model.safetensors.index.json");
  EXPECT_EQ(index.need({"metadata"}).int_of({"total_size"}), 3 + 20 + 4 + 16 + 7);
  EXPECT_EQ(index.need({"weight_map"}).string_of({"codes"}), "model-00001-of-00004.safetensors");

  SafetensorsWriter single(out, kSpecs);
  write_all(single);
  EXPECT_FALSE(std::filesystem::exists(out / "model.safetensors.index.json"));
  expect_all(Safetensors(out));

  SafetensorsWriter again(out, kSpecs, 20);
  write_all(again);
  EXPECT_FALSE(std::filesystem::exists(out / "model.safetensors"));
  expect_all(Safetensors(out));
}

TEST_F(SafetensorsWriteTest, AnInterruptedWriteLeavesNoShards) {
  std::filesystem::create_directory(folder_ / "old");
  for (const char* name : {"new", "old"}) {
    SafetensorsWriter writer(folder_ / name, kSpecs, 20);
    for (const TensorSpec& t : {writer.order()[0], writer.order()[1]}) writer.write(t.name, bytes_of(t));
    EXPECT_TRUE(std::filesystem::exists(folder_ / name / "model-00001-of-00004.safetensors"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "old"));
}

TEST_F(SafetensorsWriteTest, AnInterruptedWriteLeavesTheOldFile) {
  const auto path = folder_ / "a.safetensors";
  SafetensorsWriter whole(path, {{"t", DType::u8, {4}}});
  whole.write("t", view_of(reinterpret_cast<const uint8_t*>("abcd"), {4}));
  whole.finish();
  const std::string before = sys::read_file(path);
  {
    SafetensorsWriter part(path, {{"t", DType::u8, {9}}});
    part.write("t", std::as_bytes(std::span("wxyz", 4)));
  }
  EXPECT_EQ(sys::read_file(path), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(SafetensorsWriteTest, AFolderThatCannotBeCreatedIsNamed) {
  write("file", "");
  EXPECT_NE(error_of([&] { SafetensorsWriter w(folder_ / "file/sub", kSpecs); }).find("cannot be created"),
            std::string::npos);
}

TEST_F(SafetensorsWriteTest, MistakesOfTheCallerAreBugs) {
  SafetensorsWriter writer(folder_ / "x.safetensors", {{"a", DType::u8, {1}}, {"b", DType::u8, {1}}});
  EXPECT_EXIT(writer.write("b", std::as_bytes(std::span("1", 1))), testing::ExitedWithCode(70), "out of order");
  EXPECT_EXIT(writer.write("a", std::as_bytes(std::span("12", 2))), testing::ExitedWithCode(70), "1 are left");
  EXPECT_EXIT(writer.finish(), testing::ExitedWithCode(70), "tensor a was not written");
}

}  // namespace
}  // namespace braid::io
