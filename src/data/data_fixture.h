// What the tests of this room share: a folder of their own, small files, and the message of an error.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sys/error.h"

namespace braid::data {

class DataTest : public testing::Test {
 protected:
  DataTest() { std::filesystem::create_directories(folder_); }
  ~DataTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::filesystem::path& name, const std::string& bytes) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("braid_data_" + std::to_string(getpid()));
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

}  // namespace braid::data
