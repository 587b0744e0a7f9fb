#include "io/atomic_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

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

// A live writer's file is kept: it holds the lock.
TEST_F(AtomicFolderTest, AFileSweepsWhatAKilledWriterLeft) {
  const std::vector<std::string> stay = {".a.y.part", ".a.part", ".a..part", ".b.1.part", "a.1.part", ".a.1.parts"};
  for (const std::string& name : stay) write(name, "1");
  write(".a.1.part", "1");
  write(".a.22.part", "1");
  fs::create_directory(folder_ / ".a.4.part");
  fs::create_symlink("c", folder_ / ".a.5.part");
  const int lock = open(write(".a.3.part", "1").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  write_text_file(folder_ / "a", "2");
  for (const std::string& name : stay) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  EXPECT_EQ(entries(folder_), std::ssize(stay) + 4);
  close(lock);
  write_text_file(folder_ / "a", "3");
  EXPECT_FALSE(fs::exists(folder_ / ".a.3.part"));
}

TEST_F(AtomicFolderTest, AFolderOfRemnantsIsEmpty) {
  write("out/.model.safetensors.77.part", "1");
  const int lock = open((folder_ / "out/.model.safetensors.77.part").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const auto message = [&] { return support::error_of([&] { check_new_folder(folder_ / "out"); }); };
  EXPECT_NE(message().find("is not an empty folder"), std::string::npos);
  close(lock);
  write("out/notes", "1");
  EXPECT_NE(message().find("is not an empty folder"), std::string::npos);
  EXPECT_EQ(entries(folder_ / "out"), 2);
  fs::remove(folder_ / "out/notes");
  check_new_folder(folder_ / "out");
  EXPECT_TRUE(fs::is_empty(folder_ / "out"));
}

// Whenever a crash comes, one of the two is there: so it is at every moment.
TEST_F(AtomicFolderTest, ThereIsNoMomentWithoutAFolder) {
  constexpr int kFiles = 300;  // whose removal takes a while
  std::atomic<bool> done = false;
  std::atomic<int64_t> missing = 0;
  const auto replace = [&] {
    AtomicFolder folder(folder_ / "a");
    for (int i = 0; i < kFiles; ++i) write(folder.place() / std::to_string(i), "x");
    folder.commit();
  };
  replace();
  std::thread reader([&] {
    while (!done) missing += is_complete(folder_ / "a") ? 0 : 1;
  });
  for (int round = 0; round < 5; ++round) replace();
  done = true;
  reader.join();
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(entries(folder_), 1);
}

TEST_F(AtomicFolderTest, WhereNamesCannotBeExchangedTheOldOneIsPutAside) {
  write("a/old", "1");
  write(".new/new", "1");
  replace_folder(folder_ / ".new", folder_ / "a", Exchange::one_by_one);
  EXPECT_TRUE(fs::exists(folder_ / "a" / "new"));
  EXPECT_FALSE(fs::exists(folder_ / "a" / "old"));
  EXPECT_EQ(entries(folder_), 1);
  EXPECT_NE(support::error_of([&] { replace_folder(folder_ / "none", folder_ / "a", Exchange::one_by_one); }).find("a"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ / "a" / "new"));
  fs::rename(folder_ / "a", folder_ / ".a.7.old");  // a crash between the two renames
  write(".b.7.old/x", "1");                         // one after them
  write("b/y", "1");
  write(".c.x.old/x", "1");
  sweep_remnants(folder_);
  EXPECT_TRUE(fs::exists(folder_ / "a" / "new"));
  EXPECT_TRUE(fs::exists(folder_ / "b" / "y"));
  EXPECT_FALSE(fs::exists(folder_ / ".b.7.old"));
  EXPECT_TRUE(fs::exists(folder_ / ".c.x.old"));
}

// It may be a mount, or be reached by a link.
TEST_F(AtomicFolderTest, AnEmptyFolderStaysItself) {
  fs::create_directory(folder_ / "a");
  fs::create_directory_symlink("a", folder_ / "link");
  const auto node = [&] {
    struct stat info {};
    EXPECT_EQ(stat((folder_ / "a").c_str(), &info), 0);
    return info.st_ino;
  };
  const auto before = node();
  {
    AtomicFolder folder(folder_ / "link" / "", AtomicFolder::Mark::none);
    write_text_file(folder.place() / "config.json", "1");
    fs::create_directory(folder.place() / "deep");
    EXPECT_FALSE(fs::exists(folder_ / "a" / "config.json"));
    EXPECT_NE(support::error_of([&] { check_new_folder(folder_ / "a"); }).find("not an empty"), std::string::npos);
    folder.commit();
  }
  EXPECT_TRUE(fs::exists(folder_ / "a" / "config.json"));
  EXPECT_EQ(entries(folder_ / "a"), 2);
  EXPECT_EQ(entries(folder_), 2);
  EXPECT_EQ(node(), before);
}

TEST_F(AtomicFolderTest, SweepsWhatKilledWritersLeft) {
  write(".a.1.part/x", "1");
  write(".b.1.part/x", "1");
  write("c/.files.1.part/x", "1");
  AtomicFolder alive(folder_ / "a");
  EXPECT_FALSE(fs::exists(folder_ / ".a.1.part"));
  EXPECT_TRUE(fs::exists(folder_ / ".b.1.part"));
  check_new_folder(folder_ / "c");
  EXPECT_TRUE(fs::is_empty(folder_ / "c"));
  sweep_folder_parts(folder_, "a");
  sweep_remnants(folder_);
  EXPECT_TRUE(fs::exists(alive.place()));
}

// What users name replaces nothing that appeared while it was written.
TEST_F(AtomicFolderTest, AnUnmarkedFolderReplacesNoFiles) {
  const std::string message = support::error_of([&] {
    AtomicFolder folder(folder_ / "a/", AtomicFolder::Mark::none);
    write("a/mine", "1");
    folder.commit();
  });
  EXPECT_NE(message.find("cannot be renamed into place"), std::string::npos) << message;
  EXPECT_TRUE(fs::exists(folder_ / "a" / "mine"));
  EXPECT_EQ(entries(folder_), 1);
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
