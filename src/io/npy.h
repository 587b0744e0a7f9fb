// NumPy's .npy: one array per file, little-endian, row-major. Written as float32 in pieces, since the logits of a long
// prompt may not fit in memory; read as float32, int32 or int64, the dtypes that users pass in (--ids-file).
//   https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/view.h"
#include "io/atomic_file.h"
#include "sys/mapped_file.h"

namespace braid::io {

class NpyWriter {
 public:
  NpyWriter(const std::filesystem::path& path, const Shape& shape);  // Error when the path cannot be written
  void append(std::span<const float> values);                        // row-major, in pieces of any size
  void finish();                                                     // after the last value: the file appears

 private:
  AtomicFile file_;
  int64_t left_;
};

struct NpyLayout {
  DType dtype = DType::f32;
  Shape shape{};
  int64_t offset = 0;  // bytes before the values
};

// The header of a file in memory, checked against its size. Error otherwise.
NpyLayout parse_npy(std::span<const std::byte> file, const std::string& where);

class Npy {
 public:
  explicit Npy(const std::filesystem::path& path);
  DType dtype() const { return layout_.dtype; }
  const Shape& shape() const { return layout_.shape; }
  std::vector<float> floats() const;      // Error when the file holds integers
  std::vector<int64_t> integers() const;  // int32 is widened; Error when the file holds floats

 private:
  sys::MappedFile file_;
  NpyLayout layout_;
};

}  // namespace braid::io
