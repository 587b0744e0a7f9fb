#include "math/codes_dot.h"

#include <algorithm>

#include "sys/machine.h"

namespace braid::codes {
namespace {

template <class Num>
bool decode_blocks(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, Num* values) {
  const Codes* codes = begin % kStep == 0 ? codes_of({.format = Format::ggml, .ggml = type}) : nullptr;
  if (!codes) return false;
  if constexpr (std::is_same_v<Num, float>) {
    codes->f32(row, begin, n, values);
  } else {
    (sys::machine().avx512_bf16 ? codes->bf16_unit : codes->bf16)(row, begin, n, values);
  }
  return true;
}

int64_t row_bytes(int64_t depth) { return (depth + kStep - 1) / kStep * kStepBytes; }

}  // namespace

const Codes* codes_of(const QuantSpec& spec) {
  const sys::Machine& machine = sys::machine();
  if (!machine.avx512_vnni) return machine.avx2 ? codes_avx2(spec, machine.avx_vnni) : nullptr;
  // 2^8 of the scales, and half of the doubled codes.
  static constexpr Codes kNvfp4{.factor = -12,
                                .worth = 128,
                                .grain = 16,
                                .pairs = true,
                                .columns = &nvfp4_columns_avx512,
                                .few = &nvfp4_few_avx512,
                                .few_rows = 4,
                                .dot = &nvfp4_row_avx512};
  if (spec.format == Format::nvfp4) return &kNvfp4;
  return spec.format == Format::ggml ? ggml_codes_avx512(spec.ggml) : nullptr;
}

const char* refusal(const Weight& w) { return codes_of(w.spec) ? nullptr : "no such codes in the weights, or no AVX2"; }

// The scales of the rows precede them, in a line of 64 bytes.
int64_t packed_bytes(int64_t rows, int64_t depth) { return kStep + std::min(rows, kRowsMax) * row_bytes(depth); }

void pack(const View& x, const QuantSpec& weights, std::byte* packed) {
  const int factor = codes_of(weights)->factor;
  const sys::Machine& machine = sys::machine();
  const auto pack_row = machine.avx512_vnni ? &pack_row_avx512
                        : machine.avx_vnni  ? &pack_row_avx2
                                            : &pack_row_avx2_words;
  for (int64_t m = 0; m < x.dim(0); ++m) {
    reinterpret_cast<float*>(packed)[m] =
        pack_row(x.as<Bf16>(m), x.dim(1), factor, packed + kStep + m * row_bytes(x.dim(1)));
  }
}

void product(const std::byte* packed, const Weight& w, const MutView& y) {
  const int64_t rows = y.dim(0);
  Row row{.codes = nullptr, .scales = nullptr, .depth = w.cols, .packed = {}};
  for (int64_t m = 0; m < rows; ++m) row.packed[m] = packed + kStep + m * row_bytes(w.cols);
  const Codes& codes = *codes_of(w.spec);
  const float factor = codes.worth * w.global;
  for (int64_t n = 0; n < w.rows; ++n) {
    row.codes = w.codes.as<uint8_t>(n);
    if (w.scales) row.scales = &w.scales.as<F8E4M3>(n)->bits;
    float sums[kRowsMax];
    codes.dot(row, rows, sums);
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

bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, Bf16* values) {
  return decode_blocks(type, row, begin, n, values);
}
bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, float* values) {
  return decode_blocks(type, row, begin, n, values);
}

}  // namespace braid::codes
