#include "models/compressed_weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "codec/compressed_rows.h"
#include "codec/ggml_blocks.h"
#include "codec/nvfp4.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

class Reader {
 public:
  Reader(WeightStore& store, const io::Safetensors& files, const std::string& where, std::string name, int64_t rows,
         int64_t cols)
      : store_(store), files_(files), where_(where), name_(std::move(name)), rows_(rows), cols_(cols) {}

  Weight read() {
    for (const char* word : {"_zero_point", "_g_idx"}) {
      if (files_.find(name_ + word))
        fail(where_, {.what = "tensor " + name_ + word + " is not supported",
                      .expected = "symmetric weights in the order of their columns"});
    }
    if (const View* shape = files_.find(name_ + "_shape")) check_matrix(*shape);
    const View& codes = files_.need(name_ + "_packed");
    const View& scales = files_.need(name_ + "_scale");
    if (codes.dtype == DType::i32) return integers(codes, scales);
    if (codes.dtype != DType::u8) wrong("_packed", codes, "I32 codes of 3, 4 or 8 bits, or U8 of MXFP4 or NVFP4");
    return scales.dtype == DType::u8 ? mxfp4(codes, scales) : nvfp4(codes, scales);
  }

 private:
  [[noreturn]] void wrong(const char* word, const View& have, const std::string& expected) const {
    fail(where_, {.what = "tensor " + name_ + word + " does not fit",
                  .got = fmt::format("{} {}", name_of(have.dtype), to_string(have.shape)),
                  .expected = expected});
  }
  void check_shape(const char* word, const View& have, const Shape& shape) const {
    if (have.shape != shape)
      wrong(word, have, fmt::format("{} of a matrix {}", to_string(shape), to_string(Shape{rows_, cols_})));
  }
  void check_matrix(const View& shape) const {
    const Shape want{rows_, cols_};
    const bool list = shape.dtype == DType::i64 && shape.shape == Shape{2};
    if (!list) wrong("_shape", shape, "I64 [2]");
    const Shape have{shape.as<int64_t>()[0], shape.as<int64_t>()[1]};
    if (have != want)
      fail(where_, {.what = "tensor " + name_ + "_shape is of another matrix",
                    .got = to_string(have),
                    .expected = to_string(want)});
  }
  int64_t blocks_of(int64_t values) const {
    if (cols_ % values == 0) return cols_ / values;
    fail(where_, {.what = "tensor " + name_ + "_packed has rows that its format cannot hold",
                  .got = fmt::format("{} values", cols_),
                  .expected = fmt::format("a multiple of {}", values)});
  }

  Weight nvfp4(const View& codes, const View& scales) const {
    const int64_t blocks = blocks_of(kNvfp4Block);
    check_shape("_packed", codes, {rows_, cols_ / 2});
    if (scales.dtype != DType::f8_e4m3) wrong("_scale", scales, "F8_E4M3 of NVFP4 or U8 of MXFP4");
    check_shape("_scale", scales, {rows_, blocks});
    check_scales(where_, name_ + "_scale", scales);
    const View& divisor = files_.need(name_ + "_global_scale");
    if (divisor.dtype != DType::f32 || divisor.count() != 1) wrong("_global_scale", divisor, "F32 [1]");
    const float global = 1 / *divisor.as<float>();
    if (!(global > 0) || std::isinf(global))
      fail(where_,
           {.what = "scale " + name_ + "_global_scale is damaged", .got = std::to_string(*divisor.as<float>())});
    return {.rows = rows_,
            .cols = cols_,
            .spec = {.format = Format::nvfp4, .block = kNvfp4Block},
            .codes = codes,
            .scales = scales,
            .global = global};
  }

  Weight mxfp4(const View& codes, const View& scales) {
    const int64_t groups = blocks_of(kCompressedGroup);
    check_shape("_packed", codes, {rows_, cols_ / 2});
    check_shape("_scale", scales, {rows_, groups});
    const std::span<const uint8_t> all(scales.as<uint8_t>(), static_cast<size_t>(scales.count()));
    if (std::find(all.begin(), all.end(), 255) != all.end())
      fail(where_, {.what = "scales " + name_ + "_scale are damaged", .got = "NaN"});
    return blocks(CompressedType::mxfp4, codes, [&](int64_t r, std::byte* out) {
      std::copy_n(reinterpret_cast<const std::byte*>(scales.as<uint8_t>(r)), groups, out);
    });
  }

  Weight integers(const View& codes, const View& scales) {
    const int64_t groups = blocks_of(kCompressedGroup);
    std::optional<CompressedType> type;
    for (const auto t : {CompressedType::int3, CompressedType::int4, CompressedType::int8}) {
      if (codes.shape == Shape{rows_, groups * code_bytes(t) / 4}) type = t;
    }
    if (!type)
      wrong("_packed", codes, fmt::format("3, 4 or 8 bits a value of a matrix {}", to_string(Shape{rows_, cols_})));
    const bool floats = scales.dtype == DType::bf16 || scales.dtype == DType::f16 || scales.dtype == DType::f32;
    if (!floats || scales.shape.rank != 2 || scales.dim(0) != rows_ || scales.dim(1) < 1 || groups % scales.dim(1) != 0)
      wrong("_scale", scales,
            fmt::format("F16, BF16 or F32 [{}, groups], a group being a multiple of 32 values", rows_));
    const int64_t repeats = groups / scales.dim(1);
    const bool exact = exact_in_halves(scales);
    if (!exact) return decoded(*type, codes, scales, repeats);
    return blocks(*type, codes, [&](int64_t r, std::byte* out) {
      for (int64_t i = 0; i < scales.dim(1); ++i) {
        const F16 half = to_f16(scale_at(scales, r * scales.dim(1) + i));
        for (int64_t g = 0; g < repeats; ++g, out += sizeof(half)) std::memcpy(out, &half, sizeof(half));
      }
    });
  }

  // F32, BF16 or F16, as they lie in the file.
  static float scale_at(const View& scales, int64_t i) {
    if (scales.dtype == DType::bf16) return to_float(reinterpret_cast<const Bf16*>(scales.data)[i]);
    if (scales.dtype == DType::f16) return to_float(reinterpret_cast<const F16*>(scales.data)[i]);
    return reinterpret_cast<const float*>(scales.data)[i];
  }

  // Error where one is not finite.
  bool exact_in_halves(const View& scales) const {
    constexpr int64_t kGrain = 4096;
    std::atomic<bool> exact{true};
    std::atomic<int64_t> damaged{-1};
    sys::parallel_for(sys::default_threads(), scales.count(), kGrain, [&](int64_t begin, int64_t end) {
      bool all = true;
      for (int64_t i = begin; i < end; ++i) {
        const float scale = scale_at(scales, i);
        if (!std::isfinite(scale)) damaged = i;
        // BF16 has fewer bits than halves have, so a BF16 of their range is exact.
        const float size = std::fabs(scale);
        if (scales.dtype == DType::bf16 && size >= 0x1p-14f && size <= 65504) continue;
        all = all && to_float(to_f16(scale)) == scale;
      }
      if (!all) exact = false;
    });
    if (damaged >= 0)
      fail(where_,
           {.what = "scales " + name_ + "_scale are damaged", .got = fmt::format("{:g}", scale_at(scales, damaged))});
    return exact;
  }

  // `scales_of(row, out)` has the scales of a row as blocks have them.
  Weight blocks(CompressedType type, const View& codes, const sys::FunctionRef<void(int64_t, std::byte*)>& scales_of) {
    const int64_t groups = cols_ / kCompressedGroup;
    const GgmlTypeRow* block = ggml_type(static_cast<uint32_t>(blocks_for(type)));
    const MutView out = store_.make(DType::u8, {rows_, groups * block->bytes});
    sys::parallel_for(sys::default_threads(), rows_, 16, [&](int64_t begin, int64_t end) {
      std::vector<std::byte> scales(static_cast<size_t>(groups * scale_bytes(type)));
      for (int64_t r = begin; r < end; ++r) {
        scales_of(r, scales.data());
        compressed_to_blocks(type, codes.data + r * groups * code_bytes(type), scales.data(), groups,
                             out.data + r * out.dim(1));
      }
    });
    files_.give_back(codes);  // or memory would hold a model twice
    return ggml_weight(blocks_for(type), out, cols_);
  }

  // Scales that are inexact in half precision: F32 values.
  Weight decoded(CompressedType type, const View& codes, const View& scales, int64_t repeats) {
    const int64_t groups = cols_ / kCompressedGroup;
    const MutView out = store_.make(DType::f32, {rows_, cols_});
    const std::vector<F16> ones(static_cast<size_t>(groups), to_f16(1));
    const GgmlType blocks = blocks_for(type);
    sys::parallel_for(sys::default_threads(), rows_, 16, [&](int64_t begin, int64_t end) {
      std::vector<std::byte> row(static_cast<size_t>(groups * ggml_type(static_cast<uint32_t>(blocks))->bytes));
      for (int64_t r = begin; r < end; ++r) {
        compressed_to_blocks(type, codes.data + r * groups * code_bytes(type),
                             reinterpret_cast<const std::byte*>(ones.data()), groups, row.data());
        const std::span<float> values(out.as<float>(r), static_cast<size_t>(cols_));
        decode_ggml(blocks, row.data(), values);
        for (int64_t g = 0; g < groups; ++g) {
          const float scale = scale_at(scales, r * scales.dim(1) + g / repeats);
          for (float& v : values.subspan(static_cast<size_t>(g * kCompressedGroup), kCompressedGroup)) v *= scale;
        }
      }
    });
    files_.give_back(codes);
    return dense_weight(out);
  }

  WeightStore& store_;
  const io::Safetensors& files_;
  const std::string& where_;
  std::string name_;
  int64_t rows_, cols_;
};

// All scales of a model are read before its first token: eight at a time, as plain code for single bytes took half of
// the time of a start. 0x7f is NaN, of either sign; plus one it alone carries into the bit of the sign.
bool has_nan(const uint8_t* bits, int64_t n) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  uint64_t carried = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bits + i, sizeof word);
    carried |= (word & (kOnes * 0x7f)) + kOnes;
  }
  for (; i < n; ++i) carried |= static_cast<uint64_t>((bits[i] & 0x7f) + 1);
  return (carried & (kOnes * 0x80)) != 0;
}

}  // namespace

Weight compressed_weight(WeightStore& store, const io::Safetensors& files, const std::string& where,
                         const std::string& name, int64_t rows, int64_t cols) {
  return Reader(store, files, where, name, rows, cols).read();
}

void check_scales(const std::string& where, const std::string& name, const View& scales) {
  for (int64_t r = 0; r < scales.dim(0); ++r) {
    const uint8_t* bits = &scales.as<F8E4M3>(r)->bits;
    if (has_nan(bits, scales.dim(1)))
      fail(where, {.what = "scales " + name + " are damaged", .got = fmt::format("NaN in row {}", r)});
  }
}

}  // namespace braid::models
