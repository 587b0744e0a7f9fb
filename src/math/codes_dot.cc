#include "math/codes_dot.h"

#include <algorithm>

#include "sys/machine.h"

namespace braid::codes {
namespace {

// Of a packed row, whose scale precedes it in a line of 64 bytes.
int64_t row_bytes(int64_t depth) { return kStep + (depth + kStep - 1) / kStep * kStepBytes; }

}  // namespace

const char* refusal(const Weight& w) { return codes_of(w.spec) ? nullptr : "no such codes in the weights, or no AVX2"; }

bool same_packing(const QuantSpec& a, const QuantSpec& b) { return codes_of(a)->factor == codes_of(b)->factor; }

int64_t packed_bytes(int64_t rows, int64_t depth) { return rows * row_bytes(depth); }

void pack(const View& x, const QuantSpec& weights, std::byte* packed) {
  const int factor = codes_of(weights)->factor;
  const sys::Machine& machine = sys::machine();
  const auto pack_row = machine.avx512_vnni ? &pack_row_avx512
                        : machine.avx_vnni  ? &pack_row_avx2
                                            : &pack_row_avx2_words;
  for (int64_t m = 0; m < x.dim(0); ++m, packed += row_bytes(x.dim(1)))
    *reinterpret_cast<float*>(packed) = pack_row(x.as<Bf16>(m), x.dim(1), factor, packed + kStep);
}

void product(const std::byte* packed, const Weight& w, const MutView& y) {
  const int64_t rows = y.dim(0);
  Row row{.codes = nullptr, .scales = nullptr, .depth = w.cols, .packed = {}};
  float scales[kRowsMax];
  for (int64_t m = 0; m < rows; ++m) {
    const std::byte* here = packed + m * row_bytes(w.cols);
    scales[m] = *reinterpret_cast<const float*>(here);
    row.packed[m] = here + kStep;
  }
  const Codes& codes = *codes_of(w.spec);
  const float factor = codes.worth * w.global;
  for (int64_t n = 0; n < w.rows; ++n) {
    row.codes = w.codes.as<uint8_t>(n);
    if (w.scales) row.scales = &w.scales.as<F8E4M3>(n)->bits;
    float sums[kRowsMax];
    codes.dot(row, rows, sums);
    for (int64_t m = 0; m < rows; ++m) {
      const float v = sums[m] * factor * scales[m];
      if (y.dtype == DType::bf16) {
        y.as<Bf16>(m)[n] = to_bf16(v);
      } else {
        y.as<float>(m)[n] = v;
      }
    }
  }
}

}  // namespace braid::codes
