#include "models/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>

#include "io/json.h"
#include "io/safetensors.h"
#include "models/family.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// How files spell the beginning of a name that a family file spells as in the first column.
constexpr std::array<std::array<const char*, 5>, 3> kPrefixes = {{
    {"backbone.", "model.", "language_model.backbone.", "language_model.model.", nullptr},
    {"model.", "language_model.model.", nullptr, nullptr, nullptr},
    {"transformer.", "", nullptr, nullptr, nullptr},
}};

// What the parameters of a loaded model point into.
struct Files {
  explicit Files(const std::filesystem::path& path) : weights(path) {}
  io::Safetensors weights;
  std::deque<std::vector<float>> vectors;     // small parameters as FP32
  std::deque<std::vector<std::byte>> turned;  // matrices that were stored transposed
};

class FileSource final : public nn::ParamSource {
 public:
  FileSource(Files& files, std::string where) : files_(files), where_(std::move(where)) {}

  bool has(const std::string& name) const override { return find(name).view != nullptr; }

  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    const View& stored = need(name);
    Param p;
    p.name = find(name).name;
    switch (stored.dtype) {
      case DType::f32:
      case DType::f16:
      case DType::bf16:
        check_shape(name, stored, {rows, cols}, keys);
        p.value = dense_weight(stored);
        break;
      case DType::f8_e4m3:
        p.value = fp8(name, stored, rows, cols, keys);
        break;
      case DType::u8:
        p.value = nvfp4(name, stored, rows, cols, keys);
        break;
      default:
        wrong_type(name, stored, "F32, F16, BF16, F8_E4M3 or packed U8");
    }
    return p;
  }

  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    const View& stored = need(name);
    check_shape(name, stored, {cols, rows}, keys);
    const int64_t size = size_of(stored.dtype);
    auto& bytes = files_.turned.emplace_back(static_cast<size_t>(stored.bytes()));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        std::copy_n(stored.data + (c * rows + r) * size, size, bytes.data() + (r * cols + c) * size);
    }
    Param p;
    p.name = find(name).name;
    p.value = dense_weight(View(bytes.data(), floating(name, stored).dtype, {rows, cols}));
    return p;
  }

  Param vector(const std::string& name, const Shape& shape, const char* keys, float plus) override {
    const View& stored = floating(name, need(name));
    check_shape(name, stored, shape, keys);
    auto& values = files_.vectors.emplace_back(static_cast<size_t>(stored.count()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(element(stored, static_cast<int64_t>(i))) + plus;
    const int64_t rows = shape.rank > 1 ? shape[0] : 1;
    Param p;
    p.name = find(name).name;
    p.value = dense_weight(view_of(values.data(), {rows, shape.count() / rows}));
    return p;
  }

  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                             const char* keys) override {
    const View& stored = floating(name, need(name));
    check_shape(name, stored, {count, rows, cols}, keys);
    std::vector<Param> list;
    for (int64_t i = 0; i < count; ++i) {
      const View one(stored.data + i * rows * cols * size_of(stored.dtype), stored.dtype, {rows, cols});
      list.push_back({.name = fmt::format("{}[{}]", find(name).name, i), .value = dense_weight(one)});
    }
    return list;
  }

 private:
  struct Found {
    const View* view = nullptr;  // null: there is no such tensor
    std::string name{};          // as the files spell it
  };
  Found find(const std::string& name) const {
    if (const View* view = files_.weights.find(name)) return {view, name};
    for (const auto& spellings : kPrefixes) {
      if (!name.starts_with(spellings[0])) continue;
      for (size_t i = 1; i < spellings.size() && spellings[i]; ++i) {
        std::string other = spellings[i] + name.substr(std::string_view(spellings[0]).size());
        if (const View* view = files_.weights.find(other)) return {view, std::move(other)};
      }
    }
    return {};
  }

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
  const View& floating(const std::string& name, const View& stored) const {
    if (stored.dtype != DType::f32 && stored.dtype != DType::f16 && stored.dtype != DType::bf16)
      wrong_type(name, stored, "F32, F16 or BF16");
    return stored;
  }

  float scalar(const std::string& name) const {
    const View& stored = need(name);
    if (stored.dtype != DType::f32 || stored.count() != 1)
      fail(where_, {.what = "scale " + name + " is not one number",
                    .got = fmt::format("{} {}", name_of(stored.dtype), to_string(stored.shape)),
                    .expected = "F32 []"});
    return *stored.as<float>();
  }

  Weight fp8(const std::string& name, const View& stored, int64_t rows, int64_t cols, const char* keys) const {
    check_shape(name, stored, {rows, cols}, keys);
    return {.rows = rows,
            .cols = cols,
            .spec = {.format = Format::f8_e4m3},
            .codes = stored,
            .global = scalar(name + "_scale")};
  }

  Weight nvfp4(const std::string& name, const View& stored, int64_t rows, int64_t cols, const char* keys) const {
    constexpr int64_t kBlock = 16;
    if (cols % kBlock != 0)
      fail(where_, {.what = "tensor " + name + " is packed as NVFP4, but its rows are no multiple of 16",
                    .got = std::to_string(cols)});
    check_shape(name, stored, {rows, cols / 2}, keys);
    const View& scales = need(name + "_scale");
    if (scales.dtype != DType::f8_e4m3) wrong_type(name + "_scale", scales, "F8_E4M3");
    check_shape(name + "_scale", scales, {rows, cols / kBlock}, keys);
    return {.rows = rows,
            .cols = cols,
            .spec = {.format = Format::nvfp4, .block = kBlock},
            .codes = stored,
            .scales = scales,
            .global = scalar(name + "_scale_2")};
  }

  Files& files_;
  std::string where_;
};

void check_algorithm(const io::Json& owner) {
  constexpr std::array<std::string_view, 4> kKnown = {"FP8", "NVFP4", "W4A16_NVFP4", "MIXED_PRECISION"};
  const auto algorithm = owner.string_of({"quant_algo"});
  if (!algorithm || std::find(kKnown.begin(), kKnown.end(), *algorithm) != kKnown.end()) return;
  owner.need({"quant_algo"}).refuse("unknown quantisation", "FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION");
}

void check_quantisation(const io::Json& quantisation) {
  check_algorithm(quantisation);
  if (const auto layers = quantisation.get({"quantized_layers"})) {
    for (const auto& layer : layers->members()) check_algorithm(layer.second);
  }
}

}  // namespace

Config load_config(const io::ModelPath& path) {
  const io::Json json = io::Json::read(path.folder / "config.json");
  Config config = read_config(json);
  if (const auto q = json.get({"quantization_config"})) check_quantisation(*q);
  if (const auto file = path.folder / "hf_quant_config.json"; std::filesystem::exists(file)) {
    if (const auto q = io::Json::read(file).get({"quantization"})) check_quantisation(*q);
  }
  const auto file = path.folder / "generation_config.json";
  if (!std::filesystem::exists(file)) return config;
  if (const auto eos = io::Json::read(file).get({"eos_token_id"})) {
    const std::vector<io::Json> ids = eos->is_array() ? eos->items() : std::vector<io::Json>{*eos};
    for (const io::Json& id : ids) {
      const int64_t token = id.as_int(Ranges::token);
      if (std::find(config.eos.begin(), config.eos.end(), token) == config.eos.end()) config.eos.push_back(token);
    }
  }
  return config;
}

OpenFolder open_folder(const io::ModelPath& path) {
  auto files = std::make_shared<Files>(path.weights);
  auto source = std::make_unique<FileSource>(*files, path.name);
  return {std::move(files), std::move(source)};
}

std::unique_ptr<Model> load_model(const io::ModelPath& path) {
  Config config = load_config(path);
  OpenFolder folder = open_folder(path);
  auto model = std::make_unique<Model>(std::move(config), *folder.source);
  model->storage = std::move(folder.files);
  return model;
}

}  // namespace braid::models
