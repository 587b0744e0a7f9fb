#include "comm/reduction.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sys/check.h"

namespace braid::comm {
namespace {

constexpr std::array<const char*, 3> kReductionNames = {"sum", "max", "min"};

float larger(float a, float b) { return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b; }
float smaller(float a, float b) { return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b; }

// A NaN's bits depend on which operand it came from; written as one value they do not.
template <Reduction op>
float combined(float a, float b) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if constexpr (op == Reduction::sum) {
    const float sum = a + b;
    return sum == sum ? sum : kNan;
  } else {
    const float chosen = op == Reduction::max ? larger(a, b) : smaller(a, b);
    return a == a && b == b ? chosen : kNan;
  }
}

template <Reduction op, class Num>
Num combined_integer(Num a, Num b) {
  using Unsigned = std::make_unsigned_t<Num>;
  if constexpr (op == Reduction::sum) return static_cast<Num>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  return op == Reduction::max ? (a > b ? a : b) : (a < b ? a : b);
}

inline float rounded(float v, float) { return v; }
inline Bf16 rounded(float v, Bf16) { return to_bf16(v); }
inline F16 rounded(float v, F16) { return to_f16(v); }

template <class Num, Reduction op>
void combine_as(std::byte* dst, const std::byte* src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Num a, b;
    std::memcpy(&a, dst + i * int64_t{sizeof(Num)}, sizeof(Num));
    std::memcpy(&b, src + i * int64_t{sizeof(Num)}, sizeof(Num));
    if constexpr (std::is_integral_v<Num>) {
      a = combined_integer<op>(a, b);
    } else {
      a = rounded(combined<op>(to_float(a), to_float(b)), Num{});
    }
    std::memcpy(dst + i * int64_t{sizeof(Num)}, &a, sizeof(Num));
  }
}

template <class Num>
void combine_with(Reduction op, std::byte* dst, const std::byte* src, int64_t count) {
  switch (op) {
    case Reduction::sum:
      return combine_as<Num, Reduction::sum>(dst, src, count);
    case Reduction::max:
      return combine_as<Num, Reduction::max>(dst, src, count);
    case Reduction::min:
      return combine_as<Num, Reduction::min>(dst, src, count);
  }
}

}  // namespace

const char* name_of(Reduction op) { return kReductionNames[static_cast<size_t>(op)]; }

std::optional<Reduction> reduction_of(std::string_view name) {
  for (size_t i = 0; i < kReductionNames.size(); ++i) {
    if (name == kReductionNames[i]) return static_cast<Reduction>(i);
  }
  return std::nullopt;
}

bool reducible(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16 || type == DType::i32 || type == DType::i64 ||
         type == DType::u8;
}

void combine(DType type, Reduction op, std::byte* dst, const std::byte* src, int64_t count) {
  switch (type) {
    case DType::f32:
      return combine_with<float>(op, dst, src, count);
    case DType::bf16:
      return combine_with<Bf16>(op, dst, src, count);
    case DType::f16:
      return combine_with<F16>(op, dst, src, count);
    case DType::i32:
      return combine_with<int32_t>(op, dst, src, count);
    case DType::i64:
      return combine_with<int64_t>(op, dst, src, count);
    case DType::u8:
      return combine_with<uint8_t>(op, dst, src, count);
    default:
      CHECK(false, "{} is not reduced", braid::name_of(type));
  }
}

}  // namespace braid::comm
