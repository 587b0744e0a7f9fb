// The files of lay_out_safetensors, open for writing: any process that sees them writes some elements of some tensors,
// in any order, and flushes what it wrote. Processes never write the same bytes, so none waits for another.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/view.h"

namespace braid::io {

class TensorFiles {
 public:
  struct Place {
    size_t file = 0;
    int64_t at = 0;  // in bytes
    DType dtype = DType::f32;
    Shape shape{};
  };

  // `path` as it was laid out. Error if a file cannot be opened.
  explicit TensorFiles(const std::filesystem::path& path);
  TensorFiles(const TensorFiles&) = delete;
  TensorFiles& operator=(const TensorFiles&) = delete;
  ~TensorFiles();

  const Place& need(std::string_view name) const;
  // From element `at` of a tensor on. Error, as on a full disk, naming the file.
  void write(const Place& tensor, int64_t at, std::span<const std::byte> bytes);
  void flush();  // what was written is on disk

 private:
  struct File {
    std::filesystem::path path;
    int fd;
  };
  void open_file(const std::filesystem::path& path);
  [[noreturn]] static void fail_at(const File& file, const char* what);

  std::vector<File> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace braid::io
