// View and MutView: non-owning views of a tensor: pointer, dtype, shape, strides, device; passed by value. A mapped
// file yields only View. Strides are in elements; kernels require a contiguous last dimension and accept any other
// stride, so that a slice of a fused projection needs no copy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"
#include "sys/check.h"

namespace braid {

enum class Device : uint8_t { cpu, cuda };

struct Shape {
  static constexpr int kMaxRank = 8;
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    CHECK(list.size() <= kMaxRank, "rank {}", list.size());
    for (int64_t d : list) dims[static_cast<size_t>(rank++)] = d;
  }
  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims[static_cast<size_t>(i)]; }
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape& other) const = default;
};
std::string to_string(const Shape& shape);  // "[2, 3]"

// Out of line, so that a check costs its caller only a comparison.
[[noreturn]] void wrong_type(DType have, DType want);
[[noreturn]] void wrong_slice(int64_t begin, int64_t n, int64_t of);
[[noreturn]] void wrong_split(int64_t a, int64_t b, int64_t of);

template <class Byte>
struct BasicView {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  Device device = Device::cpu;
  Shape shape{};
  std::array<int64_t, Shape::kMaxRank> strides{};

  BasicView() = default;
  BasicView(Byte* bytes, DType type, const Shape& dims, Device where = Device::cpu)
      : data(bytes), dtype(type), device(where), shape(dims) {
    int64_t step = 1;
    for (int i = dims.rank - 1; i >= 0; --i) {
      strides[static_cast<size_t>(i)] = step;
      step *= dims[i];
    }
  }

  explicit operator bool() const { return data != nullptr; }
  int64_t dim(int i) const { return shape[i]; }
  int64_t stride(int i) const { return strides[static_cast<size_t>(i)]; }
  int64_t count() const { return shape.count(); }
  int64_t bytes() const { return count() * size_of(dtype); }

  bool rows_contiguous() const { return shape.rank == 0 || stride(shape.rank - 1) == 1; }
  bool contiguous() const {
    int64_t step = 1;
    for (int i = shape.rank - 1; i >= 0; --i) {
      if (shape[i] != 1 && stride(i) != step) return false;
      step *= shape[i];
    }
    return true;
  }

  // Typed pointer to the i-th entry of the first dimension. A wrong type is a bug of the caller.
  template <class Num>
  auto* as(int64_t i = 0) const {
    if (dtype != dtype_for<Num>()) [[unlikely]]
      wrong_type(dtype, dtype_for<Num>());
    using Typed = std::conditional_t<std::is_const_v<Byte>, const Num, Num>;
    return reinterpret_cast<Typed*>(data) + i * stride(0);
  }

  // [begin, begin + n) along dimension `axis`: a narrower view of the same bytes.
  BasicView slice(int axis, int64_t begin, int64_t n) const {
    if (begin < 0 || n < 0 || begin > shape[axis] - n) [[unlikely]]
      wrong_slice(begin, n, shape[axis]);
    BasicView v = *this;
    v.data += begin * stride(axis) * size_of(dtype);
    v.shape[axis] = n;
    return v;
  }
  // The last dimension D seen as [a, b] with a * b = D.
  BasicView split_last(int64_t a, int64_t b) const {
    const int last = shape.rank - 1;
    if (a * b != shape[last]) [[unlikely]]
      wrong_split(a, b, shape[last]);
    BasicView v = *this;
    v.shape.rank = last + 2;
    v.shape[last] = a;
    v.shape[last + 1] = b;
    v.strides[static_cast<size_t>(last + 1)] = stride(last);
    v.strides[static_cast<size_t>(last)] = b * stride(last);
    return v;
  }
};

struct View : BasicView<const std::byte> {
  using BasicView::BasicView;
  View(const BasicView<const std::byte>& v) : BasicView(v) {}
  View(const BasicView<std::byte>& v) : BasicView(v.data, v.dtype, v.shape, v.device) { strides = v.strides; }
};

struct MutView : BasicView<std::byte> {
  using BasicView::BasicView;
  MutView(const BasicView<std::byte>& v) : BasicView(v) {}
};

template <class Num>
View view_of(const Num* data, const Shape& shape) {
  return {reinterpret_cast<const std::byte*>(data), dtype_for<Num>(), shape};
}
template <class Num>
MutView mut_view_of(Num* data, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(data), dtype_for<Num>(), shape};
}

// One element as a number, by flat row-major position, saturated in integers: for references, tests and printing.
double element(const View& v, int64_t flat);
void set_element(const MutView& v, int64_t flat, double value);
void fill(const MutView& v, double value);

}  // namespace braid
