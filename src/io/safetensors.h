// Reading safetensors, Hugging Face's container: 8 bytes of header length, a JSON header {name: {dtype, shape,
// data_offsets}}, then the tensors back to back. The file is mapped and every view points into it; nothing is copied
// and no page of weights is touched. A file is untrusted until its header is checked against its size: see
// parse_safetensors.
//   https://github.com/huggingface/safetensors#format
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/view.h"
#include "sys/mapped_file.h"

namespace braid::io {

struct StoredTensor {
  std::string name;
  View view;
};

// The tensors of one file in memory, sorted by name; the views point into `file`. Error, naming the tensor, unless the
// header has at most 100 MB and a million entries, each with a known dtype, rank <= 8 and a size that is dtype times
// shape, and the tensors fill the rest of the file without gap or overlap.
// `hint` is what to try with a truncated file.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, const std::string& where,
                                            const char* hint = "");

// The weight files of a model folder, present or not: model.safetensors, or the shards that its index names. Empty when
// it has neither; Error when the index is malformed.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder);

// One file, or all shards of a model folder. Its views live as long as it does.
class Safetensors {
 public:
  // `path` is a .safetensors file, or a folder with model.safetensors or model.safetensors.index.json and its shards.
  explicit Safetensors(const std::filesystem::path& path);

  std::span<const StoredTensor> tensors() const { return tensors_; }  // sorted by name
  const View* find(std::string_view name) const;                      // null when there is none
  View need(std::string_view name) const;                             // Error naming it
  // The pages of a tensor that was copied elsewhere and will not be read again.
  void give_back(const View& tensor) const;

 private:
  void add_file(const std::filesystem::path& path);
  void add_shards(const std::filesystem::path& folder);

  std::string where_;
  std::vector<sys::MappedFile> files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // of tensors that old writers stored unaligned
  std::vector<StoredTensor> tensors_;
};

}  // namespace braid::io
