// What the driver in panel.cc asks of an instruction set: one strip of sums. Plain data, no containers, so that files
// compiled for AVX-512 or tiles may include it (style.md 27).
//
//   sums[m, n] (+)= sum over k < depth of x[m, k] * w[n, k]        m < rows, n < cols <= kernel.cols
//
// Every (m, n) keeps one vector of partial sums along k, folded at the end in a tree that is the same for every
// position, so the tile shape a kernel picks changes no bit.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace braid::panel {

// Sums are folded every kDepth values and added in FP32 after that: a strip of weights stays in L1 and a block of
// activations in L2 however long a row is. Part of the arithmetic of every class.
inline constexpr int64_t kDepth = 2048;

struct Strip {
  const void* x = nullptr;  // [rows, depth], rows x_stride elements apart
  const void* w = nullptr;  // [cols, depth], rows w_stride elements apart
  int64_t x_stride = 0, w_stride = 0;
  int64_t rows = 0, depth = 0;
  int cols = 0;
  const void* next_w = nullptr;  // what will be read after this strip, shaped as w: fetched meanwhile
  float* sums = nullptr;         // [rows, cols], rows sums_stride apart
  int64_t sums_stride = 0;
  bool add = false;  // to what is there
};

using StripFn = void (*)(const Strip&);

struct Kernel {
  StripFn run;
  int cols;  // weight rows a strip takes
};

// x and w as the name says. `dot`: vdpbf16ps, which rounds each sum of two products; `wide`: FP32 FMA on widened
// values.
Kernel wide_f32_f32();
Kernel wide_f32_bf16();
Kernel wide_bf16_bf16();
Kernel dot_bf16_bf16();

}  // namespace braid::panel
