// What the tests of this room share: a folder of their own, damaged files written by hand, and the message of an error.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sys/error.h"

namespace braid::io {

class IoTest : public testing::Test {
 protected:
  IoTest() { std::filesystem::create_directories(folder_); }
  ~IoTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::filesystem::path& name, const std::string& bytes) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("braid_io_" + std::to_string(getpid()));
};

// The text of the Error that `work` throws; empty when it throws none.
template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

inline std::string fixtures() {
  const char* folder = std::getenv("BRAID_FIXTURES");
  return folder ? folder : "";
}

}  // namespace braid::io
