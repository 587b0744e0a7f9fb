#include "models/storage.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace braid::models {
namespace {

constexpr int64_t kBlock = 16;  // values of NVFP4 that share a scale
constexpr std::array<std::string_view, 7> kQuantised = {"in_proj",   "out_proj",    "up_proj",   "down_proj",
                                                        "gate_proj", "linear_attn", "linear_mlp"};

// up_proj of backbone.layers.1.mixer.up_proj.weight
std::string_view leaf_of(std::string_view name) {
  if (!name.ends_with(".weight")) return {};
  name.remove_suffix(std::string_view(".weight").size());
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

Format stored_format(const TensorSpec& tensor, Format wanted) {
  const bool chosen = tensor.matrix && tensor.shape.rank == 2 && !tensor.name.starts_with("mtp.") &&
                      std::find(kQuantised.begin(), kQuantised.end(), leaf_of(tensor.name)) != kQuantised.end();
  if (!chosen || (wanted == Format::nvfp4 && tensor.shape[1] % kBlock != 0)) return Format::bf16;
  return wanted;
}

std::vector<io::TensorSpec> stored_tensors(const TensorSpec& tensor, Format wanted) {
  const std::string& name = tensor.name;
  switch (stored_format(tensor, wanted)) {
    case Format::nvfp4:
      return {{name, DType::u8, {tensor.shape[0], tensor.shape[1] / 2}},
              {name + "_scale", DType::f8_e4m3, {tensor.shape[0], tensor.shape[1] / kBlock}},
              {name + "_scale_2", DType::f32, {}}};
    case Format::f8_e4m3:
      return {{name, DType::f8_e4m3, tensor.shape}, {name + "_scale", DType::f32, {}}};
    default:  // the correction of the router is the one tensor that released files hold as FP32
      return {{name, name.ends_with("e_score_correction_bias") ? DType::f32 : DType::bf16, tensor.shape}};
  }
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
