#include "math/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/panel.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/blocks.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int64_t kTile = 4;  // 4 x 4 sums of one vector each fill half of AVX-512's registers

// sums[m][n] over all of k for one tile; strides in elements.
template <int kRows, int kCols, class X, class W>
HWY_INLINE void tile(const X* x, int64_t x_stride, const W* w, int64_t w_stride, int64_t depth, float* sums) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec acc[kRows * kCols];
  for (int i = 0; i < kRows * kCols; ++i) acc[i] = hn::Zero(d);
  int64_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    FloatVec b[kCols];
    for (int n = 0; n < kCols; ++n) b[n] = load(d, w + n * w_stride + k);
    for (int m = 0; m < kRows; ++m) {
      const FloatVec a = load(d, x + m * x_stride + k);
      for (int n = 0; n < kCols; ++n) acc[m * kCols + n] = hn::MulAdd(a, b[n], acc[m * kCols + n]);
    }
  }
  if (k < depth) {
    for (int n = 0; n < kCols; ++n) {
      const FloatVec b = load_n(d, w + n * w_stride + k, depth - k);
      for (int m = 0; m < kRows; ++m) {
        acc[m * kCols + n] = hn::MulAdd(load_n(d, x + m * x_stride + k, depth - k), b, acc[m * kCols + n]);
      }
    }
  }
  for (int i = 0; i < kRows * kCols; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(d, acc[i]));
}

template <class X, class W>
void rows_by_cols(const View& x, const W* w, int64_t w_stride, int64_t cols, float global, const MutView& y,
                  int64_t y_col) {
  const int64_t rows = x.dim(0), depth = x.dim(1);
  float sums[kTile * kTile];
  for (int64_t m = 0; m < rows; m += kTile) {
    const int64_t mr = HWY_MIN(kTile, rows - m);
    for (int64_t n = 0; n < cols; n += kTile) {
      const int64_t nr = HWY_MIN(kTile, cols - n);
      if (mr == kTile && nr == kTile) {
        tile<kTile, kTile>(x.as<X>(m), x.stride(0), w + n * w_stride, w_stride, depth, sums);
      } else {
        for (int64_t i = 0; i < mr; ++i) {
          for (int64_t j = 0; j < nr; ++j) {
            tile<1, 1>(x.as<X>(m + i), x.stride(0), w + (n + j) * w_stride, w_stride, depth, sums + i * nr + j);
          }
        }
      }
      for (int64_t i = 0; i < mr; ++i) {
        for (int64_t j = 0; j < nr; ++j) {
          const float v = sums[i * nr + j] * global;
          if (y.dtype == DType::bf16) {
            y.as<Bf16>(m + i)[y_col + n + j] = to_bf16(v);
          } else {
            y.as<float>(m + i)[y_col + n + j] = v;
          }
        }
      }
    }
  }
}

template <class X, class Decoded>
void decoded_product(const View& x, const Weight& w, const MutView& y, Decoded* scratch) {
  for (int64_t n = 0; n < w.rows; n += kTile) {
    const int64_t cols = HWY_MIN(kTile, w.rows - n);
    for (int64_t j = 0; j < cols; ++j) decode_row(w, n + j, 0, w.cols, scratch + j * w.cols);
    rows_by_cols<X>(x, scratch, w.cols, cols, w.global, y, n);
  }
}

void product(const View& x, const Weight& w, const MutView& y, std::byte* scratch) {
  const bool narrow = x.dtype == DType::bf16;
  if (w.spec.format == Format::bf16) {
    narrow ? rows_by_cols<Bf16>(x, w.codes.as<Bf16>(), w.codes.stride(0), w.rows, w.global, y, 0)
           : rows_by_cols<float>(x, w.codes.as<Bf16>(), w.codes.stride(0), w.rows, w.global, y, 0);
  } else if (w.spec.format == Format::f32 && !narrow) {
    rows_by_cols<float>(x, w.codes.as<float>(), w.codes.stride(0), w.rows, w.global, y, 0);
  } else if (narrow) {
    decoded_product<Bf16>(x, w, y, reinterpret_cast<Bf16*>(scratch));
  } else {
    decoded_product<float>(x, w, y, reinterpret_cast<float*>(scratch));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(product);

int64_t panel_workspace(const Weight& w) {
  constexpr int64_t kRows = 4;  // the tile's columns
  return w.spec.format == Format::bf16 ? 0 : kRows * w.cols * static_cast<int64_t>(sizeof(float));
}

void panel_product(const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace) {
  HWY_DYNAMIC_DISPATCH(product)(x, w, y, workspace.data());
}

}  // namespace braid
#endif
