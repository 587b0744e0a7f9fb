#include "core/op.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "sys/error.h"

namespace braid {

void DimCheck::view(const char* field, const char* dims, const Shape& shape) {
  std::string_view rest = dims;
  int axis = 0;
  while (!rest.empty()) {
    const size_t space = rest.find(' ');
    const std::string_view letter = rest.substr(0, space);
    rest = space == std::string_view::npos ? std::string_view{} : rest.substr(space + 1);
    CHECK(axis < shape.rank, "{}: {} is {}; expected [{}]", op_, field, to_string(shape), dims);
    const int64_t size = shape[axis++];
    Bound* found = nullptr;
    for (int i = 0; i < count_; ++i) {
      if (bound_[static_cast<size_t>(i)].letter == letter) found = &bound_[static_cast<size_t>(i)];
    }
    if (found) {
      CHECK(found->size == size, "{}: {} is {}; expected [{}] with {} = {}", op_, field, to_string(shape), dims, letter,
            found->size);
    } else {
      CHECK(count_ < static_cast<int>(bound_.size()), "{}: too many letters", op_);
      bound_[static_cast<size_t>(count_++)] = {letter, size};
    }
  }
  CHECK(axis == shape.rank, "{}: {} is {}; expected [{}]", op_, field, to_string(shape), dims);
}

namespace detail {

// Bytes of 0xff are NaN in every float format and far out of range as an index.
void poison(const MutView& v) {
  if (v.contiguous()) {
    std::memset(v.data, 0xff, static_cast<size_t>(v.bytes()));
  } else {
    fill(v, NAN);
  }
}

std::string Refusals::text() const {
  std::string text;
  for (size_t i = 0; i < count_; ++i)
    text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", list_[i].row, list_[i].reason);
  return text;
}

void missing_field(const char* op, const char* field) {
  CHECK(false, "{}: {} is empty", op, field);
  std::abort();
}

void mixed_devices(const char* op, const char* field, const char* first, Device device) {
  CHECK(false, "{}: {} is not on {} as {} is", op, field, device == Device::cuda ? "cuda" : "cpu", first);
  std::abort();
}

void unknown_row(const char* op, const std::string& row, const std::string& known) {
  fail(op, {.what = "no row of that name", .got = printable(row), .expected = known, .hint = "braid bench --list"});
}

void no_row(const char* op, const std::string& refusals) {
  fail_environment(op, {.what = "no variant can run this here", .got = refusals, .hint = "BRAID_VERBOSE=dispatch"});
}

void print_choice(const char* op, const char* row, const char* numerics, const std::string& refusals) {
  fmt::print(stderr, "dispatch {}: {} ({}){}{}\n", op, row, numerics, refusals.empty() ? "" : "; refused ", refusals);
}

}  // namespace detail
}  // namespace braid
