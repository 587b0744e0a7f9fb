#include "core/view.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace braid {
namespace {

template <class Byte>
int64_t offset_of(const BasicView<Byte>& v, int64_t flat) {
  int64_t offset = 0;
  for (int i = v.shape.rank - 1; i >= 0; --i) {
    offset += flat % v.shape[i] * v.stride(i);
    flat /= v.shape[i];
  }
  return offset;
}

// Truncated and saturated, 0 for NaN: a plain cast of such values is undefined.
template <class Int>
Int saturated(double value) {
  using Limits = std::numeric_limits<Int>;
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<Int>(value);
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + "]";
}

void wrong_type(DType have, DType want) {
  CHECK(false, "{} read as {}", name_of(have), name_of(want));
  std::abort();
}

void wrong_slice(int64_t begin, int64_t n, int64_t of) {
  CHECK(false, "a slice of {} + {} of {}", begin, n, of);
  std::abort();
}

void wrong_split(int64_t a, int64_t b, int64_t of) {
  CHECK(false, "{} as {} x {}", of, a, b);
  std::abort();
}

double element(const View& v, int64_t flat) {
  const std::byte* p = v.data + offset_of(v, flat) * size_of(v.dtype);
  switch (v.dtype) {
    case DType::f32:
      return static_cast<double>(*reinterpret_cast<const float*>(p));
    case DType::f16:
      return static_cast<double>(to_float(*reinterpret_cast<const F16*>(p)));
    case DType::bf16:
      return static_cast<double>(to_float(*reinterpret_cast<const Bf16*>(p)));
    case DType::f8_e4m3:
      return static_cast<double>(to_float(*reinterpret_cast<const F8E4M3*>(p)));
    case DType::i8:
      return static_cast<double>(*reinterpret_cast<const int8_t*>(p));
    case DType::u8:
      return static_cast<double>(*reinterpret_cast<const uint8_t*>(p));
    case DType::i32:
      return static_cast<double>(*reinterpret_cast<const int32_t*>(p));
    case DType::i64:
      return static_cast<double>(*reinterpret_cast<const int64_t*>(p));
  }
  return 0;
}

void set_element(const MutView& v, int64_t flat, double value) {
  std::byte* p = v.data + offset_of(v, flat) * size_of(v.dtype);
  const auto single = static_cast<float>(value);
  switch (v.dtype) {
    case DType::f32:
      *reinterpret_cast<float*>(p) = single;
      break;
    case DType::f16:
      *reinterpret_cast<F16*>(p) = to_f16(single);
      break;
    case DType::bf16:
      *reinterpret_cast<Bf16*>(p) = to_bf16(single);
      break;
    case DType::f8_e4m3:
      *reinterpret_cast<F8E4M3*>(p) = to_f8e4m3(single);
      break;
    case DType::i8:
      *reinterpret_cast<int8_t*>(p) = saturated<int8_t>(value);
      break;
    case DType::u8:
      *reinterpret_cast<uint8_t*>(p) = saturated<uint8_t>(value);
      break;
    case DType::i32:
      *reinterpret_cast<int32_t*>(p) = saturated<int32_t>(value);
      break;
    case DType::i64:
      *reinterpret_cast<int64_t*>(p) = saturated<int64_t>(value);
      break;
  }
}

void fill(const MutView& v, double value) {
  for (int64_t i = 0; i < v.count(); ++i) set_element(v, i, value);
}

}  // namespace braid
