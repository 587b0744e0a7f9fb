#include "models/quant_format.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "math/ggml_blocks.h"
#include "math/ggml_encode.h"
#include "sys/check.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

QuantFormatRow compressed_row(const char* name, CompressedType type) {
  return {name, kCompressedGroup, largest_encoded(blocks_for(type)), type};
}

// Encodes a row in the layout of the files, and decodes it.
class RowCoder {
 public:
  RowCoder(const Weight& w, QuantFormat format, float global, ScaleSearch search)
      : cols_(w.cols), format_(format), type_(row_of(format).compressed), global_(global), search_(search) {}

  size_t code_bytes() const {
    if (type_) return static_cast<size_t>(groups() * braid::code_bytes(*type_));
    return static_cast<size_t>(format_ == QuantFormat::nvfp4 ? cols_ / 2 : cols_);
  }
  size_t scale_bytes() const {
    if (type_) return static_cast<size_t>(groups() * braid::scale_bytes(*type_));
    return static_cast<size_t>(format_ == QuantFormat::nvfp4 ? cols_ / kNvfp4Block : 0);
  }

  void encode(std::span<const float> values, std::byte* codes, std::byte* scales) const {
    if (type_) return encode_compressed(*type_, values, search_, codes, scales);
    if (format_ == QuantFormat::fp8) return encode_fp8_row(values, global_, reinterpret_cast<F8E4M3*>(codes));
    encode_nvfp4_row(values, global_, reinterpret_cast<uint8_t*>(codes), reinterpret_cast<F8E4M3*>(scales), search_);
  }

  void decode(const std::byte* codes, const std::byte* scales, std::span<float> values) const {
    if (type_) {
      const GgmlType type = blocks_for(*type_);
      const GgmlTypeRow* block = ggml_type(static_cast<uint32_t>(type));
      std::vector<std::byte> blocks(static_cast<size_t>(groups() * block->bytes));
      compressed_to_blocks(*type_, codes, block_scales(scales).data(), groups(), blocks.data());
      return decode_ggml(type, blocks.data(), values);
    }
    const bool fp4 = format_ == QuantFormat::nvfp4;
    const Weight row{
        .rows = 1,
        .cols = cols_,
        .spec = {.format = fp4 ? Format::nvfp4 : Format::f8_e4m3, .block = fp4 ? static_cast<int>(kNvfp4Block) : 0},
        .codes = View(codes, fp4 ? DType::u8 : DType::f8_e4m3, {1, fp4 ? cols_ / 2 : cols_}),
        .scales = fp4 ? View(scales, DType::f8_e4m3, {1, cols_ / kNvfp4Block}) : View()};
    decode_row(row, 0, 0, cols_, values.data());
    for (float& v : values) v *= global_;
  }

 private:
  int64_t groups() const { return cols_ / kCompressedGroup; }
  // A row's scales as in the blocks of GGUF.
  std::vector<std::byte> block_scales(const std::byte* stored) const {
    std::vector<std::byte> out(stored, stored + scale_bytes());
    if (type_ == CompressedType::mxfp4) return out;
    for (auto* scale = reinterpret_cast<uint16_t*>(out.data());
         scale != reinterpret_cast<uint16_t*>(out.data() + out.size()); ++scale)
      *scale = to_f16(to_float(Bf16{*scale})).bits;
    return out;
  }

  int64_t cols_;
  QuantFormat format_;
  std::optional<CompressedType> type_;
  float global_;
  ScaleSearch search_;
};

}  // namespace

std::span<const QuantFormatRow> quant_formats() {
  using enum CompressedType;
  constexpr float kAny = std::numeric_limits<float>::max();
  static const QuantFormatRow kRows[] = {{.name = "bf16", .largest = kAny},
                                         {.name = "fp8", .largest = kAny},
                                         {.name = "nvfp4", .block = kNvfp4Block, .largest = kAny},
                                         compressed_row("mxfp4", mxfp4),
                                         compressed_row("int8", int8),
                                         compressed_row("int4", int4),
                                         compressed_row("int3", int3)};
  return kRows;
}

const QuantFormatRow& row_of(QuantFormat format) { return quant_formats()[static_cast<size_t>(format)]; }

std::optional<QuantFormat> quant_format(const std::string& name) {
  const auto rows = quant_formats();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const QuantFormatRow& row) { return row.name == name; });
  if (found == rows.end()) return std::nullopt;
  return static_cast<QuantFormat>(found - rows.begin());
}

std::vector<io::TensorSpec> stored_as(const std::string& name, const Shape& shape, QuantFormat format) {
  const int64_t rows = shape[0], cols = shape[1];
  if (format == QuantFormat::fp8) return {{name, DType::f8_e4m3, shape}, {name + "_scale", DType::f32, {}}};
  if (format == QuantFormat::nvfp4)
    return {{name, DType::u8, {rows, cols / 2}},
            {name + "_scale", DType::f8_e4m3, {rows, cols / kNvfp4Block}},
            {name + "_scale_2", DType::f32, {}}};
  const std::optional<CompressedType> type = row_of(format).compressed;
  CHECK(type, "no file layout for {}", row_of(format).name);
  const int64_t groups = cols / kCompressedGroup, bytes = groups * code_bytes(*type);
  if (type == CompressedType::mxfp4)
    return {{name + "_packed", DType::u8, {rows, bytes}}, {name + "_scale", DType::u8, {rows, groups}}};
  return {{name + "_packed", DType::i32, {rows, bytes / 4}},
          {name + "_scale", DType::bf16, {rows, groups}},
          {name + "_shape", DType::i64, {2}}};
}

float global_scale(QuantFormat format, float amax, ScaleSearch search) {
  if (format == QuantFormat::fp8) return fp8_global(amax);
  return format == QuantFormat::nvfp4 ? nvfp4_global(amax, search) : 1.0f;
}

float input_scale(QuantFormat format, float amax) {
  if (amax == 0) return 1;
  return format == QuantFormat::fp8 ? fp8_global(amax) : nvfp4_global(amax, ScaleSearch::max);
}

void for_each_row(const Weight& w, int threads, const sys::FunctionRef<void(int64_t, std::span<const float>)>& body) {
  sys::parallel_for(threads, w.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(w.cols));
    for (int64_t r = begin; r < end; ++r) {
      decode_row(w, r, 0, w.cols, values.data());
      for (float& v : values) v *= w.global;
      body(r, values);
    }
  });
}

Encoded encode(const Weight& w, QuantFormat format, float global, ScaleSearch search, int threads) {
  const RowCoder coder(w, format, global, search);
  const size_t code_bytes = coder.code_bytes(), scale_bytes = coder.scale_bytes(), rows = static_cast<size_t>(w.rows);
  Encoded out{.codes = std::vector<std::byte>(rows * code_bytes), .scales = std::vector<std::byte>(rows * scale_bytes)};
  std::vector<double> error(rows), square(rows);
  for_each_row(w, threads, [&](int64_t r, std::span<const float> values) {
    const auto row = static_cast<size_t>(r);
    std::byte *codes = out.codes.data() + row * code_bytes, *scales = out.scales.data() + row * scale_bytes;
    coder.encode(values, codes, scales);
    std::vector<float> back(values.size());
    coder.decode(codes, scales, back);
    for (size_t i = 0; i < back.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      error[row] += std::pow(value - static_cast<double>(back[i]), 2);
      square[row] += value * value;
    }
  });
  for (size_t r = 0; r < rows; ++r) {
    out.error += error[r];
    out.square += square[r];
  }
  return out;
}

}  // namespace braid::models
