// A Hugging Face folder as a GGUF file that llama.cpp runs: its tensors under llama.cpp's names, in a type that is
// chosen for all large matrices. Norms, convolutions, routers and other small tensors stay F32, A_log becomes
// -exp(A_log), the experts of a layer are one stack, and the two halves of each head of Llama's queries and keys
// alternate. A matrix whose rows a type cannot hold gets the nearest one that can.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ggml_type.h"
#include "io/gguf_write.h"
#include "io/model_path.h"
#include "models/load.h"
#include "sys/function_ref.h"

namespace braid::models {

struct GgufOptions {
  GgmlType type = GgmlType::bf16;
  std::optional<GgmlType> head{};  // by default `type`, and at least Q6_K where that has fewer bits
  bool strict = false;             // a matrix that its type cannot hold is an Error
  int threads = 1;
};

class GgufExport {
 public:
  struct Tensor {
    io::GgufSpec spec;
    bool matrix = false;
    int64_t paired = 0;               // rows of a head whose halves alternate in the file; 0: as they are
    GgmlType wanted = GgmlType::f32;  // differs from the spec's where rows are not whole blocks
    std::vector<std::pair<ParamRole, Weight>> parts{};  // experts of a stack, else one; of scales, none
    std::vector<float> values{};                        // of a tensor that the folder lacks

    bool widened() const;  // quantised in the folder, BF16 in the file
  };

  // Error when GGUF has no place for something of the model.
  GgufExport(const io::ModelPath& model, const GgufOptions& options);

  const Config& config() const { return config_; }
  const std::string& architecture() const { return architecture_; }
  std::span<const Tensor> tensors() const { return tensors_; }
  // What the file leaves out, one sentence each.
  std::span<const std::string> notes() const { return notes_; }
  int64_t bytes() const;  // of all tensors

  // Writes the file, with fields of the vocabulary after the model's. `progress` gets the bytes so far; returning false
  // stops. Returns whether all was written.
  bool write(const std::filesystem::path& path, const io::GgufFields& vocabulary,
             const sys::FunctionRef<bool(int64_t)>& progress) const;

 private:
  void add(Tensor tensor);
  void add_zero_biases();
  void plan(std::span<const std::pair<nn::ParamRequest, Weight>> params);
  int64_t paired(std::string_view released) const;
  GgmlType type_for(const nn::ParamRequest& request) const;

  io::ModelPath model_;
  GgufOptions options_;
  Config config_;
  OpenFolder folder_;
  std::string architecture_;
  io::GgufFields fields_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace braid::models
