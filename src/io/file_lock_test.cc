#include "io/file_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "io/atomic_file.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

TEST(FileLock, HoldsWhileTheFileIsReplaced) {
  const support::Folder folder;
  const auto file = folder.path() / "x";
  const auto second = [&] { return support::error_of([&] { const FileLock lock(file, "--file"); }); };
  write_text_file(file, "one");
  std::optional<FileLock> first(std::in_place, file, "--file");
  EXPECT_TRUE(second().starts_with("[--file] another process uses this file; got ")) << second();
  std::filesystem::rename(file, folder.path() / "old");
  write_text_file(file, "two");
  EXPECT_NE(second().find("another process uses this file"), std::string::npos) << second();
  first.reset();
  EXPECT_EQ(second(), "");  // though FILE.lock is still there
  EXPECT_NE(
      support::error_of([&] { const FileLock lock(folder.path() / "no" / "x", "--file"); }).find("cannot be locked"),
      std::string::npos);
}

}  // namespace
}  // namespace braid::io
