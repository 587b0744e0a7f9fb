// Files of tests: a folder of the test's own, and the one that BRAID_FIXTURES names.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sys/read.h"

namespace braid::support {

// Empty before the test and gone after it.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::filesystem::path& name, const std::string& bytes) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string read(const std::filesystem::path& path) { return sys::read_file(path); }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("braid_test_" + std::to_string(getpid()));
};

// Empty when it names none.
inline std::string fixtures() {
  const char* folder = std::getenv("BRAID_FIXTURES");
  return folder ? folder : "";
}

}  // namespace braid::support
