#include "codec/codes.h"

#include <type_traits>

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

bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, Bf16* values) {
  return decode_blocks(type, row, begin, n, values);
}
bool decode(GgmlType type, const uint8_t* row, int64_t begin, int64_t n, float* values) {
  return decode_blocks(type, row, begin, n, values);
}

}  // namespace braid::codes
