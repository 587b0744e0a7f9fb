#include "models/block_coder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "core/weight.h"
#include "math/ggml_blocks.h"
#include "sys/check.h"

namespace braid::models {
namespace {

// A row's scales as in the blocks of GGUF.
std::vector<std::byte> ggml_scales(CompressedType type, const std::byte* stored, size_t bytes) {
  std::vector<std::byte> out(stored, stored + bytes);
  if (type == CompressedType::mxfp4) return out;
  for (auto* scale = reinterpret_cast<uint16_t*>(out.data());
       scale != reinterpret_cast<uint16_t*>(out.data() + out.size()); ++scale)
    *scale = to_f16(to_float(Bf16{*scale})).bits;
  return out;
}

}  // namespace

BlockCoder::BlockCoder(QuantFormat format, float global, ScaleSearch search)
    : format_(format),
      block_(row_of(format).block),
      type_(row_of(format).compressed),
      global_(global),
      search_(search) {}

size_t BlockCoder::code_bytes(int64_t cols) const {
  if (type_) return static_cast<size_t>(cols / kCompressedGroup * braid::code_bytes(*type_));
  return static_cast<size_t>(format_ == QuantFormat::nvfp4 ? cols / 2 : cols);
}

size_t BlockCoder::scale_bytes(int64_t cols) const {
  if (type_) return static_cast<size_t>(cols / kCompressedGroup * braid::scale_bytes(*type_));
  return static_cast<size_t>(format_ == QuantFormat::nvfp4 ? cols / kNvfp4Block : 0);
}

void BlockCoder::encode(std::span<const float> row, std::byte* codes, std::byte* scales) const {
  if (type_) return encode_compressed(*type_, row, search_, codes, scales);
  if (format_ == QuantFormat::fp8) return encode_fp8_row(row, global_, reinterpret_cast<F8E4M3*>(codes));
  encode_nvfp4_row(row, global_, reinterpret_cast<uint8_t*>(codes), reinterpret_cast<F8E4M3*>(scales), search_);
}

void BlockCoder::decode(const std::byte* codes, const std::byte* scales, std::span<float> row) const {
  const int64_t cols = std::ssize(row);
  if (type_) {
    const GgmlType type = blocks_for(*type_);
    std::vector<std::byte> blocks(
        static_cast<size_t>(cols / kCompressedGroup * ggml_type(static_cast<uint32_t>(type))->bytes));
    to_blocks(codes, scales, cols, blocks.data());
    return decode_ggml(type, blocks.data(), row);
  }
  const bool fp4 = format_ == QuantFormat::nvfp4;
  const Weight one{
      .rows = 1,
      .cols = cols,
      .spec = {.format = fp4 ? Format::nvfp4 : Format::f8_e4m3, .block = fp4 ? static_cast<int>(kNvfp4Block) : 0},
      .codes = View(codes, fp4 ? DType::u8 : DType::f8_e4m3, {1, fp4 ? cols / 2 : cols}),
      .scales = fp4 ? View(scales, DType::f8_e4m3, {1, cols / kNvfp4Block}) : View()};
  decode_row(one, 0, 0, cols, row.data());
  for (float& v : row) v *= global_;
}

void BlockCoder::to_blocks(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* blocks) const {
  compressed_to_blocks(*type_, codes, ggml_scales(*type_, scales, scale_bytes(cols)).data(), cols / kCompressedGroup,
                       blocks);
}

uint16_t BlockCoder::encoded_scale(std::span<const float> block, ScaleSearch search) const {
  std::byte codes[kCompressedGroup];  // a byte a value is the most
  uint16_t scale = 0;
  auto* stored = reinterpret_cast<std::byte*>(&scale);
  if (type_) {
    encode_compressed(*type_, block, search, codes, stored);
  } else if (format_ == QuantFormat::nvfp4) {
    encode_nvfp4_row(block, global_, reinterpret_cast<uint8_t*>(codes), reinterpret_cast<F8E4M3*>(stored), search);
  }
  return scale;
}

double BlockCoder::weighted_error(std::span<const float> block, std::span<const float> weights, uint16_t scale) const {
  double sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const auto error = static_cast<double>(block[i] - rounded(block[i], scale));
    sum += static_cast<double>(weights[i]) * error * error;
  }
  return sum;
}

// The scales that encoders try, as they try them (math/blocks.cc, math/compressed_rows.cc).
template <class Body>
void BlockCoder::for_candidates(std::span<const float> block, uint16_t first, const Body& body) const {
  if (format_ == QuantFormat::nvfp4) {
    if (search_ == ScaleSearch::four_over_six) return body(encoded_scale(block, ScaleSearch::four_over_six));
    for (int bits = std::max(1, first - 8); bits <= std::min(0x7e, first + 8); ++bits)
      body(static_cast<uint16_t>(bits));
  } else if (type_ == CompressedType::mxfp4) {
    for (int exponent = std::max(0, first - 1); exponent <= std::min(254, first + 1); ++exponent)
      body(static_cast<uint16_t>(exponent));
  } else {
    const float scale = to_float(Bf16{first});
    for (const float sign : {1.0f, -1.0f}) {
      for (int percent = 60; percent <= 116; percent += 4)
        body(to_bf16(to_float(to_f16(sign * scale * static_cast<float>(percent) / 100))).bits);
    }
  }
}

uint16_t BlockCoder::scale_of(std::span<const float> block, std::span<const float> weights) const {
  if (format_ == QuantFormat::fp8) return 0;
  const bool zero = std::all_of(block.begin(), block.end(), [](float v) { return v == 0; });
  if (search_ == ScaleSearch::max || weights.empty() || zero) return encoded_scale(block, search_);
  uint16_t best = encoded_scale(block, ScaleSearch::max);
  double least = weighted_error(block, weights, best);
  for_candidates(block, best, [&](uint16_t scale) {
    if (const double error = weighted_error(block, weights, scale); error < least) {
      least = error;
      best = scale;
    }
  });
  return best;
}

float BlockCoder::rounded(float value, uint16_t scale) const {
  if (type_) return round_compressed(*type_, value, scale);
  if (format_ == QuantFormat::fp8) return to_float(to_f8e4m3(value / global_)) * global_;
  const float stored = to_float(F8E4M3{static_cast<uint8_t>(scale)});
  // As decode: the code times the scale is exact, and `global` rounds once.
  return e2m1_value(e2m1_code(value / (stored * global_))) * stored * global_;
}

void BlockCoder::encode_with(std::span<const float> row, std::span<const uint16_t> block_scales, std::byte* codes,
                             std::byte* scales) const {
  if (format_ == QuantFormat::fp8) return encode_fp8_row(row, global_, reinterpret_cast<F8E4M3*>(codes));
  CHECK(std::ssize(block_scales) * block_ == std::ssize(row), "{} scales, {} values", block_scales.size(), row.size());
  const size_t each = scale_bytes(block_);
  for (size_t i = 0; i < block_scales.size(); ++i) std::memcpy(scales + i * each, &block_scales[i], each);
  if (type_) return encode_compressed_with(*type_, row, scales, codes);
  for (size_t i = 0; i < row.size(); i += 2) {
    const auto stored = static_cast<uint8_t>(block_scales[i / static_cast<size_t>(block_)]);
    const float scale = to_float(F8E4M3{stored}) * global_;
    codes[i / 2] = static_cast<std::byte>(e2m1_code(row[i] / scale) | e2m1_code(row[i + 1] / scale) << 4);
  }
}

}  // namespace braid::models
