#include "io/atomic_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "io/atomic_file.h"
#include "sys/error.h"

namespace braid::io {
namespace {

namespace fs = std::filesystem;

class AtomicFolderTest : public testing::Test {
 protected:
  AtomicFolderTest() { fs::create_directories(root_); }
  ~AtomicFolderTest() override { fs::remove_all(root_); }
  static std::ptrdiff_t entries(const fs::path& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }
  fs::path root_ = fs::temp_directory_path() / ("braid_folder_" + std::to_string(getpid()));
};

TEST_F(AtomicFolderTest, AppearsWithItsFiles) {
  {
    AtomicFolder folder(root_ / "a");
    write_text_file(folder.place() / "x", "1");
    EXPECT_FALSE(fs::exists(root_ / "a"));
    folder.commit();
  }
  EXPECT_TRUE(is_complete(root_ / "a"));
  EXPECT_TRUE(fs::exists(root_ / "a" / "x"));
  EXPECT_EQ(entries(root_), 1);
}

TEST_F(AtomicFolderTest, WithoutCommitNothingChanges) {
  try {
    AtomicFolder folder(root_ / "a");
    write_text_file(folder.place() / "x", "1");
    fail("test", {.what = "disk full"});
  } catch (const Error&) {
  }
  EXPECT_EQ(entries(root_), 0);
}

TEST_F(AtomicFolderTest, ReplacesAndSweeps) {
  for (const char* text : {"1", "2"}) {
    AtomicFolder folder(root_ / "a");
    write_text_file(folder.place() / text, text);
    folder.commit();
  }
  EXPECT_TRUE(fs::exists(root_ / "a" / "2"));
  EXPECT_FALSE(fs::exists(root_ / "a" / "1"));
  fs::create_directories(root_ / ".b.1.part" / "deep");
  fs::create_directories(root_ / "c");
  sweep_remnants(root_);
  EXPECT_FALSE(fs::exists(root_ / ".b.1.part"));
  EXPECT_FALSE(is_complete(root_ / "c"));
  EXPECT_EQ(entries(root_), 2);
}

}  // namespace
}  // namespace braid::io
