// Reading GGUF, llama.cpp's container, version 3 (and 2, which reads the same): typed metadata, then a table of
// tensors, then their bytes. The file is mapped and every tensor points into it; no page of weights is touched. A model
// may be split over NAME-00001-of-00003.gguf and so on; the first part has the metadata. Files are untrusted: counts,
// lengths, offsets and sizes are checked against the file before anything is allocated.
//   https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/ggml_type.h"
#include "core/view.h"
#include "sys/mapped_file.h"

namespace braid::io {

struct GgufTensor {
  std::string name;
  const GgmlTypeRow* type = nullptr;
  Shape shape{};  // outermost first, as everywhere here; files store the reverse
  std::span<const std::byte> bytes{};
};

// Integers of every width, numbers, and lists of one type.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

struct GgufParts {
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;  // sorted by name
};
// Error, naming the key or the tensor, unless every part lies inside the file, keys and names are unique, types are
// known, and tensors are aligned and do not overlap.
GgufParts parse_gguf(std::span<const std::byte> file, const std::string& where);

class Gguf {
 public:
  // The file, or all parts if it is the first of several. Error if it is another part, if a part is missing or belongs
  // to another model, or if tensors are duplicated or missing.
  explicit Gguf(const std::filesystem::path& path);
  // `file` must outlive it.
  Gguf(std::span<const std::byte> file, std::string where);

  const std::string& where() const { return where_; }
  std::span<const GgufTensor> tensors() const { return parts_.tensors; }
  const GgufTensor* find(std::string_view name) const;  // null when there is none

  // nullopt when the key is absent; Error when its value has another type.
  std::optional<int64_t> int_of(std::string_view key) const;
  std::optional<double> number_of(std::string_view key) const;  // a finite one
  std::optional<bool> bool_of(std::string_view key) const;
  std::optional<std::string> string_of(std::string_view key) const;
  // A list, or one number that stands for all `count` entries. Error when a list has another length.
  std::optional<std::vector<int64_t>> ints_of(std::string_view key, size_t count) const;
  const std::vector<double>* numbers_of(std::string_view key) const;       // null when the key is absent
  const std::vector<std::string>* strings_of(std::string_view key) const;  // likewise
  int64_t need_int(std::string_view key) const;                            // Error naming the key when it is absent

 private:
  template <class Kind>
  const Kind* get(std::string_view key, const char* expected) const;

  std::string where_;
  void add_parts(const std::filesystem::path& first);
  void add_part(const std::filesystem::path& path, int64_t number, int64_t count);

  std::vector<sys::MappedFile> files_;
  GgufParts parts_;
};

// By the extension.
inline bool is_gguf(const std::filesystem::path& path) { return path.extension() == ".gguf"; }

}  // namespace braid::io
