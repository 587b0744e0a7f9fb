#include "codec/fp8.h"

#include <array>
#include <limits>

#include "codec/quant_codec.h"

namespace braid {
namespace {

struct Table {
  std::array<float, 256> value{};
  Table() {
    for (size_t i = 0; i < value.size(); ++i) value[i] = to_float(F8E4M3{static_cast<uint8_t>(i)});
  }
};
const std::array<float, 256>& values_of_codes() {
  static const Table table;
  return table.value;
}

// The functions of QuantCodec.
void encode(const QuantScaling& s, std::span<const float> row, std::byte* codes, std::byte*) {
  encode_fp8_row(row, s.global, reinterpret_cast<F8E4M3*>(codes));
}

void encode_with(const QuantScaling& s, std::span<const float> row, const std::byte*, std::byte* codes) {
  encode_fp8_row(row, s.global, reinterpret_cast<F8E4M3*>(codes));
}

void decode(const QuantScaling& s, const std::byte* codes, const std::byte*, std::span<float> row) {
  for (size_t i = 0; i < row.size(); ++i) row[i] = values_of_codes()[static_cast<uint8_t>(codes[i])] * s.global;
}

float rounded(const QuantScaling& s, float value, uint16_t) { return to_float(to_f8e4m3(value / s.global)) * s.global; }

}  // namespace

QuantCodec fp8_quant_codec() {
  return {.name = "fp8",
          .spec = {.format = Format::f8_e4m3},
          .parts = {{.suffix = "", .dtype = DType::f8_e4m3, .each = 1}, {.suffix = "_scale", .dtype = DType::f32}},
          .global = [](float amax, ScaleSearch) { return fp8_global(amax); },
          .encode = &encode,
          .encode_with = &encode_with,
          .decode = &decode,
          .rounded = &rounded};
}

void decode_fp8(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values) {
  const F8E4M3* codes = w.codes.as<F8E4M3>(r) + begin;
  for (int64_t i = 0; i < n; ++i) values[i] = values_of_codes()[codes[i].bits];
}
void decode_fp8(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values) {
  const F8E4M3* codes = w.codes.as<F8E4M3>(r) + begin;
  for (int64_t i = 0; i < n; ++i) values[i] = to_bf16(values_of_codes()[codes[i].bits]);
}

// The quotient of the smallest magnitudes is 0, too: their codes are 0 under any scale.
float fp8_global(float amax) {
  const float quotient = amax / 448;
  return quotient > 0 ? quotient : 1.0f;
}

void encode_fp8_row(std::span<const float> values, float global, F8E4M3* codes) {
  for (size_t i = 0; i < values.size(); ++i) codes[i] = to_f8e4m3(values[i] / global);
}

}  // namespace braid
