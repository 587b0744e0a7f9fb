#include "math/codes_dot.h"

#include <algorithm>

#include "sys/machine.h"

namespace braid::codes {
namespace {

int64_t row_bytes(int64_t depth) { return (depth + kStep - 1) / kStep * kStepBytes; }

}  // namespace

const char* refusal(const Weight& w) {
  if (w.spec.format != Format::nvfp4) return "weights that are not in NVFP4";
  return sys::machine().avx512_vnni ? nullptr : "no dots of bytes with AVX-512";
}

// The scales of the rows lie before them, a line of 64 bytes.
int64_t packed_bytes(int64_t rows, int64_t depth) { return kStep + std::min(rows, kRowsMax) * row_bytes(depth); }

void pack(const View& x, std::byte* packed) {
  for (int64_t m = 0; m < x.dim(0); ++m) {
    reinterpret_cast<float*>(packed)[m] =
        pack_row_avx512(x.as<Bf16>(m), x.dim(1), packed + kStep + m * row_bytes(x.dim(1)));
  }
}

void product(const std::byte* packed, const Weight& w, const MutView& y) {
  const int64_t rows = y.dim(0);
  Row row{.codes = nullptr, .scales = nullptr, .depth = w.cols, .packed = {}};
  for (int64_t m = 0; m < rows; ++m) row.packed[m] = packed + kStep + m * row_bytes(w.cols);
  const float factor = 128 * w.global;  // 2^8 of the scales, and half of the doubled codes
  for (int64_t n = 0; n < w.rows; ++n) {
    row.codes = w.codes.as<uint8_t>(n);
    row.scales = &w.scales.as<F8E4M3>(n)->bits;
    float sums[kRowsMax];
    nvfp4_row_avx512(row, rows, sums);
    for (int64_t m = 0; m < rows; ++m) {
      const float v = sums[m] * factor * reinterpret_cast<const float*>(packed)[m];
      if (y.dtype == DType::bf16) {
        y.as<Bf16>(m)[n] = to_bf16(v);
      } else {
        y.as<float>(m)[n] = v;
      }
    }
  }
}

}  // namespace braid::codes
