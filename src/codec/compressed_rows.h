// Rows of matrices as compressed-tensors stores them (pack-quantized, mxfp4-pack-quantized), and the blocks of GGUF
// that hold the same numbers:
//
//   int3 int4 int8  (code - 2^(bits-1)) * scale; codes are a stream of bits, the lowest first; scales BF16
//   mxfp4           E2M1 * 2^(scale - 127); the even column in the low nibble; scales U8
//
//   https://github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/scale_search.h"
#include "core/ggml_type.h"

namespace braid {

inline constexpr int64_t kCompressedGroup = 32;  // values that share a scale

enum class CompressedType : uint8_t { int3, int4, int8, mxfp4 };

constexpr int bits_of(CompressedType t) {
  constexpr int kBits[] = {3, 4, 8, 4};
  return kBits[static_cast<int>(t)];
}
// Of one group.
constexpr int64_t scale_bytes(CompressedType t) { return t == CompressedType::mxfp4 ? 1 : 2; }
constexpr int64_t code_bytes(CompressedType t) { return kCompressedGroup * bits_of(t) / 8; }

// Whole groups of finite values up to largest_encoded(blocks_for(type)). ScaleSearch::max maps the value of the largest
// magnitude to the end of the codes, as GGUF's Q4_0 and Q8_0 do; any other search takes the scale with the least
// squared error of those around it. Scales of integers are exact in BF16 and in half precision.
void encode_compressed(CompressedType type, std::span<const float> values, ScaleSearch search, std::byte* codes,
                       std::byte* scales);

// The same, of groups whose scales are known: the nearest codes. `scales` are as encode_compressed stores them.
void encode_compressed_with(CompressedType type, std::span<const float> values, const std::byte* scales,
                            std::byte* codes);
// The number that is stored for one value in a group with such a scale.
float round_compressed(CompressedType type, float value, uint16_t scale);

// The blocks that hold such values: Q4_0 for three and four bits, Q8_0 and MXFP4.
GgmlType blocks_for(CompressedType type);
// Codes of `groups` groups, and their scales as the blocks have them (F16 or U8), to blocks of the same values.
void compressed_to_blocks(CompressedType type, const std::byte* codes, const std::byte* scales, int64_t groups,
                          std::byte* blocks);
// The same of scales as files have them (BF16 or U8).
void stored_to_blocks(CompressedType type, const std::byte* codes, const std::byte* scales, int64_t groups,
                      std::byte* blocks);

}  // namespace braid
