// The formats that `braid quantize` writes, a row each: how the numbers of a matrix become codes and scales as files
// hold them, and back. FP8 (codec/fp8.h) and NVFP4 (codec/nvfp4.h) as ModelOpt lays them out, the others as
// compressed-tensors does (codec/compressed_rows.h). A new format is a file with its functions and a row of the table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/compressed_rows.h"
#include "codec/scale_search.h"
#include "core/weight.h"
#include "sys/function_ref.h"

namespace braid {

enum class QuantFormat : uint8_t { bf16, fp8, nvfp4, mxfp4, int8, int4, int3 };  // bf16: stays as it is

// A tensor in which files hold a part of a matrix.
struct StoredPart {
  const char* suffix;  // of the name of the matrix
  DType dtype;
  int64_t each = 0;  // elements for a block of values; 0: it has the shape `alone`
  Shape alone{};
};

// `global` is 1 in compressed-tensors' layout.
struct QuantScaling {
  float global = 1;
  ScaleSearch search = ScaleSearch::max;
};

using Candidate = sys::FunctionRef<void(uint16_t scale)>;

// Functions take rows of whole blocks, whose values include `global`; codes and scales are as files store them.
struct QuantCodec {
  const char* name;                                           // in options and recipes
  int64_t block = 1;                                          // values that share a scale
  int64_t code_bytes = 1, scale_bytes = 0;                    // of a block
  float largest = std::numeric_limits<float>::max();          // magnitude of a value
  std::optional<CompressedType> compressed{};                 // none: in ModelOpt's layout
  QuantSpec spec{};                                           // of the weight in memory
  std::vector<StoredPart> parts{};                            // codes first, then scales
  float (*global)(float amax, ScaleSearch search) = nullptr;  // for the largest magnitude of a matrix; null: 1
  void (*encode)(const QuantScaling& s, std::span<const float> row, std::byte* codes, std::byte* scales) = nullptr;
  // The nearest codes, where scales are known.
  void (*encode_with)(const QuantScaling& s, std::span<const float> row, const std::byte* scales,
                      std::byte* codes) = nullptr;
  void (*decode)(const QuantScaling& s, const std::byte* codes, const std::byte* scales,
                 std::span<float> row) = nullptr;
  // The number that codes hold for a value in a block with such a scale.
  float (*rounded)(const QuantScaling& s, float value, uint16_t scale) = nullptr;
  // The scales that a search tries for a block whose values `first` maps to the end of the codes; null: blocks have no
  // scales.
  void (*candidates)(const QuantScaling& s, std::span<const float> block, uint16_t first,
                     const Candidate& body) = nullptr;
};

std::span<const QuantCodec> quant_codecs();  // in the order of QuantFormat
const QuantCodec& codec_of(QuantFormat format);
std::optional<QuantFormat> quant_format(const std::string& name);

QuantCodec fp8_quant_codec();
QuantCodec nvfp4_quant_codec();
QuantCodec compressed_quant_codec(CompressedType type);

// The numbers of a matrix in one format, a row or a block at a time; for methods that correct one value by the errors
// of others, with scales that are chosen first.
class BlockCoder {
 public:
  BlockCoder(QuantFormat format, const QuantScaling& scaling) : codec_(&codec_of(format)), scaling_(scaling) {}

  int64_t block() const { return codec_->block; }
  // Of a row of `cols` values.
  size_t code_bytes(int64_t cols) const { return static_cast<size_t>(cols / block() * codec_->code_bytes); }
  size_t scale_bytes(int64_t cols) const { return static_cast<size_t>(cols / block() * codec_->scale_bytes); }

  void encode(std::span<const float> row, std::byte* codes, std::byte* scales) const {
    codec_->encode(scaling_, row, codes, scales);
  }
  void decode(const std::byte* codes, const std::byte* scales, std::span<float> row) const {
    codec_->decode(scaling_, codes, scales, row);
  }
  float rounded(float value, uint16_t scale) const { return codec_->rounded(scaling_, value, scale); }

  // The scale of a block as it is stored, by the search: with least sum of weights times squared errors, unless the
  // search is max. All weights are 1 if there are none.
  uint16_t scale_of(std::span<const float> block, std::span<const float> weights = {}) const;
  // As encode, with a scale for each block.
  void encode_with(std::span<const float> row, std::span<const uint16_t> block_scales, std::byte* codes,
                   std::byte* scales) const;

 private:
  uint16_t encoded_scale(std::span<const float> block, ScaleSearch search) const;
  double weighted_error(std::span<const float> block, std::span<const float> weights, uint16_t scale) const;

  const QuantCodec* codec_;
  QuantScaling scaling_;
};

}  // namespace braid
