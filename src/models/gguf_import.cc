#include "models/gguf_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/safetensors_write.h"
#include "math/ggml_blocks.h"
#include "models/config_file.h"
#include "models/family.h"
#include "models/gguf.h"
#include "models/gguf_names.h"
#include "models/inventory.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

constexpr int64_t kChunkValues = int64_t{1} << 22;

// A tensor of the folder and where the file has it: all of one there, or a part of a stack.
struct Piece {
  nn::ParamRequest request;
  const io::GgufTensor* tensor = nullptr;
  std::span<const std::byte> bytes{};
  float factor = 1;       // a scale that NVFP4 stores apart
  int64_t head_rows = 0;  // gguf_head_rows

  int64_t count() const { return request.shape.count(); }
  // Values of one row of what heads are made of; of a bias that is one.
  int64_t width() const { return count() / request.shape[0]; }

  // Values [begin, begin + out.size()), whole rows.
  void decode(int64_t begin, std::span<float> out) const {
    const int64_t step = head_rows > 0 ? width() : std::ssize(out);
    for (int64_t at = 0; at < std::ssize(out); at += step) {
      const int64_t from = head_rows > 0 ? gguf_row((begin + at) / step, head_rows) * step : begin;
      const GgmlTypeRow& type = *tensor->type;
      decode_ggml(type.type, bytes.data() + from / type.values * type.bytes,
                  out.subspan(static_cast<size_t>(at), static_cast<size_t>(step)));
    }
    if (factor != 1) std::ranges::transform(out, out.begin(), [&](float v) { return v * factor; });
    if (request.role == ParamRole::a_log)
      std::ranges::transform(out, out.begin(), [](float v) { return std::log(-v); });
  }
};

class Folder {
 public:
  Folder(const io::Gguf& file, const FolderOptions& options)
      : file_(file), options_(options), json_(gguf_config(file)), config_(read_config(json_)) {
    for (const nn::ParamRequest& request : inventory(config_)) {
      Piece piece = find(request);
      pieces_.emplace(request.name, std::move(piece));
      names_.push_back(request.name);
    }
  }

  int64_t values() const {
    int64_t count = 0;
    for (const auto& piece : pieces_) count += piece.second.count();
    return count;
  }

  bool write(const std::filesystem::path& folder, const sys::FunctionRef<bool(int64_t)>& progress) const {
    std::vector<io::TensorSpec> specs;
    for (const std::string& name : names_) {
      const Piece& piece = pieces_.at(name);
      specs.push_back({name, type_of(piece), piece.request.shape});
    }
    io::SafetensorsWriter writer(folder, std::move(specs));
    int64_t done = 0;
    for (const io::TensorSpec& spec : writer.order()) {
      if (!write(pieces_.at(spec.name), spec.dtype, writer, done, progress)) return false;
    }
    writer.finish();
    io::write_text_file(folder / "generation_config.json", generation_config_text(config_));
    io::write_text_file(folder / "config.json", config_json());  // last: a folder that has one is whole
    return true;
  }

 private:
  Piece find(const nn::ParamRequest& request) const {
    const bool part = request.expert >= 0;
    const std::string name = gguf_name(part ? request.stack : request.name);
    const io::GgufTensor* tensor = name.empty() ? nullptr : file_.find(name);
    if (!tensor) fail(file_.where(), {.what = fmt::format("tensor {} is missing", name.empty() ? request.name : name)});
    const int64_t head = gguf_head_rows(file_, request);
    const int64_t parts = part ? request.experts : 1,
                  row = head > 0 ? request.shape.count() / request.shape[0] : request.cols();
    if (tensor->shape.count() != request.shape.count() * parts || row % tensor->type->values != 0 ||
        (part && tensor->shape[0] != parts))
      fail(file_.where(), {.what = "tensor " + name + " has the wrong shape",
                           .got = to_string(tensor->shape),
                           .expected = fmt::format("{} of {}", parts, to_string(request.shape))});
    const size_t size = tensor->bytes.size() / static_cast<size_t>(parts);
    const size_t index = part ? static_cast<size_t>(request.expert) : 0;
    const std::vector<float> factors = gguf_factors(file_, *tensor);
    const float factor = factors.empty() ? 1.0f : factors[std::min(index, factors.size() - 1)];
    return {request, tensor, tensor->bytes.subspan(index * size, size), factor, head};
  }

  // Small tensors are BF16 only where they came from it: A_log has been through an exponential, whose rounding is
  // undone by that.
  DType type_of(const Piece& piece) const {
    if (options_.type != DType::bf16 || piece.request.role == ParamRole::router_bias) return DType::f32;
    if (is_matrix(piece.request.role)) return DType::bf16;
    std::vector<float> values(static_cast<size_t>(piece.count()));
    piece.decode(0, values);
    const bool exact = std::ranges::all_of(
        values, [](float v) { return std::fabs(to_float(to_bf16(v)) - v) <= 3e-7f * std::max(1.0f, std::fabs(v)); });
    return exact ? DType::bf16 : DType::f32;
  }

  bool write(const Piece& piece, DType type, io::SafetensorsWriter& writer, int64_t& done,
             const sys::FunctionRef<bool(int64_t)>& progress) const {
    const int64_t cols = piece.request.cols(), rows = piece.count() / cols;
    const int64_t step = std::max<int64_t>(1, kChunkValues / cols);
    std::vector<float> values;
    std::vector<Bf16> rounded;
    for (int64_t at = 0; at < rows; at += step) {
      const int64_t n = std::min(step, rows - at);
      values.resize(static_cast<size_t>(n * cols));
      rounded.resize(values.size());
      sys::parallel_for(options_.threads, n, 1, [&](int64_t begin, int64_t end) {
        const std::span part(values.data() + begin * cols, static_cast<size_t>((end - begin) * cols));
        piece.decode((at + begin) * cols, part);
        std::ranges::transform(part, rounded.begin() + begin * cols, to_bf16);
      });
      const bool half = type == DType::bf16;
      writer.write(piece.request.name, half ? std::as_bytes(std::span(rounded)) : std::as_bytes(std::span(values)));
      done += n * cols;
      if (!progress(done)) return false;
    }
    return true;
  }

  std::string config_json() const {
    nlohmann::json config = json_.raw();
    // One width where there is but one, as other readers expect it.
    if (auto& widths = config["intermediate_size"]; widths.is_array()) {
      nlohmann::json most = 0;
      for (const auto& width : widths) most = std::max(most, width);
      const bool one = std::ranges::all_of(widths, [&](const auto& w) { return w == 0 || w == most; });
      if (one) widths = most;
    }
    return config_text(io::Json::parse(config.dump(), json_.document()), options_.type);
  }

  const io::Gguf& file_;
  FolderOptions options_;
  io::Json json_;
  Config config_;
  std::map<std::string, Piece> pieces_;
  std::vector<std::string> names_;  // in the model's order
};

}  // namespace

int64_t values_in(const io::Gguf& file) { return Folder(file, {}).values(); }

bool write_folder(const io::Gguf& file, const std::filesystem::path& folder, const FolderOptions& options,
                  const sys::FunctionRef<bool(int64_t)>& progress) {
  return Folder(file, options).write(folder, progress);
}

}  // namespace braid::models
