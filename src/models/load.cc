#include "models/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>

#include "codec/nvfp4.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "models/compressed_weight.h"
#include "models/family.h"
#include "models/folder_config.h"
#include "models/gguf.h"
#include "models/inventory.h"
#include "models/quant_check.h"
#include "sys/error.h"

namespace braid::models {
namespace {

const std::string kPacked = "_packed";  // what compressed-tensors adds to the name of a matrix

class FileSource final : public nn::ParamSource {
 public:
  // Data derived from the bytes of `weights` goes into the store.
  FileSource(WeightStore& store, const io::Safetensors& weights, std::string where)
      : store_(store), weights_(weights), where_(std::move(where)) {}

  bool has(const std::string& name) const override { return find(name).view || find(name + kPacked).view; }

  // One number, or one for each head: the largest then, which loses nothing but the range of small values that a
  // smaller one would add.
  float cache_factor(const std::string& name) const override {
    const View* stored = find(name).view;
    if (!stored) return 1;
    if (stored->dtype != DType::f32 && stored->dtype != DType::f16 && stored->dtype != DType::bf16)
      wrong_type(name, *stored, "F32, F16 or BF16");
    if (stored->count() < 1 || stored->count() > Ranges::heads.max)
      fail(where_, {.what = "scale " + name + " is not one number", .got = to_string(stored->shape)});
    float largest = 0;
    for (int64_t i = 0; i < stored->count(); ++i)
      largest = std::max(largest, checked_scale(name, static_cast<float>(element(*stored, i))));
    return largest;
  }

  Param first(const nn::ParamRequest& r) override {
    if (const StoredAs packed = find(r.name + kPacked); packed.view && !r.transposed && r.shape.rank == 2) {
      const std::string name = packed.name.substr(0, packed.name.size() - kPacked.size());
      Param p = r.param(compressed_weight(store_, weights_, where_, name, r.rows(), r.cols()));
      p.name = name;
      return p;
    }
    const View& stored = need(r.name);
    Param p = r.param(is_matrix(r.role) ? matrix(r, stored) : vector(r, stored));
    p.name = find(r.name).name;
    return p;
  }

 private:
  Weight matrix(const nn::ParamRequest& r, const View& stored) {
    const bool plain = !r.transposed && r.shape.rank == 2;
    switch (stored.dtype) {
      case DType::f8_e4m3:
        if (plain) return fp8(r, stored);
        break;
      case DType::u8:
        if (plain) return nvfp4(r, stored);
        break;
      case DType::f32:
      case DType::f16:
      case DType::bf16:
        check_shape(r.name, stored, r.shape, r.keys);
        return dense_weight(r.transposed ? transposed(stored) : View(stored.data, stored.dtype, {r.rows(), r.cols()}));
      default:
        break;
    }
    wrong_type(r.name, stored, plain ? "F32, F16, BF16, F8_E4M3 or packed U8" : "F32, F16 or BF16");
  }

  View transposed(const View& stored) {
    const int64_t size = size_of(stored.dtype), rows = stored.dim(1), cols = stored.dim(0);
    const MutView transposed = store_.make(stored.dtype, {rows, cols});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        std::copy_n(stored.data + (c * rows + r) * size, size, transposed.data + (r * cols + c) * size);
    }
    return transposed;
  }

  Weight vector(const nn::ParamRequest& r, const View& stored) {
    if (stored.dtype != DType::f32 && stored.dtype != DType::f16 && stored.dtype != DType::bf16)
      wrong_type(r.name, stored, "F32, F16 or BF16");
    check_shape(r.name, stored, r.shape, r.keys);
    const MutView values = store_.make(DType::f32, {r.rows(), r.cols()});
    for (int64_t i = 0; i < stored.count(); ++i)
      values.as<float>()[i] = static_cast<float>(element(stored, i)) + r.plus;
    return dense_weight(values);
  }

  StoredAs find(const std::string& name) const { return find_stored(weights_, name); }

  const View& need(const std::string& name) const {
    const View* view = find(name).view;
    if (!view) fail(where_, {.what = "tensor " + name + " is missing", .hint = "loading the whole folder again"});
    return *view;
  }

  void check_shape(const std::string& name, const View& stored, const Shape& shape, const char* keys) const {
    if (stored.shape == shape) return;
    fail(where_, {.what = "tensor " + name + " has the wrong shape",
                  .got = to_string(stored.shape),
                  .expected = fmt::format("{} from {} in config.json", to_string(shape), keys)});
  }

  [[noreturn]] void wrong_type(const std::string& name, const View& stored, const char* expected) const {
    fail(where_,
         {.what = "tensor " + name + " has the wrong type", .got = name_of(stored.dtype), .expected = expected});
  }
  // The scale of a whole tensor: above 0, but for a tensor of zeros, of which any will do. `magnitude` are the bits of
  // a byte of codes that are 0 in zeros of either sign.
  float scalar(const std::string& name, const View& codes, uint8_t magnitude) const {
    const View& stored = need(name);
    const bool floats = stored.dtype == DType::f32 || stored.dtype == DType::bf16 || stored.dtype == DType::f16;
    if (!floats || stored.count() != 1)
      fail(where_, {.what = "scale " + name + " is not one number" +
                            (stored.count() > 1 ? ": scales of rows or blocks are not read" : ""),
                    .got = fmt::format("{} {}", name_of(stored.dtype), to_string(stored.shape)),
                    .expected = "F32, BF16 or F16 [], one for the whole tensor"});
    const auto value = static_cast<float>(element(stored, 0));
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes.data);
    if (value == 0 && std::all_of(bytes, bytes + codes.bytes(), [&](uint8_t b) { return (b & magnitude) == 0; }))
      return 1;
    return checked_scale(name, value);
  }
  float checked_scale(const std::string& name, float value) const {
    if (!(value > 0) || std::isinf(value))
      fail(where_,
           {.what = "scale " + name + " is damaged", .got = std::to_string(value), .expected = "a number above 0"});
    return value;
  }

  Weight fp8(const nn::ParamRequest& r, const View& stored) const {
    check_shape(r.name, stored, r.shape, r.keys);
    return {.rows = r.rows(),
            .cols = r.cols(),
            .spec = {.format = Format::f8_e4m3},
            .codes = stored,
            .global = scalar(r.name + "_scale", stored, 0x7f)};
  }

  Weight nvfp4(const nn::ParamRequest& r, const View& stored) const {
    const int64_t rows = r.rows(), cols = r.cols();
    if (cols % kNvfp4Block != 0)
      fail(where_, {.what = "tensor " + r.name + " is packed as NVFP4, but its rows are not a multiple of 16",
                    .got = std::to_string(cols)});
    check_shape(r.name, stored, {rows, cols / 2}, r.keys);
    const View& scales = need(r.name + "_scale");
    if (scales.dtype != DType::f8_e4m3) wrong_type(r.name + "_scale", scales, "F8_E4M3");
    check_shape(r.name + "_scale", scales, {rows, cols / kNvfp4Block}, r.keys);
    check_scales(where_, r.name + "_scale", scales);  // a sixteenth as many as codes: little to read
    return {.rows = rows,
            .cols = cols,
            .spec = {.format = Format::nvfp4, .block = kNvfp4Block},
            .codes = stored,
            .scales = scales,
            .global = scalar(r.name + "_scale_2", stored, 0x77)};
  }

  WeightStore& store_;
  const io::Safetensors& weights_;
  std::string where_;
};

// FP8 keys and values, as ModelOpt or compressed-tensors say it. Caches of other formats that it knows are ignored: all
// of them only save memory.
bool has_fp8_cache(const io::Json& quantisation) {
  const auto algorithm = quantisation.get({"kv_cache_quant_algo"});
  if (algorithm && algorithm->is_string() && algorithm->as_string() == "FP8") return true;
  const auto scheme = quantisation.get({"kv_cache_scheme"});
  return scheme && scheme->is_object() && scheme->int_of({"num_bits"}) == 8 && scheme->string_of({"type"}) == "float";
}

// Where a stored tensor lies: the name of a list of layers, and the layer in it; -1: in none.
struct InList {
  std::string_view list{};
  int64_t layer = -1;
};
InList list_of(std::string_view name) {
  for (const std::string_view list : {"layers.", "h."}) {
    const size_t at = name.find(list);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    InList found{.list = name.substr(0, at + list.size())};
    (void)std::from_chars(name.data() + found.list.size(), name.data() + name.size(), found.layer);
    return found;
  }
  return {};
}

// Error for a weight or bias in a layer that the config does not imply: it would be missing in silence. Scales,
// buffers, the prediction block and whatever lies elsewhere (the towers of other modalities have lists of layers, too)
// may be there.
void check_places(const io::ModelPath& path, const io::Safetensors& files, const FileSource& source) {
  const Config config = read_config(folder_config(path));
  std::set<std::string> known;
  std::set<std::string, std::less<>> lists;
  for (const TensorSpec& t : stored_inventory(config, source)) {
    const std::string& name = *known.insert(find_stored(files, t.name).name).first;
    lists.emplace(list_of(name).list);
  }
  for (const io::StoredTensor& tensor : files.tensors()) {
    const std::string_view name = tensor.name;
    const bool weighs = name.ends_with(".weight") || name.ends_with("_proj") || name.ends_with(".bias");
    if (!weighs || name.ends_with(".attn.bias") || known.contains(tensor.name)) continue;  // GPT-2's mask
    const auto [list, layer] = list_of(name);
    if (layer < 0 || layer >= std::ssize(config.layers) || !lists.contains(list) || list.find("mtp.") != list.npos)
      continue;
    fail(printable(path.name),
         {.what = fmt::format("tensor {} has no place in the model of config.json", printable(name)),
          .hint = "the config.json of these weights"});
  }
}

}  // namespace

Config load_config(const io::ModelPath& path) {
  if (path.is_gguf()) {
    const io::Gguf file(path.weights);
    Config config = read_config(gguf_config(file));
    check_gguf_tensors(file, config);
    return config;
  }
  const io::Json json = folder_config(path);
  Config config = read_config(json);
  const auto read = [&](const io::Json& quantisation) {
    check_quantisation(quantisation);
    if (has_fp8_cache(quantisation)) config.kv_cache = DType::f8_e4m3;
  };
  if (const auto q = json.get({"quantization_config"})) read(*q);
  if (const auto file = path.folder / "hf_quant_config.json"; std::filesystem::exists(file)) {
    if (const auto q = io::Json::read(file).get({"quantization"})) read(*q);
  }
  const auto file = path.folder / "generation_config.json";
  if (!std::filesystem::exists(file)) return config;
  add_ends(io::Json::read(file), config.eos);
  return config;
}

OpenFolder open_folder(const io::ModelPath& path) {
  auto store = std::make_shared<WeightStore>();
  if (path.is_gguf()) {
    const auto file = std::make_shared<const io::Gguf>(path.weights);
    store->keep(file);
    auto source = gguf_source(*store, *file);
    return {std::move(store), std::move(source)};
  }
  const auto weights = std::make_shared<const io::Safetensors>(path.weights);
  store->keep(weights);
  auto source = std::make_unique<FileSource>(*store, *weights, path.name);
  check_places(path, *weights, *source);
  return {std::move(store), std::move(source)};
}

std::unique_ptr<Model> load_model(const io::ModelPath& path) {
  Config config = load_config(path);
  OpenFolder folder = open_folder(path);
  auto model = std::make_unique<Model>(std::move(config), *folder.source);
  model->store = std::move(folder.store);
  return model;
}

}  // namespace braid::models
