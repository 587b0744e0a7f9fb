// The numbers of a matrix in one format of files, a row or a block at a time: to the nearest codes, from codes, and,
// for methods that correct one value by the errors of others, with scales that are chosen first. Values include
// `global`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "math/blocks.h"
#include "math/compressed_rows.h"
#include "models/quant_format.h"

namespace braid::models {

class BlockCoder {
 public:
  // `global` as global_scale gives it.
  BlockCoder(QuantFormat format, float global, ScaleSearch search);

  int64_t block() const { return block_; }  // values that share a scale; 1 where `global` is the only one
  // Of a row of `cols` values.
  size_t code_bytes(int64_t cols) const;
  size_t scale_bytes(int64_t cols) const;

  void encode(std::span<const float> row, std::byte* codes, std::byte* scales) const;
  void decode(const std::byte* codes, const std::byte* scales, std::span<float> row) const;
  // A row of compressed-tensors' layout as the blocks of GGUF that hold it (math/compressed_rows.h).
  void to_blocks(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* blocks) const;

  // The scale of a block as it is stored, by the search: with least sum of weights times squared errors, unless the
  // search is max. All weights are 1 if there are none.
  uint16_t scale_of(std::span<const float> block, std::span<const float> weights = {}) const;
  // The number that codes hold for a value in a block with such a scale.
  float rounded(float value, uint16_t scale) const;
  // As encode, with a scale for each block.
  void encode_with(std::span<const float> row, std::span<const uint16_t> block_scales, std::byte* codes,
                   std::byte* scales) const;

 private:
  uint16_t encoded_scale(std::span<const float> block, ScaleSearch search) const;
  double weighted_error(std::span<const float> block, std::span<const float> weights, uint16_t scale) const;
  template <class Body>
  void for_candidates(std::span<const float> block, uint16_t first, const Body& body) const;

  QuantFormat format_;
  int64_t block_;
  std::optional<CompressedType> type_;  // of compressed-tensors' layout
  float global_;
  ScaleSearch search_;
};

}  // namespace braid::models
