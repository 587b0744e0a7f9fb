// What a rank holds of a tensor, or some of its elements, as rows of the tensor in its file: the ranges that it reads
// and writes there. Heads, groups and channels of fused matrices land where the uncut tensor has them.
//
// Rows as blocks read them are contiguous in the file, and columns are a piece of every row: a matrix [N, K] that P
// ranks cut by columns is N writes of K / P elements each. Of a tensor that is stored transposed (GPT-2's) it is the
// other way round. Nothing is larger than kStoredBytesMost at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "models/master_weights.h"
#include "sys/function_ref.h"

namespace braid::models {

inline constexpr int64_t kStoredBytesMost = int64_t{1} << 20;

struct StoredRows {
  int64_t at = 0, rows = 0, cols = 0,
          pitch = 0;                             // in the file, in elements: where the first row begins, their distance
  int64_t from = 0, row_step = 0, col_step = 0;  // among the elements asked for
};

// Of the elements `of` of what is held of a tensor. Their order is not that of the file.
void each_stored_rows(const MasterTensor& tensor, const Range& of, sys::FunctionRef<void(const StoredRows&)> visit);

// Those elements, one after the other in `values`, in the type of the file; with `value` (not a moment) without what
// loading added. `put` gets consecutive elements of the stored tensor, from number `at` on.
void put_stored(const MasterTensor& tensor, const Range& of, std::span<const float> values, bool value, DType dtype,
                sys::FunctionRef<void(int64_t at, std::span<const std::byte> bytes)> put);
// The same elements from the whole stored tensor in F32, of which nothing else is touched.
void take_stored(const MasterTensor& tensor, const Range& of, std::span<const std::byte> stored, bool value,
                 std::span<float> values);

}  // namespace braid::models
