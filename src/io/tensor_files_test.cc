// Files that are laid out and then filled in any order have the bytes of files that are written from the front.
#include "io/tensor_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "io/safetensors_write.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/read.h"

namespace braid::io {
namespace {

namespace fs = std::filesystem;

class TensorFilesTest : public support::FolderTest {
 protected:
  const std::vector<TensorSpec> specs_ = {{"codes", DType::u8, {3}},     {"x \"quoted\"", DType::bf16, {2, 5}},
                                          {"scale", DType::f32, {}},     {"none", DType::f32, {0, 4}},
                                          {"rows", DType::f32, {5, 20}}, {"last", DType::bf16, {7}}};

  static std::vector<std::byte> bytes_of(const TensorSpec& t) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(t.name.size() * 31 + i * 7);
    return bytes;
  }

  void write(const fs::path& path, int64_t shard_bytes) const {
    SafetensorsWriter writer(path, specs_, shard_bytes);
    for (const TensorSpec& t : std::vector<TensorSpec>(writer.order().begin(), writer.order().end()))
      writer.write(t.name, bytes_of(t));
    writer.finish();
  }

  // Each tensor by two of three writers, the last elements first.
  void fill(const fs::path& path, int64_t shard_bytes) const {
    lay_out_safetensors(path, specs_, shard_bytes);
    TensorFiles writers[] = {TensorFiles(path), TensorFiles(path), TensorFiles(path)};
    for (size_t i = 0; i < specs_.size(); ++i) {
      const auto bytes = bytes_of(specs_[i]);
      const int64_t size = size_of(specs_[i].dtype), half = specs_[i].shape.count() / 2;
      const auto cut = static_cast<size_t>(half * size);
      TensorFiles &a = writers[i % 3], &b = writers[(i + 1) % 3];
      a.write(a.need(specs_[i].name), half, std::span(bytes).subspan(cut));
      b.write(b.need(specs_[i].name), 0, std::span(bytes).first(cut));
    }
    for (TensorFiles& writer : writers) writer.flush();
  }

  std::vector<std::pair<std::string, std::string>> files_of(const fs::path& folder) const {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& entry : fs::directory_iterator(folder))
      files.emplace_back(entry.path().filename().string(), sys::read_file(entry.path()));
    std::sort(files.begin(), files.end());
    return files;
  }
};

TEST_F(TensorFilesTest, HaveTheBytesOfAWriter) {
  for (const int64_t shard_bytes : {int64_t{20}, int64_t{200}, kShardBytes}) {
    const fs::path want = folder_ / fmt::format("want-{}", shard_bytes),
                   got = folder_ / fmt::format("got-{}", shard_bytes);
    write(want, shard_bytes);
    fill(got, shard_bytes);
    EXPECT_EQ(files_of(got), files_of(want));
    EXPECT_EQ(files_of(got).size(), shard_bytes == 20 ? 6u : shard_bytes == 200 ? 4u : 1u);
  }
  write(folder_ / "want.safetensors", kShardBytes);
  fill(folder_ / "got.safetensors", kShardBytes);
  EXPECT_EQ(sys::read_file(folder_ / "got.safetensors"), sys::read_file(folder_ / "want.safetensors"));
}

TEST_F(TensorFilesTest, RoomIsAskedForFirst) {
  const auto limited = [&](int64_t bytes, const char* file) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = support::error_of([&] { lay_out_safetensors(folder_ / file, specs_); });
    std::fputs(error.c_str(), stderr);
    std::exit(0);
  };
  EXPECT_EXIT(limited(400, "x.safetensors"), testing::ExitedWithCode(0),
              "x.safetensors. cannot be written; got File too large");
}

TEST_F(TensorFilesTest, AFileThatIsNotThere) {
  EXPECT_NE(support::error_of([&] { TensorFiles files(folder_ / "no.safetensors"); }).find("no.safetensors"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::io
