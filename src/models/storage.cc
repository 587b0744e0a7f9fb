#include "models/storage.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "models/quant_format.h"

namespace braid::models {
namespace {

// What released files quantise: the large products inside layers.
bool is_quantised(ParamRole role) {
  switch (role) {
    case ParamRole::mamba_in:
    case ParamRole::mamba_out:
    case ParamRole::up:
    case ParamRole::gate:
    case ParamRole::gate_up:
    case ParamRole::down:
    case ParamRole::expert_up:
    case ParamRole::expert_gate:
    case ParamRole::expert_down:
    case ParamRole::linear_attention:
    case ParamRole::linear_mlp:
      return true;
    default:
      return false;
  }
}

// The name for codes of compressed-tensors; the plain type if they do not fit their shape.
std::string packed_name(const io::Safetensors& files, const std::string& name, const View& codes) {
  const View* scales = files.find(name + "_scale");
  const View* shape = files.find(name + "_shape");
  if (codes.dtype == DType::u8) return scales && scales->dtype == DType::u8 ? "MXFP4" : "NVFP4";
  const bool shaped = shape && shape->dtype == DType::i64 && shape->count() == 2;
  const int64_t cols = shaped ? shape->as<int64_t>()[1] : 0;
  for (const int64_t bits : {3, 4, 8}) {
    if (cols > 0 && codes.shape.rank == 2 && codes.dim(1) == (cols / 32 * bits)) return fmt::format("INT{}", bits);
  }
  return name_of(codes.dtype);
}

// The common name of a tensor's format; scales have that of their codes.
std::string format_of(const io::Safetensors& files, const io::StoredTensor& tensor) {
  std::string name = tensor.name;
  for (const std::string word : {"_scale_2", "_global_scale", "_scale", "_packed", "_shape"}) {
    if (name.ends_with(".weight" + word)) name.resize(name.size() - word.size());
  }
  if (const View* codes = files.find(name + "_packed")) return packed_name(files, name, *codes);
  const View* codes = files.find(name);
  const DType type = codes ? codes->dtype : tensor.view.dtype;
  return type == DType::u8 ? "NVFP4" : type == DType::f8_e4m3 ? "FP8" : name_of(type);
}

}  // namespace

Format stored_format(const TensorSpec& tensor, Format wanted) {
  const bool chosen = is_quantised(tensor.role) && tensor.shape.rank == 2 && !tensor.transposed && !tensor.mtp;
  if (!chosen || (wanted == Format::nvfp4 && tensor.shape[1] % kNvfp4Block != 0)) return Format::bf16;
  return wanted;
}

std::vector<io::TensorSpec> stored_tensors(const TensorSpec& tensor, Format wanted) {
  const Format format = stored_format(tensor, wanted);
  if (format == Format::nvfp4) return stored_as(tensor.name, tensor.shape, QuantFormat::nvfp4);
  if (format == Format::f8_e4m3) return stored_as(tensor.name, tensor.shape, QuantFormat::fp8);
  // The correction of the router is the one tensor that released files hold as FP32.
  return {{tensor.name, tensor.role == ParamRole::router_bias ? DType::f32 : DType::bf16, tensor.shape}};
}

std::vector<io::TensorSpec> stored_tensors(const std::vector<TensorSpec>& tensors, Format wanted) {
  std::vector<io::TensorSpec> all;
  for (const TensorSpec& tensor : tensors) {
    auto stored = stored_tensors(tensor, wanted);
    std::move(stored.begin(), stored.end(), std::back_inserter(all));
  }
  return all;
}

int64_t stored_bytes(const Config& config, Format wanted) {
  int64_t bytes = 0;
  for (const io::TensorSpec& stored : stored_tensors(inventory(config), wanted)) bytes += stored.bytes();
  return bytes;
}

std::map<std::string, int64_t> bytes_by_format(const io::Safetensors& files) {
  std::map<std::string, int64_t> bytes;
  for (const io::StoredTensor& tensor : files.tensors()) bytes[format_of(files, tensor)] += tensor.view.bytes();
  return bytes;
}

}  // namespace braid::models
