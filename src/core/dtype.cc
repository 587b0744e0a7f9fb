#include "core/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace braid {
namespace {

struct TypeRow {
  const char* name;
  int64_t bytes;
};
constexpr std::array<TypeRow, 8> kTypes = {
    {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"I8", 1}, {"U8", 1}, {"I32", 4}, {"I64", 8}}};

// Value of a small float with `mantissa` fraction bits and exponent `bias`, without infinities.
float small_float(uint32_t exponent, uint32_t fraction, int mantissa, int bias) {
  const int power = exponent == 0 ? 1 - bias - mantissa : static_cast<int>(exponent) - bias - mantissa;
  return std::ldexp(static_cast<float>(exponent == 0 ? fraction : fraction | 1u << mantissa), power);
}

// Nearest multiple of the spacing at |v| for a format with `mantissa` bits whose smallest normal exponent is `lowest`.
float round_to(float v, int mantissa, int lowest) {
  int exponent = 0;
  std::frexp(v, &exponent);  // v = f * 2^exponent, f in [0.5, 1)
  const int spacing = std::max(exponent - 1, lowest) - mantissa;
  return std::ldexp(std::nearbyint(std::ldexp(v, -spacing)), spacing);
}

// Bits of a value that the format holds exactly.
uint32_t encode_exact(float magnitude, int mantissa, int bias) {
  if (magnitude == 0) return 0;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int biased = exponent - 1 + bias;
  if (biased <= 0) return static_cast<uint32_t>(std::ldexp(magnitude, bias - 1 + mantissa));
  const auto fraction = static_cast<uint32_t>(std::ldexp(magnitude, mantissa - exponent + 1)) - (1u << mantissa);
  return static_cast<uint32_t>(biased) << mantissa | fraction;
}

}  // namespace

int64_t size_of(DType t) { return kTypes[static_cast<size_t>(t)].bytes; }
const char* name_of(DType t) { return kTypes[static_cast<size_t>(t)].name; }

std::optional<DType> dtype_of(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (name == kTypes[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

float to_float(F16 v) {
  const uint32_t exponent = v.bits >> 10 & 31, fraction = v.bits & 1023;
  const float sign = v.bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * small_float(exponent, fraction, 10, 15);
  return std::bit_cast<float>(static_cast<uint32_t>(v.bits >> 15) << 31 | (exponent + 127 - 15) << 23 | fraction << 13);
}

float to_float(F8E4M3 v) {
  if ((v.bits & 0x7f) == 0x7f) return NAN;
  return (v.bits >> 7 ? -1.0f : 1.0f) * small_float(v.bits >> 3 & 15, v.bits & 7, 3, 7);
}

F16 to_f16(float v) {
  const auto sign = static_cast<uint16_t>(std::signbit(v) ? 0x8000 : 0);
  // Normal numbers that stay normal: 13 bits of the fraction go, to nearest, ties to even.
  constexpr uint32_t kFirst = 0x38800000, kLast = 0x477fe000;  // 2^-14, 65504
  const uint32_t bits = std::bit_cast<uint32_t>(v) & 0x7fffffff;
  if (bits >= kFirst && bits <= kLast)
    return {static_cast<uint16_t>(sign | ((bits + 0xfff + (bits >> 13 & 1) - ((127 - 15) << 23)) >> 13))};
  if (std::isnan(v)) return {static_cast<uint16_t>(sign | 0x7e00)};
  const float magnitude = std::isinf(v) ? INFINITY : round_to(std::fabs(v), 10, -14);
  if (magnitude > 65504.0f) return {static_cast<uint16_t>(sign | 0x7c00)};
  return {static_cast<uint16_t>(sign | encode_exact(magnitude, 10, 15))};
}

F8E4M3 to_f8e4m3(float v) {
  const auto sign = static_cast<uint8_t>(std::signbit(v) ? 0x80 : 0);
  if (std::isnan(v)) return {static_cast<uint8_t>(sign | 0x7f)};
  const float magnitude = std::isinf(v) ? 448.0f : std::min(round_to(std::fabs(v), 3, -6), 448.0f);
  return {static_cast<uint8_t>(sign | encode_exact(magnitude, 3, 7))};
}

}  // namespace braid
