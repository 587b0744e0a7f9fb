// A weight of any format with the bytes behind it, normal numbers that depend on the seed alone. For tests only.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "codec/fp8.h"
#include "codec/ggml_encode.h"
#include "codec/nvfp4.h"
#include "core/op_sweep.h"

namespace braid {

class TestWeight {
 public:
  TestWeight(Format format, int64_t rows, int64_t cols, uint64_t seed, double scale = 1)
      : values_(dtype_of(format), {rows, cols}, seed, scale), weight_(dense_weight(values_.view())) {
    if (format == Format::nvfp4 || format == Format::f8_e4m3) encode(format);
  }
  // Of blocks that encode_ggml makes.
  TestWeight(GgmlType type, int64_t rows, int64_t cols, uint64_t seed, double scale = 1)
      : values_(DType::f32, {rows, cols}, seed, scale) {
    const GgmlTypeRow& row = *ggml_type(static_cast<uint32_t>(type));
    const int64_t bytes = cols / row.values * row.bytes;
    codes_.resize(static_cast<size_t>(rows * bytes));
    encode_ggml(type, {values_.view().as<float>(), static_cast<size_t>(rows * cols)},
                reinterpret_cast<std::byte*>(codes_.data()));
    weight_ = ggml_weight(type, view_of(codes_.data(), {rows, bytes}), cols);
  }
  const Weight& weight() const { return weight_; }

 private:
  static DType dtype_of(Format format) {
    return format == Format::bf16 ? DType::bf16 : format == Format::f16 ? DType::f16 : DType::f32;
  }

  void encode(Format format) {
    const int64_t rows = weight_.rows, cols = weight_.cols;
    const std::span<const float> all(values_.view().as<float>(), static_cast<size_t>(rows * cols));
    float amax = 0;
    for (const float v : all) amax = std::max(amax, std::fabs(v));
    const bool fp4 = format == Format::nvfp4;
    codes_.resize(fp4 ? all.size() / 2 : 0);
    eights_.resize(fp4 ? all.size() / 16 : all.size());
    const float global = fp4 ? nvfp4_global(amax) : fp8_global(amax);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = all.subspan(static_cast<size_t>(r * cols), static_cast<size_t>(cols));
      if (fp4) {
        encode_nvfp4_row(row, global, &codes_[static_cast<size_t>(r * cols / 2)],
                         &eights_[static_cast<size_t>(r * cols / 16)]);
      } else {
        encode_fp8_row(row, global, &eights_[static_cast<size_t>(r * cols)]);
      }
    }
    weight_ = {.rows = rows, .cols = cols, .spec = {format, fp4 ? 16 : 0}, .global = global};
    weight_.codes = fp4 ? view_of(codes_.data(), {rows, cols / 2}) : view_of(eights_.data(), {rows, cols});
    if (fp4) weight_.scales = view_of(eights_.data(), {rows, cols / 16});
  }

  TestTensor values_;
  std::vector<uint8_t> codes_{};
  std::vector<F8E4M3> eights_{};
  Weight weight_;
};

}  // namespace braid
