#include "math/tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "math/blocks.h"

namespace braid::tiles {
namespace {

constexpr int64_t kBlock = 16, kStep = 32;  // rows of x and values along k of a packed tile
constexpr int64_t kChunk = 512;             // values along k between two uses of the sums: 32 KiB of w stay in L1
constexpr int kUp = 64, kDown = 48;         // powers of two: of activations for codes, and back (tile.h)

int64_t blocks_of(int64_t rows) { return (rows + kBlock - 1) / kBlock; }
int64_t steps_of(int64_t depth) { return (depth + kStep - 1) / kStep; }
int64_t sum_stride(int64_t rows) { return blocks_of(rows) * kBlock; }
int64_t sum_bytes(int64_t rows) { return kStripCols * sum_stride(rows) * static_cast<int64_t>(sizeof(float)); }

bool has_codes(Format format) { return format == Format::nvfp4 || format == Format::f8_e4m3; }

// Values [begin, begin + n) of rows [first, first + rows) of w, with zeros up to `width` values and kStripCols rows.
// Prefetches the same part of the strip below: one strip is read as a stream, in whatever order it is walked.
void read_chunk(const Walk& walk, const Weight& w, int64_t first, int64_t rows, int64_t begin, int64_t n, int64_t width,
                uint16_t* out) {
  for (int64_t r = first; r < first + rows; ++r, out += kChunk) {
    switch (w.spec.format) {
      case Format::nvfp4: {
        const uint8_t* codes = w.codes.as<uint8_t>(r) + begin / 2;
        const auto* scales = &w.scales.as<F8E4M3>(r)[begin / kNvfp4Block].bits;
        for (int64_t line = 0; line < n / 2; line += 64)
          __builtin_prefetch(codes + kStripCols * w.codes.stride(0) + line);
        __builtin_prefetch(scales + kStripCols * w.scales.stride(0));
        walk.nvfp4(codes, scales, n, out);
        break;
      }
      case Format::f8_e4m3: {
        const auto* codes = &w.codes.as<F8E4M3>(r)[begin].bits;
        for (int64_t line = 0; line < n; line += 64) __builtin_prefetch(codes + kStripCols * w.codes.stride(0) + line);
        walk.fp8(codes, n, out);
        break;
      }
      case Format::ggml: {
        const int64_t row_bytes = w.codes.dim(1), at = row_bytes * begin / w.cols,
                      last = row_bytes * (begin + n) / w.cols;
        const uint8_t* codes = w.codes.as<uint8_t>(r) + kStripCols * w.codes.stride(0);
        for (int64_t line = at; line < last; line += 64) __builtin_prefetch(codes + line);
        decode_row(w, r, begin, n, reinterpret_cast<Bf16*>(out));
        break;
      }
      default:
        decode_row(w, r, begin, n, reinterpret_cast<Bf16*>(out));
    }
    if (width > n) std::memset(out + n, 0, static_cast<size_t>(width - n) * 2);
  }
  for (int64_t r = rows; r < kStripCols; ++r, out += kChunk) std::memset(out, 0, static_cast<size_t>(width) * 2);
}

template <class Num>
void write(const float* sums, int64_t stride, int64_t cols, float factor, const MutView& y, int64_t col) {
  for (int64_t m = 0; m < y.dim(0); ++m) {
    Num* out = y.as<Num>(m) + col;
    for (int64_t n = 0; n < cols; ++n) {
      const float v = sums[n * stride + m] * factor;
      if constexpr (std::is_same_v<Num, Bf16>) {
        out[n] = to_bf16(v);
      } else {
        out[n] = v;
      }
    }
  }
}

}  // namespace

const char* refusal(const Weight& w) {
  switch (w.spec.format) {
    case Format::bf16:
    case Format::nvfp4:
    case Format::f8_e4m3:
    case Format::ggml:
      return nullptr;
    default:
      return "weights in a format that tiles do not read";
  }
}

int64_t packed_bytes(int64_t rows, int64_t depth) {
  return std::min(rows, kRowsMax) * steps_of(depth) * kStep * static_cast<int64_t>(sizeof(Bf16));
}

void pack(const View& x, Format weights, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t depth = x.dim(1), steps = steps_of(depth);
  const float factor = has_codes(weights) ? std::ldexp(1.0f, kUp) : 1.0f;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t rows = std::min(kBlock, x.dim(0) - i * kBlock);
    Bf16* out = reinterpret_cast<Bf16*>(packed) + i * steps * kStep * kBlock;
    for (int64_t r = 0; r < rows; ++r) {
      const Bf16* row = x.as<Bf16>(i * kBlock + r);
      Bf16* to = out + 2 * r;
      int64_t k = 0;
      for (; k + 2 <= depth; k += 2, to += 2 * rows) {
        to[0] = has_codes(weights) ? to_bf16(to_float(row[k]) * factor) : row[k];
        to[1] = has_codes(weights) ? to_bf16(to_float(row[k + 1]) * factor) : row[k + 1];
      }
      for (; k < steps * kStep; k += 2, to += 2 * rows) {
        to[0] = k < depth ? to_bf16(to_float(row[k]) * factor) : Bf16{};
        to[1] = Bf16{};
      }
    }
  }
}

int64_t workspace(int64_t rows) {
  return sum_bytes(std::min(rows, kRowsMax)) + kStripCols * kChunk * static_cast<int64_t>(sizeof(Bf16));
}

void product(const Walk& walk, const std::byte* packed, const Weight& w, const MutView& y,
             std::span<std::byte> workspace) {
  const int64_t depth = w.cols, rows = y.dim(0), stride = sum_stride(rows);
  const bool codes = has_codes(w.spec.format);
  const float factor = codes ? std::ldexp(w.global, kDown) : w.global;
  auto* sums = reinterpret_cast<float*>(workspace.data());
  auto* chunk = reinterpret_cast<uint16_t*>(workspace.data() + sum_bytes(rows));
  int64_t width = 0;
  Strip s{.packed = reinterpret_cast<const uint16_t*>(packed),
          .depth_steps = steps_of(depth),
          .rows = rows,
          .sums = sums,
          .sum_stride = stride,
          .width = &width};
  for (int64_t n = 0; n < w.rows; n += kStripCols) {
    const int64_t cols = std::min(kStripCols, w.rows - n);
    for (int64_t k = 0; k < depth; k += kChunk) {
      const int64_t values = std::min(kChunk, depth - k);
      s.steps = steps_of(values);
      s.first_step = k / kStep;
      s.add = k > 0;
      if (w.spec.format != Format::bf16 || cols < kStripCols || values % kStep != 0) {
        read_chunk(walk, w, n, cols, k, values, s.steps * kStep, chunk);
        s.w = chunk;
        s.w_stride = kChunk;
        s.ahead = 0;
      } else {
        s.w = reinterpret_cast<const uint16_t*>(w.codes.as<Bf16>(n) + k);
        s.w_stride = w.codes.stride(0);
        s.ahead = rows <= kBlock ? kStripCols * s.w_stride : 0;
      }
      walk.strip(s);
    }
    if (y.dtype == DType::bf16) {
      write<Bf16>(sums, stride, cols, factor, y, n);
    } else {
      write<float>(sums, stride, cols, factor, y, n);
    }
  }
  walk.release();
}

}  // namespace braid::tiles
