// Writing GGUF version 3 (io/gguf.h reads it). Names, types and shapes are known before the first byte, so the tensors
// stream through one by one and a file far larger than memory can be written; it appears whole or not at all. What a
// reader would refuse (names too long or duplicated, rows that are not whole blocks) is refused before anything is
// written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/ggml_type.h"
#include "core/view.h"
#include "io/atomic_file.h"

namespace braid::io {

struct GgufSpec {
  static constexpr size_t kNameBytesMax = 63;  // of a tensor, in llama.cpp

  std::string name;
  GgmlType type = GgmlType::f32;
  Shape shape{};  // outermost first; one to four axes, rows of whole blocks

  int64_t bytes() const;
};

// Types that llama.cpp expects: counts are u32, lists of integers i32.
using GgufField = std::variant<bool, uint32_t, float, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufFields = std::vector<std::pair<std::string, GgufField>>;  // in the order of the file

class GgufWriter {
 public:
  // Error for a name or a shape that GGUF cannot store.
  GgufWriter(const std::filesystem::path& path, const GgufFields& fields, std::vector<GgufSpec> specs);

  std::span<const GgufSpec> order() const { return specs_; }
  // The next bytes of tensor `name`, which may come in pieces; tensors come in order.
  void write(std::string_view name, std::span<const std::byte> bytes);
  void finish();  // after the last tensor: the file appears

 private:
  void pad();

  std::string where_;
  std::vector<GgufSpec> specs_;
  AtomicFile file_;
  int64_t written_ = 0, left_ = 0;  // bytes of the file; still to come of specs_[next_]
  size_t next_ = 0;
};

}  // namespace braid::io
