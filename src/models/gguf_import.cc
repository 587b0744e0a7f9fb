#include "models/gguf_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codec/ggml_blocks.h"
#include "io/safetensors_write.h"
#include "models/config_file.h"
#include "models/family.h"
#include "models/gguf.h"
#include "models/gguf_names.h"
#include "models/inventory.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

constexpr int64_t kImportChunk = int64_t{1} << 22;

// A tensor of the folder and where the file has it: all of one there, or a part of a stack.
struct Piece {
  nn::ParamRequest request;
  GgufPart part;

  int64_t count() const { return request.shape.count(); }

  // Values [begin, begin + out.size()), whole rows.
  void decode(int64_t begin, std::span<float> out) const {
    const GgmlTypeRow& type = *part.tensor->type;
    const int64_t head = part.head_rows, step = head > 0 ? count() / request.shape[0] : std::ssize(out);
    for (int64_t at = 0; at < std::ssize(out); at += step) {
      const int64_t from = head > 0 ? gguf_row((begin + at) / step, head) * step : begin;
      decode_ggml(type.type, part.bytes.data() + from / type.values * type.bytes,
                  out.subspan(static_cast<size_t>(at), static_cast<size_t>(step)));
    }
    if (part.factor != 1) std::ranges::transform(out, out.begin(), [&](float v) { return v * part.factor; });
    if (request.role == ParamRole::a_log)
      std::ranges::transform(out, out.begin(), [](float v) { return std::log(-v); });
  }
};

class Folder {
 public:
  Folder(const io::Gguf& file, const FolderOptions& options)
      : file_(file), options_(options), json_(gguf_config(file)), config_(read_config(json_)) {
    check_gguf_tensors(file, config_);
    for (const nn::ParamRequest& request : inventory(config_)) {
      pieces_.emplace(request.name, Piece{request, gguf_part(file_, request)});
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
    io::write_text_file(folder / "config.json", config_json());  // last: a folder that has one is complete
    return true;
  }

 private:
  // Small tensors are BF16 only where they came from it: A_log went through an exponential, whose rounding this undoes.
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
    const int64_t step = std::max<int64_t>(1, kImportChunk / cols);
    std::vector<float> values;
    std::vector<Bf16> rounded;
    for (int64_t at = 0; at < rows; at += step) {
      const int64_t n = std::min(step, rows - at);
      values.resize(static_cast<size_t>(n * cols));
      rounded.resize(values.size());
      std::atomic<bool> finite = true;
      sys::parallel_for(options_.threads, n, 1, [&](int64_t begin, int64_t end) {
        const std::span part(values.data() + begin * cols, static_cast<size_t>((end - begin) * cols));
        piece.decode((at + begin) * cols, part);
        if (!std::ranges::all_of(part, [](float v) { return std::isfinite(v); })) finite = false;
        std::ranges::transform(part, rounded.begin() + begin * cols, to_bf16);
      });
      if (!finite) fail_damaged(file_, *piece.part.tensor, piece.request.role);
      const bool half = type == DType::bf16;
      writer.write(piece.request.name, half ? std::as_bytes(std::span(rounded)) : std::as_bytes(std::span(values)));
      done += n * cols;
      if (!progress(done)) return false;
    }
    return true;
  }

  std::string config_json() const {
    nlohmann::json config = json_.raw();
    // A single width if all are equal, as other readers expect.
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
