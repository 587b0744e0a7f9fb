#include "models/quant_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "math/ggml_blocks.h"
#include "math/ggml_encode.h"
#include "models/block_coder.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

QuantFormatRow compressed_row(const char* name, CompressedType type) {
  return {name, kCompressedGroup, largest_encoded(blocks_for(type)), type};
}

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

bool has_block_scales(QuantFormat format) { return row_of(format).block > 1; }

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

float measured_global(const Weight& w, QuantFormat format, ScaleSearch search, const MatrixName& name, int threads) {
  std::vector<float> largest(static_cast<size_t>(w.rows));
  for_each_row(w, threads, [&](int64_t r, std::span<const float> values) {
    float& amax = largest[static_cast<size_t>(r)];
    for (float v : values) amax = std::isnan(v) ? HUGE_VALF : std::max(amax, std::fabs(v));
  });
  const float amax = *std::max_element(largest.begin(), largest.end()), most = row_of(format).largest;
  if (!std::isfinite(amax)) fail(name.model, {.what = "a matrix has a value that is not finite", .got = name.matrix});
  if (amax > most)
    fail(name.model, {.what = fmt::format("{} has a value that {} cannot hold", name.matrix, row_of(format).name),
                      .got = fmt::format("{:g}", amax),
                      .expected = fmt::format("up to {:g}", most)});
  return amax < std::numeric_limits<float>::min() ? 0 : global_scale(format, amax, search);
}

Encoded encode(const Weight& w, QuantFormat format, float global, ScaleSearch search, int threads) {
  const BlockCoder coder(format, global, search);
  const size_t code_bytes = coder.code_bytes(w.cols), scale_bytes = coder.scale_bytes(w.cols),
               rows = static_cast<size_t>(w.rows);
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

Weight weight_of(const Encoded& matrix, int64_t rows, int64_t cols, QuantFormat format, float global,
                 WeightStore& store) {
  const auto copied = [&](const std::vector<std::byte>& bytes, DType type, const Shape& shape) {
    const MutView to = store.make(type, shape);
    CHECK(to.bytes() == std::ssize(bytes), "{} bytes for {}", bytes.size(), to_string(shape));
    std::copy(bytes.begin(), bytes.end(), to.data);
    return View(to);
  };
  Weight w{.rows = rows, .cols = cols};
  if (format == QuantFormat::fp8) {
    w.spec = {.format = Format::f8_e4m3};
    w.codes = copied(matrix.codes, DType::f8_e4m3, {rows, cols});
    w.global = global;
    return w;
  }
  if (format == QuantFormat::nvfp4) {
    w.spec = {.format = Format::nvfp4, .block = static_cast<int>(kNvfp4Block)};
    w.codes = copied(matrix.codes, DType::u8, {rows, cols / 2});
    w.scales = copied(matrix.scales, DType::f8_e4m3, {rows, cols / kNvfp4Block});
    w.global = global;
    return w;
  }
  const GgmlType type = blocks_for(*row_of(format).compressed);
  const int64_t bytes = cols / kCompressedGroup * ggml_type(static_cast<uint32_t>(type))->bytes;
  const MutView blocks = store.make(DType::u8, {rows, bytes});
  const BlockCoder coder(format, global, ScaleSearch::max);
  const size_t code_bytes = coder.code_bytes(cols), scale_bytes = coder.scale_bytes(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<size_t>(r);
    coder.to_blocks(matrix.codes.data() + row * code_bytes, matrix.scales.data() + row * scale_bytes, cols,
                    blocks.data + r * bytes);
  }
  return ggml_weight(type, blocks, cols);
}

}  // namespace braid::models
