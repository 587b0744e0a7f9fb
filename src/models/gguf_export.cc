#include "models/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "codec/codec.h"
#include "codec/ggml_encode.h"
#include "codec/nvfp4.h"
#include "models/gguf.h"
#include "models/gguf_metadata.h"
#include "models/gguf_names.h"
#include "models/model.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

constexpr int64_t kExportChunk = int64_t{1} << 22;  // decoded and encoded in parallel, then written

const GgmlTypeRow& row_of(GgmlType type) { return *ggml_type(static_cast<uint32_t>(type)); }
double bits(GgmlType type) {
  return 8.0 * static_cast<double>(row_of(type).bytes) / static_cast<double>(row_of(type).values);
}

// The type of the nearest bit width with smaller blocks.
GgmlType smaller_blocks(GgmlType type) {
  switch (type) {
    case GgmlType::q4_k:
      return GgmlType::iq4_nl;
    case GgmlType::q5_k:
      return GgmlType::q5_0;
    case GgmlType::q6_k:
      return GgmlType::q8_0;
    case GgmlType::nvfp4:
      return GgmlType::mxfp4;
    default:
      return GgmlType::bf16;
  }
}
GgmlType fitting(GgmlType type, int64_t cols) {
  while (cols % row_of(type).values != 0) type = smaller_blocks(type);
  return type;
}

// The number of a type in general.file_type.
uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::f32:
      return 0;
    case GgmlType::f16:
      return 1;
    case GgmlType::q4_0:
      return 2;
    case GgmlType::q4_1:
      return 3;
    case GgmlType::q8_0:
      return 7;
    case GgmlType::q5_0:
      return 8;
    case GgmlType::q5_1:
      return 9;
    case GgmlType::q4_k:
      return 14;
    case GgmlType::q5_k:
      return 16;
    case GgmlType::q6_k:
      return 18;
    case GgmlType::iq4_nl:
      return 25;
    case GgmlType::mxfp4:
      return 38;
    case GgmlType::nvfp4:
      return 39;
    default:
      return 32;  // BF16
  }
}

// Records what a model requests, and what it gets.
class Recorder final : public nn::ParamSource {
 public:
  explicit Recorder(nn::ParamSource& source) : source_(source) {}
  std::vector<std::pair<nn::ParamRequest, Weight>> list;

  bool has(const std::string& name) const override { return source_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    Param p = source_.get(r);
    list.emplace_back(r, p.value);
    return p;
  }

 private:
  nn::ParamSource& source_;
};

// The shape in the file of a tensor of one part: [rows, cols], or what llama.cpp multiplies by broadcasting.
Shape stored_shape(const nn::ParamRequest& r, const Config& config) {
  if (is_matrix(r.role)) return r.shape.rank == 3 ? r.shape : Shape{r.rows(), r.cols()};
  const int64_t count = r.shape.count();
  switch (r.role) {
    case ParamRole::conv:
      return {r.shape[0], count / r.shape[0]};
    case ParamRole::a_log:
    case ParamRole::d_skip:
      return {count, 1};
    case ParamRole::gated_norm:
      for (const LayerSpec& layer : config.layers) {
        if (const auto* mamba = std::get_if<nn::Mamba2Spec>(&layer.parts.at(0).block))
          return {mamba->groups, count / mamba->groups};
      }
      [[fallthrough]];
    default:
      return {count};
  }
}

// Rows of all parts of a tensor, one after the other.
struct Rows {
  const GgufExport::Tensor& tensor;
  int64_t cols = 0, part_rows = 0, count = 0;

  explicit Rows(const GgufExport::Tensor& t)
      : tensor(t),
        cols(t.spec.shape[t.spec.shape.rank - 1]),
        part_rows(t.parts[0].second.rows * t.parts[0].second.cols / cols),
        count(part_rows * std::ssize(t.parts)) {}

  const Weight& weight(int64_t row) const { return tensor.parts[static_cast<size_t>(row / part_rows)].second; }
  // llama.cpp rotates adjacent pairs, Hugging Face elements i and i + P/2 of a head: the source of element `i`.
  int64_t origin(int64_t i) const {
    const int64_t head = tensor.paired, at = i % head;
    return i - at + at % 2 * head / 2 + at / 2;
  }
  void decode(int64_t row, std::span<float> values) const {
    if (tensor.paired > 0 && part_rows > 1) row = origin(row);
    const Weight& w = weight(row);
    if (w.cols == cols)
      decode_row(w, row % part_rows, 0, cols, values.data());
    else  // a vector that the file has in rows
      decode_row(w, 0, row % part_rows * cols, cols, values.data());
    if (w.global != 1) std::ranges::transform(values, values.begin(), [&](float v) { return v * w.global; });
    if (tensor.paired > 0 && part_rows == 1) {  // a bias
      const std::vector<float> stored(values.begin(), values.end());
      for (size_t i = 0; i < stored.size(); ++i)
        values[i] = stored[static_cast<size_t>(origin(static_cast<int64_t>(i)))];
    }
    if (tensor.parts[0].first == ParamRole::a_log)
      std::ranges::transform(values, values.begin(), [](float v) { return -std::exp(v); });
  }

  bool is_nvfp4() const {
    return tensor.spec.type == GgmlType::nvfp4 && tensor.parts[0].second.spec.format == Format::nvfp4;
  }
  // Blocks of the type that the file gets: they are copied, since encoding their values again would change them.
  bool is_stored(int64_t row) const {
    const Weight& w = weight(row);
    return w.spec.format == Format::ggml && w.spec.ggml == tensor.spec.type && w.global == 1 && w.cols == cols;
  }
  void copy(int64_t row, std::span<std::byte> blocks) const {
    if (tensor.paired > 0) row = origin(row);
    std::memcpy(blocks.data(), weight(row).codes.as<uint8_t>(row % part_rows), blocks.size());
  }

  // ModelOpt's codes and scales as llama.cpp lays them out: no value changes, the sign of a scale is that of its codes.
  // False for a NaN scale.
  bool repack(int64_t row, std::byte* blocks) const {
    if (tensor.paired > 0) row = origin(row);
    const Weight& w = weight(row);
    const auto* codes = w.codes.as<uint8_t>() + row % part_rows * cols / 2;
    const auto* scales = w.scales.as<F8E4M3>() + row % part_rows * cols / 16;
    const auto code = [&](int64_t i) { return codes[i / 2] >> i % 2 * 4 & 15; };
    for (int64_t at = 0; at < cols; at += 64, blocks += 36) {
      for (int64_t group = 0; group < 4; ++group) {
        const uint8_t stored = scales[at / 16 + group].bits, scale = stored & 0x7f;
        if (scale == 0x7f) return false;
        blocks[group] = static_cast<std::byte>(scale);
        const int signs = stored == scale ? 0 : 0x88;
        const int64_t first = at + 16 * group;
        for (int64_t i = 0; i < 8; ++i)
          blocks[4 + 8 * group + i] = static_cast<std::byte>((code(first + i) | code(first + i + 8) << 4) ^ signs);
      }
    }
    return true;
  }
};

// Factors of NVFP4's scales, one per part: ModelOpt's, or as it would choose them.
std::vector<float> factors_of(const Rows& rows, int threads) {
  std::vector<float> factors;
  const std::span parts(rows.tensor.parts);
  if (rows.is_nvfp4()) {
    for (const auto& part : parts) factors.push_back(part.second.global);
    return factors;
  }
  std::vector<float> amax(static_cast<size_t>(rows.count));
  std::vector<float> values(static_cast<size_t>(rows.cols) * static_cast<size_t>(threads));
  sys::parallel(threads, [&](int part, int all) {
    const std::span row(values.data() + part * rows.cols, static_cast<size_t>(rows.cols));
    for (int64_t i = rows.count * part / all; i < rows.count * (part + 1) / all; ++i) {
      rows.decode(i, row);
      for (const float v : row) amax[static_cast<size_t>(i)] = std::max(amax[static_cast<size_t>(i)], std::fabs(v));
    }
  });
  for (size_t part = 0; part < parts.size(); ++part) {
    const auto first = amax.begin() + static_cast<ptrdiff_t>(part) * rows.part_rows;
    const float global = nvfp4_global(*std::max_element(first, first + rows.part_rows));
    factors.push_back(global > 0 && std::isfinite(global) ? global : 1.0f);
  }
  return factors;
}

// Writes tensors in order.
class TensorWriter {
 public:
  TensorWriter(io::GgufWriter& writer, const std::string& where, int threads,
               const sys::FunctionRef<bool(int64_t)>& progress)
      : writer_(writer), where_(where), threads_(threads), progress_(progress) {}

  // False: stopped.
  bool write(const GgufExport::Tensor& tensor) {
    if (!tensor.values.empty()) return put(tensor, std::as_bytes(std::span(tensor.values)));
    if (tensor.parts.empty()) return put(tensor, std::as_bytes(std::span(factors_)));  // the scales of the one before
    const Rows rows(tensor);
    const GgmlTypeRow& type = row_of(tensor.spec.type);
    const bool scaled = type.type == GgmlType::nvfp4;
    factors_ = scaled ? factors_of(rows, threads_) : std::vector<float>();
    const int64_t row_bytes = rows.cols / type.values * type.bytes;
    const int64_t step = std::max<int64_t>(1, kExportChunk / rows.cols);
    for (int64_t at = 0; at < rows.count; at += step) {
      const int64_t n = std::min(step, rows.count - at);
      values_.resize(static_cast<size_t>(n * rows.cols));
      blocks_.resize(static_cast<size_t>(n * row_bytes));
      std::atomic<bool> fits = true;
      sys::parallel_for(threads_, n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const std::span row(values_.data() + i * rows.cols, static_cast<size_t>(rows.cols));
          const std::span blocks(blocks_.data() + i * row_bytes, static_cast<size_t>(row_bytes));
          if (!encode(rows, at + i, row, blocks)) fits = false;
        }
      });
      if (!fits)
        fail(where_, {.what = fmt::format("tensor {} has values that {} cannot hold", tensor.spec.name, type.name),
                      .expected = fmt::format("finite numbers up to {:.5g}", largest_encoded(type.type)),
                      .hint = "--type bf16"});
      if (!put(tensor, blocks_)) return false;
    }
    return true;
  }

 private:
  bool encode(const Rows& rows, int64_t i, std::span<float> row, std::span<std::byte> blocks) const {
    if (rows.is_nvfp4()) return rows.repack(i, blocks.data());
    if (rows.is_stored(i)) {
      rows.copy(i, blocks);
      return true;
    }
    rows.decode(i, row);
    if (!factors_.empty()) {
      const float factor = factors_[static_cast<size_t>(i / rows.part_rows)];
      std::ranges::transform(row, row.begin(), [&](float v) { return v / factor; });
    }
    // Rounding the largest value of a scaled tensor up is not an overflow.
    const GgmlType type = rows.tensor.spec.type;
    const float most = factors_.empty() ? largest_encoded(type) : 1.001f * largest_encoded(type);
    if (!std::ranges::all_of(row, [&](float v) { return std::fabs(v) <= most; })) return false;
    encode_ggml(type, row, blocks.data());
    return true;
  }

  bool put(const GgufExport::Tensor& tensor, std::span<const std::byte> bytes) {
    writer_.write(tensor.spec.name, bytes);
    done_ += std::ssize(bytes);
    return progress_(done_);
  }

  io::GgufWriter& writer_;
  const std::string& where_;
  int threads_;
  const sys::FunctionRef<bool(int64_t)>& progress_;
  std::vector<float> values_, factors_;
  std::vector<std::byte> blocks_;
  int64_t done_ = 0;
};

}  // namespace

bool GgufExport::Tensor::widened() const {
  return spec.type == GgmlType::bf16 && std::ranges::any_of(parts, [](const auto& part) {
           return part.second.spec.format == Format::nvfp4 || part.second.spec.format == Format::ggml;
         });
}

GgufExport::GgufExport(const io::ModelPath& model, const GgufOptions& options)
    : model_(model), options_(options), config_(load_config(model)), folder_(open_folder(model)) {
  architecture_ = gguf_architecture(config_, model.name);
  if (const std::string why = prediction_misfit(config_); !why.empty()) {
    notes_.push_back("the block that predicts further tokens is left out: it has " + why);
    config_.mtp.reset();
  }
  fields_ = gguf_metadata(config_, model.name, model.name);
  Recorder recorder(*folder_.source);
  const Model built(config_, recorder);
  plan(recorder.list);
  add_zero_biases();
  if (!config_.rope) return;
  if (std::vector<float> divisors = rope_divisors(*config_.rope); !divisors.empty()) {
    Tensor tensor;
    tensor.spec = {.name = "rope_freqs.weight", .shape = {std::ssize(divisors)}};
    tensor.values = std::move(divisors);
    tensors_.push_back(std::move(tensor));
  }
}

// llama.cpp asks for a bias of every convolution.
void GgufExport::add_zero_biases() {
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const std::vector<PartSpec>& parts = config_.layers[i].parts;
    const auto* mamba = parts.empty() ? nullptr : std::get_if<nn::Mamba2Spec>(&parts[0].block);
    if (!mamba || mamba->conv_bias) continue;
    Tensor tensor;
    tensor.spec = {.name = fmt::format("blk.{}.ssm_conv1d.bias", i), .shape = {mamba->conv_channels()}};
    tensor.values.resize(static_cast<size_t>(mamba->conv_channels()));
    tensors_.push_back(std::move(tensor));
  }
}

// Queries and keys, and their biases, of the models whose heads llama.cpp rotates in adjacent pairs.
int64_t GgufExport::paired(std::string_view released) const {
  if (architecture_ != "llama" && architecture_ != "deci") return 0;
  for (const char* part : {".self_attn.q_proj.", ".self_attn.k_proj."}) {
    if (released.find(part) != released.npos) return config_.rope->dim;
  }
  return 0;
}

GgmlType GgufExport::type_for(const nn::ParamRequest& request) const {
  GgmlType type = options_.type;
  // llama.cpp skips the prediction block of a hybrid by the names that it knows, which those of NVFP4's scales are not.
  if (type == GgmlType::nvfp4 && request.mtp) type = GgmlType::q8_0;
  switch (request.role) {
    case ParamRole::router:
      return GgmlType::f32;
    case ParamRole::embedding:
      if (!config_.tied) return type == GgmlType::nvfp4 ? GgmlType::q8_0 : type;
      [[fallthrough]];
    case ParamRole::head:
      if (options_.head) return *options_.head;
      if (type == GgmlType::nvfp4) return GgmlType::q8_0;
      return bits(type) < bits(GgmlType::q6_k) ? GgmlType::q6_k : type;
    case ParamRole::latent_in:
    case ParamRole::latent_out:  // llama.cpp multiplies them without the scale that NVFP4 needs
      return type == GgmlType::nvfp4 ? GgmlType::q8_0 : type;
    default:
      return is_matrix(request.role) ? type : GgmlType::f32;
  }
}

void GgufExport::plan(std::span<const std::pair<nn::ParamRequest, Weight>> params) {
  std::map<std::string, Tensor> stacks;  // of experts that come one by one
  for (const auto& [r, weight] : params) {
    const bool one_of_many = r.expert >= 0;
    const std::string& released = one_of_many ? r.stack : r.name;
    Tensor& tensor = stacks[released];
    if (tensor.parts.empty()) {
      tensor = {.spec = {.name = gguf_name(released, std::ssize(config_.layers)), .shape = stored_shape(r, config_)},
                .matrix = is_matrix(r.role),
                .paired = paired(released),
                .wanted = type_for(r)};
      if (tensor.spec.name.empty()) fail(model_.name, {.what = "GGUF has no place for tensor " + released});
      if (one_of_many) tensor.spec.shape = {r.experts, r.rows(), r.cols()};
      tensor.spec.type = fitting(tensor.wanted, tensor.spec.shape[tensor.spec.shape.rank - 1]);
      if (options_.strict && tensor.spec.type != tensor.wanted)
        fail(model_.name, {.what = fmt::format("tensor {} cannot be {}", released, row_of(tensor.wanted).name),
                           .got = fmt::format("rows of {}", r.cols()),
                           .expected = fmt::format("a multiple of {}", row_of(tensor.wanted).values),
                           .hint = fmt::format("{}, the nearest that holds it", row_of(tensor.spec.type).name)});
    }
    const int64_t parts = is_matrix(r.role) && r.shape.rank == 3 ? r.shape[0] : 1, rows = weight.rows / parts;
    for (int64_t i = 0; i < parts; ++i)
      tensor.parts.emplace_back(r.role, parts > 1 ? weight.rows_of(i * rows, rows) : weight);
    if (!one_of_many || std::ssize(tensor.parts) == r.experts) add(std::move(stacks.extract(released).mapped()));
  }
}

void GgufExport::add(Tensor tensor) {
  Tensor scales;
  scales.spec.shape = {std::ssize(tensor.parts)};
  if (tensor.spec.type == GgmlType::nvfp4)
    scales.spec.name = tensor.spec.name.substr(0, tensor.spec.name.rfind('.')) + ".scale";
  tensors_.push_back(std::move(tensor));
  if (!scales.spec.name.empty()) tensors_.push_back(std::move(scales));
}

int64_t GgufExport::bytes() const {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors_) bytes += tensor.spec.bytes();
  return bytes;
}

bool GgufExport::write(const std::filesystem::path& path, const io::GgufFields& vocabulary,
                       const sys::FunctionRef<bool(int64_t)>& progress) const {
  io::GgufFields fields = fields_;
  fields.emplace_back("general.file_type", file_type(options_.type));
  fields.emplace_back("general.quantization_version", 2u);
  fields.insert(fields.end(), vocabulary.begin(), vocabulary.end());
  std::vector<io::GgufSpec> specs;
  for (const Tensor& tensor : tensors_) specs.push_back(tensor.spec);
  io::GgufWriter writer(path, fields, std::move(specs));
  TensorWriter tensors(writer, model_.name, options_.threads, progress);
  for (const Tensor& tensor : tensors_) {
    if (!tensors.write(tensor)) return false;
  }
  writer.finish();
  return true;
}

}  // namespace braid::models
