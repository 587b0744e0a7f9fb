// Weight: an operand of products, in any format. y = x W^T with W stored as [rows = outputs, cols = inputs], as
// PyTorch's Linear. Blocks never see a format; a product asks `spec` and either multiplies it in place or refuses.
//
//   format         codes                    value of element (r, c)
//   f32 f16 bf16   [rows, cols]             codes[r, c]
//   f8_e4m3        [rows, cols] F8_E4M3     codes[r, c] * global
//   nvfp4          [rows, cols/2] U8        e2m1(nibble) * scales[r, c/16] * global; even column in the low nibble,
//                                           scales [rows, cols/16] F8_E4M3
//   ggml           [rows, bytes of a row]   decode_ggml of the blocks of spec.ggml * global; cols are whole blocks
//   f32 bf16       the same, and `groups`   codes[r, c]; those that are not zero a second time, in groups of rows that
//                                           products read in place of the codes
//
// docs/internals/formats.md has the layouts in files.
#pragma once
#include <cstdint>
#include <span>

#include "core/ggml_type.h"
#include "core/view.h"

namespace braid {

struct GroupedView;

enum class Format : uint8_t { f32, f16, bf16, f8_e4m3, nvfp4, ggml };
const char* name_of(Format f);

struct QuantSpec {
  Format format = Format::bf16;
  int block = 0;                  // values that share a scale; 0: none, or one for the whole tensor
  GgmlType ggml = GgmlType::f32;  // of the blocks of Format::ggml
  bool operator==(const QuantSpec&) const = default;
};
const char* name_of(const QuantSpec& spec);  // of the type of its blocks, if they are of GGUF

struct Weight {
  int64_t rows = 0, cols = 0;
  QuantSpec spec{};
  View codes{}, scales{};
  float global = 1.0f;
  const GroupedView* groups = nullptr;  // of all rows, for a forward without training; null: none

  explicit operator bool() const { return static_cast<bool>(codes); }
  int64_t bytes() const { return codes.bytes() + (scales ? scales.bytes() : 0); }
  // That a product reads and multiplies by: those of the groups, if there are any.
  int64_t product_bytes() const;
  int64_t product_values() const;
  // Rows [begin, begin + n) of the same weight: for blocking products and for parts of fused projections.
  Weight rows_of(int64_t begin, int64_t n) const;
};

// Blocks of a GGUF file, [rows, bytes of a row] U8.
Weight ggml_weight(GgmlType type, const View& blocks, int64_t cols, float global = 1);

// An unquantised weight over a matrix of values, [rows, cols] F32, F16 or BF16.
Weight dense_weight(const View& values);

}  // namespace braid
