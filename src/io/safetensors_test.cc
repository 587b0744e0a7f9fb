// Every kind of damage to a header is refused with a line that names it, and valid files are read in place.
#include "io/safetensors.h"

#include <cstring>
#include <vector>

#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

using support::error_of, support::fixtures;

class SafetensorsTest : public support::FolderTest {};

std::string container(const std::string& header, const std::string& data, uint64_t length = 0) {
  const uint64_t size = length ? length : header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string header_error(const std::string& bytes) {
  // A copy of exactly this length, so that a sanitizer sees every read past its end.
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return error_of([&] { parse_safetensors(std::as_bytes(std::span(copy)), "f"); });
}

const std::string kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"a":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}}   )";

TEST_F(SafetensorsTest, ReadsInPlaceSortedByName) {
  const float values[4] = {1, 2, 3, 4};
  const auto path =
      write("m.safetensors", container(kTwo, std::string(reinterpret_cast<const char*>(values), 16) + "xyz"));
  const Safetensors file(path);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  const View b = file.need("b");
  EXPECT_EQ(b.dtype, DType::f32);
  EXPECT_EQ(b.shape, (Shape{2, 2}));
  EXPECT_EQ(element(b, 3), 4.0);
  EXPECT_EQ(element(*file.find("a"), 1), 'y');
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_NE(error_of([&] { file.need("c"); }).find("tensor c is missing"), std::string::npos);
}

TEST_F(SafetensorsTest, EmptyTensorsScalarsAndPaddingAreValid) {
  EXPECT_EQ(header_error(container("{}", "")), "");
  EXPECT_EQ(header_error(container("{}   ", "")), "");
  EXPECT_EQ(header_error(container(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234")), "");
  EXPECT_EQ(
      header_error(container(
          R"({"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"b":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
          "1")),
      "");
}

struct Damage {
  const char* header;
  size_t data;
  const char* message;
};

TEST_F(SafetensorsTest, DamagedHeadersAreNamed) {
  const Damage all[] = {
      {R"([])", 0, "does not begin with {"},
      {R"({"a":)", 0, "not valid JSON at byte"},
      {R"({} x)", 0, "not valid JSON at byte"},
      {R"({"a":5})", 0, "tensor a has a malformed entry; got 5"},
      {R"({"a":{}})", 0, "tensor a has a malformed entry"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor a has a malformed entry"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "got key dtype"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":{}}})", 4, "got key x"},
      {R"({"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,4]}})", 4, "tensor a has an unknown dtype; got Q9"},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "tensor a has a malformed entry; got 7"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "got 1.5"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "got -1"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "got a list"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "got 18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4, "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0, "impossible shape"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "too many dimensions"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "wrong size; got 4 bytes; expected 8 for F32 [2]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8,
       "wrong size; got 8 bytes; expected 4 for F32 [1]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "ends before it begins"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "a third offset"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "is truncated: tensor a"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 4,
       "is truncated"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "no tensor covers the 4 bytes before a"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "bytes after the last tensor; got 1 of them"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6, "tensors a and b overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor a is duplicated"},
      {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ is malformed"},
      {R"({"__metadata__":[]})", 0, "malformed"},
  };
  for (const Damage& d : all) {
    const std::string text = header_error(container(d.header, std::string(d.data, '1')));
    EXPECT_NE(text.find(d.message), std::string::npos) << d.header << "\n -> " << text;
  }
}

TEST_F(SafetensorsTest, LengthsAreCheckedBeforeUse) {
  EXPECT_NE(header_error("").find("truncated"), std::string::npos);
  EXPECT_NE(header_error("1234567").find("truncated"), std::string::npos);
  EXPECT_NE(header_error(container("{}", "", uint64_t{1} << 62)).find("header length is too large"), std::string::npos);
  EXPECT_NE(header_error(container("{}", "", 50)).find("expected at least 58"), std::string::npos);
  EXPECT_NE(header_error(container(std::string(400, '['), "")).find("begin with {"), std::string::npos);
  const std::string deep = R"({"a":)" + std::string(100000, '[');
  EXPECT_NE(header_error(container(deep, "")).find("tensor a"), std::string::npos);
  const std::string name(300, 'n');
  EXPECT_NE(header_error(container("{\"" + name + "\":{}}", "")).find("too long a name"), std::string::npos);
}

TEST_F(SafetensorsTest, EveryTruncationOfAFileIsRefused) {
  const std::string whole = container(kTwo, std::string(19, 'd'));
  ASSERT_EQ(header_error(whole), "");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(header_error(whole.substr(0, n)), "") << n;
  EXPECT_NE(header_error(whole.substr(0, whole.size() - 1))
                .find(fmt::format("got {} bytes; expected {}", whole.size() - 1, whole.size())),
            std::string::npos);
}

TEST_F(SafetensorsTest, HostileNamesStayOnOneLine) {
  const std::string text = header_error(container("{\"a\\n\\u001b[31m\":5}", ""));
  EXPECT_NE(text.find("a\\x0a\\x1b[31m"), std::string::npos) << text;
}

TEST_F(SafetensorsTest, UnalignedTensorsAreCopied) {
  const float value = 1.5f;
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )";
  const Safetensors file(
      write("odd.safetensors", container(header, std::string(reinterpret_cast<const char*>(&value), 4))));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.need("a").data) % 4, 0u);
  EXPECT_EQ(element(file.need("a"), 0), 1.5);
}

const std::string kOneByte = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";

TEST_F(SafetensorsTest, ShardsAreReadThroughTheIndex) {
  write("a.safetensors", container("{\"x\":" + kOneByte, "1"));
  write("b.safetensors", container("{\"y\":" + kOneByte, "2"));
  const auto index = [&](const std::string& map) {
    write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  };
  const auto message = [&] { return error_of([&] { Safetensors all(folder_); }); };

  index(R"({"y":"b.safetensors","x":"a.safetensors"})");
  const Safetensors all(folder_);
  EXPECT_EQ(element(all.need("y"), 0), '2');
  EXPECT_EQ(all.tensors().size(), 2u);

  index(R"({"y":"b.safetensors","x":"c.safetensors"})");
  EXPECT_NE(message().find("c.safetensors] is missing"), std::string::npos) << message();
  index(R"({"y":"../b.safetensors"})");
  EXPECT_NE(message().find("outside of its folder; got ../b.safetensors"), std::string::npos) << message();
  index(R"({"y":"/etc/passwd"})");
  EXPECT_NE(message().find("outside of its folder"), std::string::npos) << message();
  index(R"({"y":"b.safetensors","x":"a.safetensors","z":"b.safetensors"})");
  EXPECT_NE(message().find("tensor z of the index is not in this shard"), std::string::npos) << message();
  index(R"({"y":"b.safetensors","z":"a.safetensors"})");
  EXPECT_NE(message().find("holds tensor x, which the index does not place there"), std::string::npos) << message();
  index(R"({"y":["b.safetensors"]})");
  EXPECT_NE(message().find("/model.safetensors.index.json] weight_map"), std::string::npos) << message();
  index("7");
  EXPECT_NE(message().find("weight_map is of the wrong kind"), std::string::npos) << message();
}

TEST_F(SafetensorsTest, PlaceholdersAreNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
  const auto path = write("model.safetensors", pointer);
  const std::string text = error_of([&] { Safetensors file(path); });
  EXPECT_NE(text.find("Git-LFS pointer"), std::string::npos) << text;
  EXPECT_NE(text.find("git -C " + folder_.string() + " lfs pull"), std::string::npos) << text;
}

TEST_F(SafetensorsTest, AbsenceSaysWhatToType) {
  const auto snapshot = folder_ / "models--org--name/snapshots/abc";
  write("models--org--name/snapshots/abc/config.json", "{}");
  write("models--org--name/blobs/123.incomplete", "");
  const std::string text = error_of([&] { Safetensors file(snapshot); });
  EXPECT_NE(text.find(".incomplete"), std::string::npos) << text;
  EXPECT_NE(text.find("hf download org/name"), std::string::npos) << text;
}

TEST_F(SafetensorsTest, EveryModelFolderIsRead) {
  std::vector<std::filesystem::path> roots = {support::data("hf")};
  if (!fixtures().empty()) roots.emplace_back(fixtures() + "/hf");
  int folders = 0;
  for (const std::filesystem::path& root : roots) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      EXPECT_GT(Safetensors(entry.path()).tensors().size(), 5u) << entry.path();
      EXPECT_EQ(Safetensors(entry.path() / "golden.safetensors").need("ids@0").dtype, DType::i64);
      ++folders;
    }
  }
  EXPECT_GE(folders, 5);
}

}  // namespace
}  // namespace braid::io
