// GroupedRows: the values of a matrix with many zeros again, for products that skip columns (math/grouped_rows.h). Rows
// are in groups of `height` that need not be neighbours; of each group the columns are listed in which any of its rows
// has a value, and for each of these the values of all its rows (Shfl-BW, arXiv 2203.05016, section 4.2). Padding rows,
// of the last group, are zeros. GroupedView: the same, owning nothing, in the memory of a CPU or of a GPU
// (core/device/gpu_groups.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/view.h"
#include "sys/big_vector.h"

namespace braid {

struct GroupedView {
  int64_t rows = 0, cols = 0, height = 0;
  View row_of{};   // [groups * height] I32; -1: padding
  View begin{};    // [groups + 1] I64, into `columns`
  View columns{};  // [n] I32, ascending within a group
  View values{};   // [n, height] F32 or BF16
  View order{};    // [groups] I32, groups of most columns first; on GPUs only

  explicit operator bool() const { return rows > 0; }
  int64_t groups() const { return begin.dim(0) - 1; }
  int64_t bytes() const { return values.bytes() + columns.bytes() + row_of.bytes(); }
};

struct GroupedRows {
  int64_t rows = 0, cols = 0, height = 0;
  DType dtype = DType::f32;            // or BF16
  std::vector<int32_t> row_of{};       // [groups * height]; -1: padding
  std::vector<int64_t> begin{};        // [groups + 1], into `columns`
  std::vector<int32_t> columns{};      // ascending within a group
  sys::BigVector<std::byte> values{};  // [columns][height]

  int64_t groups() const { return static_cast<int64_t>(begin.size()) - 1; }
  // Values that are stored, over those of the whole matrix.
  double density() const {
    return static_cast<double>(columns.size()) * static_cast<double>(height) / static_cast<double>(rows * cols);
  }
  int64_t bytes() const { return static_cast<int64_t>(values.size() + 4 * columns.size() + 4 * row_of.size()); }
  GroupedView view() const {
    const auto n = static_cast<int64_t>(columns.size());
    return {.rows = rows,
            .cols = cols,
            .height = height,
            .row_of = view_of(row_of.data(), {static_cast<int64_t>(row_of.size())}),
            .begin = view_of(begin.data(), {static_cast<int64_t>(begin.size())}),
            .columns = view_of(columns.data(), {n}),
            .values = View(values.data(), dtype, {n, height})};
  }
};

}  // namespace braid
