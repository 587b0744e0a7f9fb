#include "io/atomic_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/atomic_file.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/error.h"

namespace braid::io {
namespace {

namespace fs = std::filesystem;

class AtomicFolderTest : public support::FolderTest {
 protected:
  static std::ptrdiff_t entries(const fs::path& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }
};

TEST_F(AtomicFolderTest, AppearsWithItsFiles) {
  {
    AtomicFolder folder(folder_ / "a");
    write_text_file(folder.place() / "x", "1");
    EXPECT_FALSE(fs::exists(folder_ / "a"));
    folder.commit();
  }
  EXPECT_TRUE(is_complete(folder_ / "a"));
  EXPECT_TRUE(fs::exists(folder_ / "a" / "x"));
  EXPECT_EQ(entries(folder_), 1);
}

TEST_F(AtomicFolderTest, APipeIsNotReplacedByAFile) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(support::error_of([&] { write_text_file(pipe, "1"); }).find("is not a regular file"), std::string::npos);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(entries(folder_), 1);
}

TEST_F(AtomicFolderTest, WithoutCommitNothingChanges) {
  support::error_of([&] {
    AtomicFolder folder(folder_ / "a");
    write_text_file(folder.place() / "x", "1");
    fail("test", {.what = "disk full"});
  });
  EXPECT_EQ(entries(folder_), 0);
}

TEST_F(AtomicFolderTest, ReplacesAndSweeps) {
  for (const char* text : {"1", "2"}) {
    AtomicFolder folder(folder_ / "a");
    write_text_file(folder.place() / text, text);
    folder.commit();
  }
  EXPECT_TRUE(fs::exists(folder_ / "a" / "2"));
  EXPECT_FALSE(fs::exists(folder_ / "a" / "1"));
  fs::create_directories(folder_ / ".b.1.part" / "deep");
  fs::create_directories(folder_ / "c");
  sweep_remnants(folder_);
  EXPECT_FALSE(fs::exists(folder_ / ".b.1.part"));
  EXPECT_FALSE(is_complete(folder_ / "c"));
  EXPECT_EQ(entries(folder_), 2);
}

}  // namespace
}  // namespace braid::io
