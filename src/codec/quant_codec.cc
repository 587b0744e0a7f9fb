#include "codec/quant_codec.h"

#include <algorithm>
#include <cstring>

#include "sys/check.h"

namespace braid {

std::span<const QuantCodec> quant_codecs() {
  using enum CompressedType;
  static const QuantCodec kRows[] = {{.name = "bf16"},
                                     fp8_quant_codec(),
                                     nvfp4_quant_codec(),
                                     compressed_quant_codec(mxfp4),
                                     compressed_quant_codec(int8),
                                     compressed_quant_codec(int4),
                                     compressed_quant_codec(int3)};
  return kRows;
}

const QuantCodec& codec_of(QuantFormat format) { return quant_codecs()[static_cast<size_t>(format)]; }

std::optional<QuantFormat> quant_format(const std::string& name) {
  const auto rows = quant_codecs();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const QuantCodec& row) { return row.name == name; });
  if (found == rows.end()) return std::nullopt;
  return static_cast<QuantFormat>(found - rows.begin());
}

uint16_t BlockCoder::encoded_scale(std::span<const float> block, ScaleSearch search) const {
  std::byte codes[kCompressedGroup];  // a byte a value is the most
  uint16_t scale = 0;
  codec_->encode({scaling_.global, search}, block, codes, reinterpret_cast<std::byte*>(&scale));
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

uint16_t BlockCoder::scale_of(std::span<const float> block, std::span<const float> weights) const {
  if (!codec_->candidates) return 0;
  const bool zero = std::all_of(block.begin(), block.end(), [](float v) { return v == 0; });
  if (scaling_.search == ScaleSearch::max || weights.empty() || zero) return encoded_scale(block, scaling_.search);
  uint16_t best = encoded_scale(block, ScaleSearch::max);
  double least = weighted_error(block, weights, best);
  codec_->candidates(scaling_, block, best, [&](uint16_t scale) {
    if (const double error = weighted_error(block, weights, scale); error < least) {
      least = error;
      best = scale;
    }
  });
  return best;
}

void BlockCoder::encode_with(std::span<const float> row, std::span<const uint16_t> block_scales, std::byte* codes,
                             std::byte* scales) const {
  const auto each = static_cast<size_t>(codec_->scale_bytes);
  CHECK(each == 0 || std::ssize(block_scales) * block() == std::ssize(row), "{} scales, {} values", block_scales.size(),
        row.size());
  for (size_t i = 0; each > 0 && i < block_scales.size(); ++i) std::memcpy(scales + i * each, &block_scales[i], each);
  codec_->encode_with(scaling_, row, scales, codes);
}

}  // namespace braid
