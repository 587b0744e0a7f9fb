// The numbers a tensor may hold, and exact conversions to and from float. Rounding is to nearest, ties to even; F8_E4M3
// is the "fn" kind: no infinities, 0x7f is NaN, out-of-range values saturate at 448.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace braid {

enum class DType : uint8_t { f32, f16, bf16, f8_e4m3, i8, u8, i32, i64 };

int64_t size_of(DType t);      // bytes
const char* name_of(DType t);  // as safetensors spells it: F32 F16 BF16 F8_E4M3 I8 U8 I32 I64
std::optional<DType> dtype_of(std::string_view name);

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};

inline float to_float(float v) { return v; }
inline float to_float(Bf16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
float to_float(F16 v);
float to_float(F8E4M3 v);

inline Bf16 to_bf16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40)};  // NaN stays NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
F16 to_f16(float v);
F8E4M3 to_f8e4m3(float v);

template <class Num>
constexpr DType dtype_for() {
  if constexpr (std::is_same_v<Num, float>) return DType::f32;
  if constexpr (std::is_same_v<Num, Bf16>) return DType::bf16;
  if constexpr (std::is_same_v<Num, F16>) return DType::f16;
  if constexpr (std::is_same_v<Num, F8E4M3>) return DType::f8_e4m3;
  if constexpr (std::is_same_v<Num, int8_t>) return DType::i8;
  if constexpr (std::is_same_v<Num, uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<Num, int32_t>) return DType::i32;
  if constexpr (std::is_same_v<Num, int64_t>) return DType::i64;
}

}  // namespace braid
