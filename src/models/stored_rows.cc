#include "models/stored_rows.h"

#include <algorithm>
#include <vector>

#include "sys/check.h"

namespace braid::models {
namespace {

// A tensor [height, width] as blocks read it, of which the rows `rows` and their columns `cols` are held.
struct Layout {
  int64_t height, width;
  std::vector<Range> rows, cols;
};

Layout layout_of(const MasterTensor& t) {
  if (t.held.empty()) {
    const Shape& s = t.shape;
    const int64_t height = t.transposed ? s[1] : 1, width = t.transposed ? s[0] : s.count();
    return {height, width, {{0, height}}, {{0, width}}};
  }
  const Range across = t.within.count > 0 ? t.within : Range{0, t.by_cols ? t.rows : t.cols};
  if (t.by_cols) return {t.rows, t.cols, {across}, t.held};
  return {t.rows, t.cols, t.held, {across}};
}

int64_t sum_of(const std::vector<Range>& ranges) {
  int64_t n = 0;
  for (const Range& r : ranges) n += r.count;
  return n;
}

// Of ranges that are held one after the other, what the places `of` have: visit(in the whole, first place, number).
template <class Visit>
void each_among(const std::vector<Range>& ranges, const Range& of, Visit&& visit) {
  int64_t place = 0;
  for (const Range& r : ranges) {
    const int64_t begin = std::max(place, of.begin), end = std::min(place + r.count, of.begin + of.count);
    if (begin < end) visit(r.begin + begin - place, begin, end - begin);
    place += r.count;
  }
}

}  // namespace

void each_stored_rows(const MasterTensor& t, const Range& of, sys::FunctionRef<void(const StoredRows&)> visit) {
  const Layout whole = layout_of(t);
  const int64_t held = sum_of(whole.cols), end = of.begin + of.count;  // held: elements of a row
  CHECK(of.begin >= 0 && end <= t.count(), "{}: {} to {} of {}", t.name, of.begin, end, t.count());
  const auto block = [&](const Range& rows, const Range& cols) {
    each_among(whole.rows, rows, [&](int64_t row, int64_t y, int64_t height) {
      each_among(whole.cols, cols, [&](int64_t col, int64_t x, int64_t width) {
        const int64_t from = y * held + x - of.begin;
        if (t.transposed) return visit({col * whole.height + row, width, height, whole.height, from, 1, held});
        const int64_t at = row * whole.width + col;
        if (width == whole.width) return visit({at, 1, height * width, height * width, from, height * width, 1});
        visit({at, height, width, whole.width, from, held, 1});
      });
    });
  };
  // The end of a row, whole rows, the beginning of one.
  for (int64_t begin = of.begin; begin < end;) {
    const int64_t row = begin / held, col = begin % held, rows = (end - begin) / held;
    const bool some = col > 0 || rows == 0;
    const int64_t count = some ? std::min(held - col, end - begin) : rows * held;
    block({row, some ? 1 : rows}, {col, some ? count : held});
    begin += count;
  }
}

void put_stored(const MasterTensor& tensor, const Range& of, std::span<const float> values, bool value, DType dtype,
                sys::FunctionRef<void(int64_t at, std::span<const std::byte> bytes)> put) {
  CHECK(std::ssize(values) == of.count, "{}: {} of {}", tensor.name, values.size(), of.count);
  const float plus = value ? tensor.plus : 0;
  const int64_t size = size_of(dtype), most = kStoredBytesMost / size;
  std::vector<std::byte> buffer;
  const auto fill = [&](const StoredRows& s, const Range& rows, const Range& cols, auto* out, auto convert) {
    const float* from = &values[static_cast<size_t>(s.from + rows.begin * s.row_step + cols.begin * s.col_step)];
    if (s.col_step == 1) {
      for (int64_t r = 0; r < rows.count; ++r) {
        for (int64_t c = 0; c < cols.count; ++c) *out++ = convert(from[r * s.row_step + c] - plus);
      }
      return;
    }
    for (int64_t c = 0; c < cols.count; ++c) {
      for (int64_t r = 0; r < rows.count; ++r) out[r * cols.count + c] = convert(from[c * s.col_step + r] - plus);
    }
  };
  const auto put_block = [&](const StoredRows& s, const Range& rows, const Range& cols) {
    buffer.resize(static_cast<size_t>(rows.count * cols.count * size));
    if (dtype == DType::bf16)
      fill(s, rows, cols, reinterpret_cast<Bf16*>(buffer.data()), &to_bf16);
    else
      fill(s, rows, cols, reinterpret_cast<float*>(buffer.data()), [](float v) { return v; });
    const int64_t at = s.at + rows.begin * s.pitch + cols.begin;
    if (cols.count == s.pitch) return put(at, buffer);
    const auto bytes = static_cast<size_t>(cols.count * size);
    for (int64_t r = 0; r < rows.count; ++r)
      put(at + r * s.pitch, std::span(buffer).subspan(static_cast<size_t>(r) * bytes, bytes));
  };
  each_stored_rows(tensor, of, [&](const StoredRows& s) {
    const int64_t width = std::min(s.cols, most), height = std::max<int64_t>(1, most / width);
    for (int64_t row = 0; row < s.rows; row += height) {
      for (int64_t col = 0; col < s.cols; col += width)
        put_block(s, {row, std::min(height, s.rows - row)}, {col, std::min(width, s.cols - col)});
    }
  });
}

void take_stored(const MasterTensor& tensor, const Range& of, std::span<const std::byte> stored, bool value,
                 std::span<float> values) {
  CHECK(std::ssize(stored) == tensor.shape.count() * size_of(DType::f32) && std::ssize(values) == of.count,
        "{}: {} bytes, {} of {}", tensor.name, stored.size(), values.size(), of.count);
  constexpr int64_t kBlock = 16;  // of columns, so that a transpose does not stride through memory on both sides
  const float plus = value ? tensor.plus : 0;
  const auto* from = reinterpret_cast<const float*>(stored.data());
  each_stored_rows(tensor, of, [&](const StoredRows& s) {
    const int64_t width = s.col_step == 1 ? s.cols : kBlock;
    for (int64_t col = 0; col < s.cols; col += width) {
      for (int64_t r = 0; r < s.rows; ++r) {
        const float* row = from + s.at + r * s.pitch;
        float* to = &values[static_cast<size_t>(s.from + r * s.row_step)];
        for (int64_t c = col; c < std::min(col + width, s.cols); ++c) to[c * s.col_step] = row[c] + plus;
      }
    }
  });
}

}  // namespace braid::models
