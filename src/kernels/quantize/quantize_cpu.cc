// A matrix is processed in tiles of whole blocks: loaded as floats with zeros at the edges, mixed, scaled, rounded to
// the element's grid by adding and subtracting a number whose last bit is the grid's step, and stored.
#include "kernels/quantize/quantize.h"

#include <algorithm>
#include <atomic>

#include "kernels/quantize/quantize_rows.h"
#include "sys/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/quantize_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/philox-inl.h"
#include "math/vec-inl.h"

#ifndef BRAID_QUANTIZE_TILE_
#define BRAID_QUANTIZE_TILE_
namespace braid::quantizer {

constexpr int64_t kTile = 128;  // columns, and rows at most: the largest block
constexpr int64_t kMix = 16;    // rows of a Hadamard block

// Representable elements: multiples of 2^-mantissa times their power of two, which is at least `least`.
struct Grid {
  int mantissa;
  float least, largest;
};
constexpr Grid kE4M3{3, 0x1p-6f, 448}, kE5M2{2, 0x1p-14f, 57344}, kE2M1{1, 1, 6};

struct MatrixTile {
  const std::byte* x = nullptr;
  std::byte* q = nullptr;
  bool x_bf16 = false, q_bf16 = false;
  int64_t x_stride = 0, q_stride = 0;  // elements
  int64_t rows = 0, cols = 0;          // of x
  OperandSpec spec{};
  Grid grid = kE4M3;
  int64_t block = kTile;
  float matrix_amax = 0;
  Noise noise{};
  int64_t row = 0, col = 0;  // of the tile in the matrix
};

}  // namespace braid::quantizer
#endif

HWY_BEFORE_NAMESPACE();
namespace braid::quantizer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using braid::HWY_NAMESPACE::load;
using braid::HWY_NAMESPACE::store;
using braid::HWY_NAMESPACE::store_n;

// At most 16 lanes: no vector crosses a block.
using FloatTag = hn::CappedTag<float, 16>;
using BitsTag = hn::Rebind<uint32_t, FloatTag>;
using Vec = hn::VFromD<FloatTag>;
using Bits = hn::VFromD<BitsTag>;

int64_t up_to(int64_t n, int64_t block) { return (n + block - 1) / block * block; }

// What was loaded: columns to the end of the last block, rows to the end of the last Hadamard block, zeros at the
// edges.
struct Loaded {
  int64_t rows, cols;
};

template <class Num>
void load_rows(const MatrixTile& t, int64_t width, float* v) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* x = reinterpret_cast<const Num*>(t.x);
  for (int64_t r = 0; r < t.rows; ++r, x += t.x_stride, v += kTile) {
    int64_t c = 0;
    for (; c + lanes <= t.cols; c += lanes) hn::StoreU(load(d, x + c), d, v + c);
    for (; c < t.cols; ++c) v[c] = to_float(x[c]);
    for (; c < width; ++c) v[c] = 0;
  }
}

// Sylvester's Hadamard matrix by butterflies, over columns of 16 values with signs.
void mix(float* v, int64_t width) {
  constexpr float kSigns[kMix] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  const FloatTag d;
  for (int64_t c = 0; c < width; c += static_cast<int64_t>(hn::Lanes(d))) {
    Vec rows[kMix];
    for (int64_t r = 0; r < kMix; ++r)
      rows[r] = hn::Mul(hn::Set(d, 0.25f * kSigns[r]), hn::LoadU(d, v + r * kTile + c));
    for (int64_t half = 1; half < kMix; half *= 2) {
      for (int64_t r = 0; r < kMix; ++r) {
        if (r & half) continue;
        const Vec a = rows[r], b = rows[r + half];
        rows[r] = hn::Add(a, b);
        rows[r + half] = hn::Sub(a, b);
      }
    }
    for (int64_t r = 0; r < kMix; ++r) hn::StoreU(rows[r], d, v + r * kTile + c);
  }
}

Loaded load_tile(const MatrixTile& t, float* v) {
  const Loaded size{up_to(t.rows, t.spec.hadamard ? kMix : 1), up_to(t.cols, t.block)};
  (t.x_bf16 ? load_rows<Bf16> : load_rows<float>)(t, size.cols, v);
  for (int64_t i = t.rows * kTile; i < size.rows * kTile; ++i) v[i] = 0;
  for (int64_t r = 0; t.spec.hadamard && r < size.rows; r += kMix) mix(v + r * kTile, size.cols);
  return size;
}

// Of those that are not NaN: of two operands that do not compare, Max takes the second.
float largest(const float* v, int64_t n) {
  const FloatTag d;
  Vec most = hn::Zero(d);
  for (int64_t c = 0; c < n; c += static_cast<int64_t>(hn::Lanes(d)))
    most = hn::Max(hn::Abs(hn::LoadU(d, v + c)), most);
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

float tile_amax(const MatrixTile& t) {
  HWY_ALIGN float v[kTile * kTile];
  const Loaded size = load_tile(t, v);
  float most = 0;
  for (int64_t r = 0; r < size.rows; ++r) most = HWY_MAX(most, largest(v + r * kTile, size.cols));
  return most;
}

// |v| at most `largest`: its power of two.
HWY_INLINE Vec power_of(Vec v, const Grid& grid) {
  const FloatTag d;
  const BitsTag bits;
  return hn::Max(hn::BitCast(d, hn::And(hn::BitCast(bits, v), hn::Set(bits, 0x7f800000u))), hn::Set(d, grid.least));
}

// v >= 0
HWY_INLINE Vec to_nearest(Vec v, const Grid& grid) {
  const FloatTag d;
  const Vec a = hn::Min(v, hn::Set(d, grid.largest));
  const Vec shift = hn::Mul(power_of(a, grid), hn::Set(d, 1.5f * static_cast<float>(1 << (23 - grid.mantissa))));
  return hn::Sub(hn::Add(a, shift), shift);
}

// v >= 0, noise in [0, 1)
HWY_INLINE Vec to_either(Vec v, Vec noise, const Grid& grid) {
  const FloatTag d;
  const Vec a = hn::Min(v, hn::Set(d, grid.largest));
  const Vec step = hn::Mul(power_of(a, grid), hn::Set(d, 1.0f / static_cast<float>(1 << grid.mantissa)));
  return hn::Min(hn::Mul(hn::Floor(hn::Add(hn::Div(a, step), noise)), step), hn::Set(d, grid.largest));
}

// Noise of columns [col, col + 64) of a row: column 16 j + i is word j of the Philox block (row, col / 4 + i) of
// core/philox.h.
void noise_of(const Noise& noise, int64_t row, int64_t col, float* out) {
  const FloatTag d;
  const BitsTag bits;
  const auto stream = hn::Set(bits, noise.key.stream), at = hn::Set(bits, static_cast<uint32_t>(noise.row0 + row));
  for (int64_t i = 0; i < kMix; i += static_cast<int64_t>(hn::Lanes(d))) {
    Bits words[4] = {hn::Iota(bits, static_cast<uint32_t>(col / 4 + i)), at, stream, hn::Zero(bits)};
    braid::HWY_NAMESPACE::philox_words(bits, noise.key.seed, words);
    for (int64_t j = 0; j < 4; ++j) {
      const hn::RebindToSigned<BitsTag> whole;
      const auto value = hn::ConvertTo(d, hn::BitCast(whole, hn::ShiftRight<8>(words[j])));
      hn::StoreU(hn::Mul(value, hn::Set(d, 0x1p-24f)), d, out + j * kMix + i);
    }
  }
}

// Turns n block maxima (n a multiple of a vector) into the scales of their blocks.
void to_scales(const MatrixTile& t, float* amax, int64_t n) {
  const FloatTag d;
  const BitsTag bits;
  const float global = t.matrix_amax > 0 ? t.matrix_amax / (6 * 448) : 1.0f;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    Vec v = hn::LoadU(d, amax + i);
    if (t.spec.encoding == Encoding::nvfp4) {
      const Vec ratio = hn::Max(hn::Div(v, hn::Set(d, 6 * global)), hn::Set(d, 0x1p-9f));
      v = hn::Mul(to_nearest(ratio, kE4M3), hn::Set(d, global));
    } else if (t.spec.encoding == Encoding::mxfp8 || t.spec.encoding == Encoding::mxfp4) {
      // mxfp4: down to a power of two; mxfp8: of amax / 448, up
      const bool up = t.spec.encoding == Encoding::mxfp8;
      const Vec ratio = up ? hn::Div(v, hn::Set(d, t.grid.largest)) : hn::Mul(v, hn::Set(d, 0.25f));
      const auto whole = hn::Add(hn::BitCast(bits, ratio), hn::Set(bits, up ? 0x007fffffu : 0u));
      v = hn::BitCast(d, hn::And(whole, hn::Set(bits, 0x7f800000u)));
    } else {
      v = hn::Div(v, hn::Set(d, t.grid.largest));
    }
    hn::StoreU(hn::Max(v, hn::Set(d, 0x1p-126f)), d, amax + i);
  }
}

constexpr int64_t kRowScales = kTile / 16;  // of one row at most

void find_scales(const MatrixTile& t, const float* v, const Loaded& size, float* scales) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kTile * kRowScales; ++i) scales[i] = 0;
  if (t.spec.scaling == Scaling::matrix) {
    scales[0] = t.matrix_amax;
    return to_scales(t, scales, lanes);
  }
  if (t.spec.scaling == Scaling::along_cols) {
    for (int64_t r = 0; r < size.rows; ++r) {
      for (int64_t c = 0; c < size.cols; c += t.block)
        scales[r * kRowScales + c / t.block] = largest(v + r * kTile + c, t.block);
    }
    return to_scales(t, scales, up_to(size.rows * kRowScales, 16));
  }
  HWY_ALIGN float columns[kTile];
  for (int64_t c = 0; c < size.cols; c += lanes) {
    Vec most = hn::Zero(d);
    for (int64_t r = 0; r < size.rows; ++r) most = hn::Max(hn::Abs(hn::LoadU(d, v + r * kTile + c)), most);
    hn::StoreU(most, d, columns + c);
  }
  if (t.spec.scaling == Scaling::along_rows) {
    for (int64_t c = 0; c < size.cols; ++c) scales[c] = columns[c];
  } else {
    for (int64_t c = 0; c < size.cols; c += t.block) scales[c / t.block] = largest(columns + c, t.block);
  }
  to_scales(t, scales, kTile);
}

void round_row(const MatrixTile& t, int64_t r, int64_t width, const float* scales, float* v) {
  const FloatTag d;
  HWY_ALIGN float noise[kTile];
  for (int64_t c = 0; t.spec.stochastic && c < width; c += 64) noise_of(t.noise, t.row + r, t.col + c, noise + c);
  const float* row = t.spec.scaling == Scaling::along_cols ? scales + r * kRowScales : scales;
  for (int64_t c = 0; c < width; c += static_cast<int64_t>(hn::Lanes(d))) {
    const Vec x = hn::LoadU(d, v + c);
    const Vec scale = t.spec.scaling == Scaling::along_rows ? hn::LoadU(d, scales + c)
                      : t.spec.scaling == Scaling::matrix   ? hn::Set(d, scales[0])
                                                            : hn::Set(d, row[c / t.block]);
    const Vec a = hn::Div(hn::Abs(x), scale);
    const Vec code = t.spec.stochastic ? to_either(a, hn::LoadU(d, noise + c), t.grid) : to_nearest(a, t.grid);
    const Vec back = hn::CopySign(hn::Mul(code, scale), x);
    hn::StoreU(hn::IfThenElse(hn::IsFinite(x), back, hn::NaN(d)), d, v + c);
  }
}

template <class Num>
void store_row(const float* v, int64_t n, Num* q) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) store(hn::LoadU(d, v + c), d, q + c);
  if (c < n) store_n(hn::LoadU(d, v + c), d, q + c, n - c);
}

void quantize_tile(const MatrixTile& t) {
  HWY_ALIGN float v[kTile * kTile];
  HWY_ALIGN float scales[kTile * kRowScales];
  const Loaded size = load_tile(t, v);
  const bool coded = t.spec.encoding != Encoding::none;
  if (coded) find_scales(t, v, size, scales);
  for (int64_t r = 0; r < size.rows; ++r) {
    float* row = v + r * kTile;
    if (coded) round_row(t, r, size.cols, scales, row);
    if (t.q_bf16) {
      store_row(row, t.cols, reinterpret_cast<Bf16*>(t.q) + r * t.q_stride);
    } else {
      store_row(row, t.cols, reinterpret_cast<float*>(t.q) + r * t.q_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid::quantizer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace quantizer {

HWY_EXPORT(tile_amax);
HWY_EXPORT(quantize_tile);

namespace {

float amax_of(const MatrixTile& t) { return HWY_DYNAMIC_DISPATCH(tile_amax)(t); }
void run(const MatrixTile& t) { HWY_DYNAMIC_DISPATCH(quantize_tile)(t); }

MatrixTile tile_of(const OperandSpec& spec) {
  switch (spec.encoding) {
    case Encoding::none:
    case Encoding::fp8_e4m3:
      return {.spec = spec, .grid = kE4M3, .block = 128};
    case Encoding::fp8_e5m2:
      return {.spec = spec, .grid = kE5M2, .block = 128};
    case Encoding::mxfp8:
      return {.spec = spec, .grid = kE4M3, .block = 32};
    case Encoding::mxfp4:
      return {.spec = spec, .grid = kE2M1, .block = 32};
    case Encoding::nvfp4:
      return {.spec = spec, .grid = kE2M1, .block = 16};
  }
  return {};
}

}  // namespace
}  // namespace quantizer

const char* name_of(Encoding e) {
  constexpr const char* kNames[] = {"none", "fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4"};
  return kNames[static_cast<size_t>(e)];
}

int64_t quantized_rows(const OperandSpec& spec, int64_t rows) {
  return spec.hadamard ? (rows + quantizer::kMix - 1) / quantizer::kMix * quantizer::kMix : rows;
}

void quantize(int threads, const OperandSpec& spec, const View& x, const MutView& q, const Noise& noise) {
  using quantizer::kMix, quantizer::kTile, quantizer::MatrixTile;
  CHECK(
      x.rows_contiguous() && q.rows_contiguous() && q.dim(0) == quantized_rows(spec, x.dim(0)) && q.dim(1) == x.dim(1),
      "{} to {}", to_string(x.shape), to_string(q.shape));
  const bool fp8 = spec.encoding == Encoding::fp8_e4m3 || spec.encoding == Encoding::fp8_e5m2;
  CHECK(spec.encoding == Encoding::none || fp8 || spec.scaling != Scaling::matrix, "{} has one scale per block",
        name_of(spec.encoding));
  constexpr double kOperations = 60;  // per element, most of them for its noise
  threads = sys::team_for(threads, kOperations * static_cast<double>(x.count()));
  MatrixTile whole = quantizer::tile_of(spec);
  whole.x_bf16 = x.dtype == DType::bf16;
  whole.q_bf16 = q.dtype == DType::bf16;
  whole.x_stride = x.stride(0);
  whole.q_stride = q.stride(0);
  whole.noise = noise;
  const bool tall = spec.scaling == Scaling::along_rows || spec.scaling == Scaling::square;
  const int64_t height = tall ? std::max(whole.block, kMix) : kMix;
  const int64_t down = (x.dim(0) + height - 1) / height, across = (x.dim(1) + kTile - 1) / kTile;
  const auto tile = [&](int64_t i) {
    MatrixTile t = whole;
    t.row = i / across * height;
    t.col = i % across * kTile;
    t.rows = std::min(height, x.dim(0) - t.row);
    t.cols = std::min(kTile, x.dim(1) - t.col);
    t.x = x.data + (t.row * t.x_stride + t.col) * size_of(x.dtype);
    t.q = q.data + (t.row * t.q_stride + t.col) * size_of(q.dtype);
    return t;
  };
  if (spec.encoding == Encoding::nvfp4 || (fp8 && spec.scaling == Scaling::matrix)) {
    std::atomic<float> most{0};  // the order of a maximum does not matter
    sys::parallel_for(threads, down * across, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float amax = quantizer::amax_of(tile(i));
        float seen = most.load(std::memory_order_relaxed);
        while (seen < amax && !most.compare_exchange_weak(seen, amax, std::memory_order_relaxed)) {
        }
      }
    });
    whole.matrix_amax = most.load(std::memory_order_relaxed);
  }
  sys::parallel_for(threads, down * across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) quantizer::run(tile(i));
  });
}

}  // namespace braid
#endif
