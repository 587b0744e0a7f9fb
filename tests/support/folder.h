// Files of tests: a temporary folder, and the one that BRAID_FIXTURES names.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "sys/check.h"

namespace braid::support {

// A temporary folder, empty at first; removed with this object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "braid_test_XXXXXX").string();
    CHECK(mkdtemp(name.data()), "{}", name);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::filesystem::path& name, const std::string& bytes) const {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  std::filesystem::path path_;
};

// Every test of the class has a folder.
class FolderTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::filesystem::path& name, const std::string& bytes) const {
    return temporary_.write(name, bytes);
  }

 private:
  const Folder temporary_;

 protected:
  const std::filesystem::path folder_ = temporary_.path();
};

// The folder in BRAID_FIXTURES; empty if unset.
inline std::string fixtures() {
  const char* folder = std::getenv("BRAID_FIXTURES");
  return folder ? folder : "";
}

}  // namespace braid::support
