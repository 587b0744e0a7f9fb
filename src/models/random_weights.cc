#include "models/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <utility>

#include "core/philox.h"
#include "io/safetensors_write.h"
#include "math/blocks.h"
#include "models/storage.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

constexpr int64_t kBatchBytes = int64_t{32} << 20;  // generated in parallel, then written
constexpr int64_t kPiece = int64_t{1} << 18;        // values that one thread makes in one go
constexpr int64_t kDraws = 8;                       // numbers of 16 bits in one Philox call
constexpr size_t kQuantiles = 1 << 16;

// Quantiles of the standard normal distribution at the middles of 65,536 equal parts: a number of 16 random bits is
// the index of a normal one. Newton's method from one to the next; the distribution function is concave above 0, so it
// never overshoots.
std::vector<float> normal_quantiles() {
  std::vector<float> table(kQuantiles);
  double x = 0;
  for (size_t i = 0; i < kQuantiles / 2; ++i) {
    const double upper = (static_cast<double>(kQuantiles / 2 - i) - 0.5) / kQuantiles;
    for (double step = 1; std::fabs(step) > 1e-9; x += step) {
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      step = (std::erfc(x / std::numbers::sqrt2) / 2 - upper) / density;
    }
    table[kQuantiles / 2 + i] = static_cast<float>(x);
    table[kQuantiles / 2 - 1 - i] = static_cast<float>(-x);
  }
  return table;
}

// values [begin, begin + out.size()) of a tensor, begin a multiple of kDraws: entries of a table.
template <class Num>
void draw(const RandomKey& key, const std::vector<Num>& table, int64_t begin, std::span<Num> out) {
  for (size_t i = 0; i < out.size(); i += kDraws) {
    const auto bits = philox(key, static_cast<uint64_t>(begin) / kDraws + i / kDraws);
    const size_t n = std::min<size_t>(kDraws, out.size() - i);
    for (size_t j = 0; j < n; ++j) out[i + j] = table[bits[j / 2] >> (j % 2 * 16) & 0xffff];
  }
}

template <class Num, class Map>
std::vector<Num> mapped(const std::vector<float>& table, Map&& map) {
  std::vector<Num> out(table.size());
  std::transform(table.begin(), table.end(), out.begin(), map);
  return out;
}

// A part of one stored tensor, made by one thread.
struct Piece {
  const io::TensorSpec* stored = nullptr;
  size_t place = 0;               // of its tensor in the model
  int64_t begin = 0, count = 0;   // elements of the tensor, in whole rows where it is a matrix of blocks
  int64_t offset = 0, bytes = 0;  // in the batch
};

// Tables of one width of matrices.
struct Tables {
  std::vector<float> values;
  std::vector<Bf16> rounded;
};

class RandomWriter {
 public:
  RandomWriter(const Config& config, const std::filesystem::path& folder, const RandomWeights& options,
               const sys::FunctionRef<bool(int64_t)>& progress)
      : options_(options),
        progress_(progress),
        norm_(config.norm == NormKind::layer_plus_one ? 0.0 : 1.0),
        tensors_(inventory(config)),
        writer_(folder, stored_tensors(tensors_, options.format)),
        quantiles_(normal_quantiles()),
        fp8_codes_(mapped<F8E4M3>(quantiles_, [this](float z) { return to_f8e4m3(z * 448 / quantiles_.back()); })),
        inner_(tables_of(kWidth)),
        residual_(tables_of(kWidth / std::sqrt(static_cast<float>(config.pattern().size())))) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      for (const io::TensorSpec& stored : stored_tensors(tensors_[i], options.format)) origin_[stored.name] = i;
    }
  }

  bool write() {
    for (const io::TensorSpec& stored : writer_.order()) {
      if (!add(stored)) return false;
    }
    if (!flush()) return false;
    writer_.finish();
    return true;
  }

 private:
  static constexpr float kWidth = 0.02f;

  Tables tables_of(float width) const {
    return {mapped<float>(quantiles_, [width](float z) { return z * width; }),
            mapped<Bf16>(quantiles_, [width](float z) { return to_bf16(z * width); })};
  }

  const Tables& tables(ParamRole role) const {
    switch (role) {
      case ParamRole::mamba_out:
      case ParamRole::attention_out:
      case ParamRole::down:
      case ParamRole::expert_down:
        return residual_;
      default:
        return inner_;
    }
  }

  // Cuts a stored tensor into pieces and makes those of a full batch.
  bool add(const io::TensorSpec& stored) {
    const size_t place = origin_.at(stored.name);
    const bool packed = stored.dtype == DType::u8;
    const int64_t count = packed ? tensors_[place].shape.count() : stored.shape.count();
    if (packed) scales_[stored.name].resize(static_cast<size_t>(count / kNvfp4Block));
    const int64_t unit = packed ? tensors_[place].shape[1] : kDraws, step = std::max(unit, kPiece / unit * unit);
    for (int64_t begin = 0; begin < count; begin += step) {
      const int64_t n = std::min(step, count - begin), bytes = packed ? n / 2 : n * size_of(stored.dtype);
      batch_.push_back({&stored, place, begin, n, batch_bytes_, bytes});
      batch_bytes_ += bytes;
      if (batch_bytes_ >= kBatchBytes && !flush()) return false;
    }
    return true;
  }

  bool flush() {
    if (!progress_(written_)) return false;
    std::vector<std::byte> bytes(static_cast<size_t>(batch_bytes_));
    sys::parallel_tasks(options_.threads, std::ssize(batch_), [&](int64_t i) {
      const Piece& p = batch_[static_cast<size_t>(i)];
      fill(p, bytes.data() + p.offset);
    });
    for (const Piece& p : batch_) {
      const bool scales = p.stored->dtype == DType::f8_e4m3 && p.stored->name.ends_with("_scale");
      if (scales) take_scales(p, bytes.data() + p.offset);
      writer_.write(p.stored->name, {bytes.data() + p.offset, static_cast<size_t>(p.bytes)});
    }
    written_ += batch_bytes_;
    batch_.clear();
    batch_bytes_ = 0;
    return true;
  }

  // The scales of a matrix are made with its codes and come after them, in the same shard or the next.
  void take_scales(const Piece& p, std::byte* out) {
    const std::string codes = p.stored->name.substr(0, p.stored->name.rfind('_'));
    const auto found = scales_.find(codes);
    CHECK(found != scales_.end(), "scales {} before their codes", p.stored->name);
    std::memcpy(out, found->second.data() + p.begin, static_cast<size_t>(p.bytes));
    if (p.begin + p.count == std::ssize(found->second)) scales_.erase(found);
  }

  void fill(const Piece& p, std::byte* out) {
    const TensorSpec& tensor = tensors_[p.place];
    const RandomKey key{options_.seed, static_cast<uint32_t>(p.place)};
    const auto n = static_cast<size_t>(p.count);
    if (!is_matrix(tensor.role)) {
      const MutView view(out, p.stored->dtype, {p.count});
      for (int64_t i = 0; i < p.count; ++i) set_element(view, i, vector_value(tensor.role, key, p.begin + i));
      return;
    }
    const Tables& table = tables(tensor.role);
    const Format format = stored_format(tensor, options_.format);
    switch (p.stored->dtype) {
      case DType::f32: {
        const float amax = table.values.back();
        const float scale = format == Format::nvfp4 ? nvfp4_global(amax) : fp8_global(amax);
        std::memcpy(out, &scale, sizeof(scale));
        return;
      }
      case DType::u8:
        return fill_nvfp4(p, key, table, reinterpret_cast<uint8_t*>(out));
      case DType::f8_e4m3:
        if (format == Format::f8_e4m3) draw(key, fp8_codes_, p.begin, std::span(reinterpret_cast<F8E4M3*>(out), n));
        return;
      default:
        return draw(key, table.rounded, p.begin, std::span(reinterpret_cast<Bf16*>(out), n));
    }
  }

  void fill_nvfp4(const Piece& p, const RandomKey& key, const Tables& table, uint8_t* codes) {
    const int64_t cols = tensors_[p.place].shape[1];
    F8E4M3* scales = scales_.find(p.stored->name)->second.data() + p.begin / kNvfp4Block;
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t at = 0; at < p.count; at += cols) {
      draw(key, table.values, p.begin + at, std::span(row));
      encode_nvfp4_row(row, nvfp4_global(table.values.back()), codes + at / 2, scales + at / kNvfp4Block);
    }
  }

  double vector_value(ParamRole role, const RandomKey& key, int64_t i) const {
    const double u = uniform(philox(key, static_cast<uint64_t>(i))[0]);
    const double z = quantiles_[static_cast<size_t>(u * kQuantiles)];
    switch (role) {
      case ParamRole::a_log:
        return std::log(1 + 15 * u);
      case ParamRole::dt_bias: {
        const double dt = std::exp(std::log(1e-3) + u * std::log(100.0));
        return dt + std::log(-std::expm1(-dt));  // the inverse of softplus
      }
      case ParamRole::conv:
        return 0.29 * z;  // as wide as PyTorch's uniform one for four taps
      case ParamRole::router_bias:
        return 0.01 * z;
      case ParamRole::d_skip:
        return 1;
      case ParamRole::bias:
        return 0;
      default:
        return norm_;
    }
  }

  const RandomWeights& options_;
  const sys::FunctionRef<bool(int64_t)>& progress_;
  double norm_;
  std::vector<TensorSpec> tensors_;
  std::map<std::string, size_t> origin_;  // stored tensor -> place in tensors_
  io::SafetensorsWriter writer_;
  std::vector<float> quantiles_;
  std::vector<F8E4M3> fp8_codes_;  // the same for every width: the scale carries it
  Tables inner_, residual_;
  std::map<std::string, std::vector<F8E4M3>> scales_;  // of codes whose scales are not written yet
  std::vector<Piece> batch_;
  int64_t batch_bytes_ = 0, written_ = 0;
};

}  // namespace

bool write_random_weights(const Config& config, const std::filesystem::path& folder, const RandomWeights& options,
                          const sys::FunctionRef<bool(int64_t)>& progress) {
  return RandomWriter(config, folder, options, progress).write();
}

}  // namespace braid::models
