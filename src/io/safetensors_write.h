// Writing safetensors as transformers does: model.safetensors, or shards of about 5 GB and their index. Shapes are
// known before the first byte, so the tensors stream through one by one and a model far larger than memory can be
// written. Every file appears whole or not at all (atomic_file.h), the index last; without finish() what was
// written to a folder is removed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/view.h"
#include "io/atomic_file.h"

namespace braid::io {

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape{};

  int64_t bytes() const { return shape.count() * size_of(dtype); }
};

// As check_new_file; also Error if `path` has another extension (as a folder it would replace the model in it), or if
// the file would be read in place of a model's shards.
void check_tensor_file(const std::filesystem::path& path);

constexpr int64_t kShardBytes = 5'000'000'000;

// The files of some tensors: of one file or of shards, each with its own tensors by descending element size, which
// keeps all aligned.
struct TensorFilePlan {
  struct File {
    size_t begin = 0, end = 0;  // of specs
    std::string name;
  };
  std::filesystem::path folder{};
  std::vector<TensorSpec> specs{};
  std::vector<File> files{};

  std::span<const TensorSpec> tensors(const File& file) const {
    return std::span(specs).subspan(file.begin, file.end - file.begin);
  }
};

// Creates the same files as the writer below, headers, index and all, with zeros in the place of the tensors, whose
// bytes then come in any order (tensor_files.h). `path` as there, where nothing of these names is in use. Error where
// the disk has no room for them, if the file system can tell.
void lay_out_safetensors(const std::filesystem::path& path, std::vector<TensorSpec> specs,
                         int64_t shard_bytes = kShardBytes);

class SafetensorsWriter {
 public:
  // `path` is one file when it ends in .safetensors, else a folder, which is created. Names are distinct.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> specs,
                    int64_t shard_bytes = kShardBytes);

  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  // The order in which the tensors must come.
  std::span<const TensorSpec> order() const { return plan_.specs; }
  // The next bytes of tensor `name`, which may come in pieces; an empty tensor is written once with none.
  void write(std::string_view name, std::span<const std::byte> bytes);
  void write(std::string_view name, const View& view);  // the whole of a contiguous tensor
  void finish();                                        // after the last tensor: the last file and the index appear

 private:
  void open_file();

  bool folder_is_model_, folder_is_new_ = false, finished_ = false;
  TensorFilePlan plan_;
  std::unique_ptr<AtomicFile> file_;  // of plan_.files[number_]
  size_t number_ = 0, next_ = 0;
  int64_t left_ = 0;  // bytes of plan_.specs[next_]
};

}  // namespace braid::io
