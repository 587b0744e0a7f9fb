// The rows of QuantCodec for formats of compressed-tensors.
#include <algorithm>
#include <vector>

#include "codec/ggml_blocks.h"
#include "codec/ggml_encode.h"
#include "codec/quant_codec.h"

namespace braid {
namespace {

using enum CompressedType;

template <CompressedType kType>
void encode(const QuantScaling& s, std::span<const float> row, std::byte* codes, std::byte* scales) {
  encode_compressed(kType, row, s.search, codes, scales);
}

template <CompressedType kType>
void encode_with(const QuantScaling&, std::span<const float> row, const std::byte* scales, std::byte* codes) {
  encode_compressed_with(kType, row, scales, codes);
}

template <CompressedType kType>
void decode(const QuantScaling&, const std::byte* codes, const std::byte* scales, std::span<float> row) {
  const GgmlType type = blocks_for(kType);
  const int64_t groups = std::ssize(row) / kCompressedGroup;
  std::vector<std::byte> blocks(static_cast<size_t>(groups * ggml_type(static_cast<uint32_t>(type))->bytes));
  stored_to_blocks(kType, codes, scales, groups, blocks.data());
  decode_ggml(type, blocks.data(), row);
}

template <CompressedType kType>
float rounded(const QuantScaling&, float value, uint16_t scale) {
  return round_compressed(kType, value, scale);
}

// As the encoders try them (compressed_rows.cc).
void integer_candidates(const QuantScaling&, std::span<const float>, uint16_t first, const Candidate& body) {
  const float scale = to_float(Bf16{first});
  for (const float sign : {1.0f, -1.0f}) {
    for (int percent = 60; percent <= 116; percent += 4)
      body(to_bf16(to_float(to_f16(sign * scale * static_cast<float>(percent) / 100))).bits);
  }
}
void mxfp4_candidates(const QuantScaling&, std::span<const float>, uint16_t first, const Candidate& body) {
  for (int exponent = std::max(0, first - 1); exponent <= std::min(254, first + 1); ++exponent)
    body(static_cast<uint16_t>(exponent));
}

template <CompressedType kType>
QuantCodec codec(const char* name) {
  const GgmlTypeRow& blocks = *ggml_type(static_cast<uint32_t>(blocks_for(kType)));
  QuantCodec row{.name = name,
                 .block = kCompressedGroup,
                 .code_bytes = code_bytes(kType),
                 .scale_bytes = scale_bytes(kType),
                 .largest = largest_encoded(blocks.type),
                 .compressed = kType,
                 .spec = {.format = Format::ggml, .block = static_cast<int>(blocks.values), .ggml = blocks.type},
                 .encode = &encode<kType>,
                 .encode_with = &encode_with<kType>,
                 .decode = &decode<kType>,
                 .rounded = &rounded<kType>};
  if (kType == mxfp4) {
    row.parts = {{.suffix = "_packed", .dtype = DType::u8, .each = row.code_bytes},
                 {.suffix = "_scale", .dtype = DType::u8, .each = 1}};
    row.candidates = &mxfp4_candidates;
  } else {
    row.parts = {{.suffix = "_packed", .dtype = DType::i32, .each = row.code_bytes / 4},
                 {.suffix = "_scale", .dtype = DType::bf16, .each = 1},
                 {.suffix = "_shape", .dtype = DType::i64, .alone = {2}}};
    row.candidates = &integer_candidates;
  }
  return row;
}

}  // namespace

QuantCodec compressed_quant_codec(CompressedType type) {
  switch (type) {
    case int3:
      return codec<int3>("int3");
    case int4:
      return codec<int4>("int4");
    case int8:
      return codec<int8>("int8");
    case mxfp4:
      return codec<mxfp4>("mxfp4");
  }
  return {};
}

}  // namespace braid
