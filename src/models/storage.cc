#include "models/storage.h"

#include <iterator>
#include <string_view>

#include "math/blocks.h"

namespace braid::models {
namespace {

// What released files quantise: the large products inside layers.
bool is_quantised(ParamRole role) {
  switch (role) {
    case ParamRole::mamba_in:
    case ParamRole::mamba_out:
    case ParamRole::up:
    case ParamRole::gate:
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

}  // namespace

Format stored_format(const TensorSpec& tensor, Format wanted) {
  const bool chosen = is_quantised(tensor.role) && tensor.shape.rank == 2 && !tensor.transposed && !tensor.mtp;
  if (!chosen || (wanted == Format::nvfp4 && tensor.shape[1] % kNvfp4Block != 0)) return Format::bf16;
  return wanted;
}

std::vector<io::TensorSpec> stored_as(const std::string& name, const Shape& shape, Format format) {
  if (format == Format::nvfp4)
    return {{name, DType::u8, {shape[0], shape[1] / 2}},
            {name + "_scale", DType::f8_e4m3, {shape[0], shape[1] / kNvfp4Block}},
            {name + "_scale_2", DType::f32, {}}};
  return {{name, DType::f8_e4m3, shape}, {name + "_scale", DType::f32, {}}};
}

std::vector<io::TensorSpec> stored_tensors(const TensorSpec& tensor, Format wanted) {
  const Format format = stored_format(tensor, wanted);
  if (format != Format::bf16) return stored_as(tensor.name, tensor.shape, format);
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
  for (const io::StoredTensor& tensor : files.tensors()) {
    std::string_view name = tensor.name;
    for (std::string_view suffix : {"_scale_2", "_scale"}) {
      if (name.ends_with(".weight" + std::string(suffix))) name.remove_suffix(suffix.size());
    }
    const View* codes = files.find(name);
    const DType type = codes ? codes->dtype : tensor.view.dtype;
    const char* format = type == DType::u8 ? "NVFP4" : type == DType::f8_e4m3 ? "FP8" : name_of(type);
    bytes[format] += tensor.view.bytes();
  }
  return bytes;
}

}  // namespace braid::models
