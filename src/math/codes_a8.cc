#include "math/codes_a8.h"

#include <algorithm>

#include "math/codes_a8_kernel.h"
#include "math/codes_dot.h"
#include "sys/machine.h"

namespace braid::codes::a8 {
namespace {

constexpr int64_t kChunk = 512;  // values along k whose codes are looked up at a time: 20 KiB of units stay in L1

int64_t groups_of(int64_t depth) { return (depth + kGroup - 1) / kGroup; }
int64_t steps_of(int64_t depth) { return (depth + kStep - 1) / kStep; }
int64_t sum_bytes(int64_t rows) { return std::min(rows, kRowsMax) * kStripCols * static_cast<int64_t>(sizeof(float)); }
constexpr int64_t kUnitsBytes = kChunk / kStep * unit_bytes(16, true);  // of 16 rows, any format

using Bytes = std::span<const std::byte>;
int64_t lines_of(Bytes bytes) { return (static_cast<int64_t>(bytes.size()) + 63) / 64; }
void prefetch(Bytes bytes) {
  for (size_t at = 0; at < bytes.size(); at += 64) prefetch_to_l2(bytes.data() + at);
}

// Part `i` of `parts` of n rows from `begin` on, as far as they exist, in the order of addresses: so the prefetcher of
// the CPU runs ahead, which can have more lines under way than one core may ask for.
Bytes rows_part(const View& rows, int64_t begin, int64_t n, int64_t i, int64_t parts) {
  const int64_t bytes = std::min(n, rows.dim(0) - begin) * rows.stride(0);
  if (bytes <= 0) return {};
  const int64_t from = bytes * i / parts, to = bytes * (i + 1) / parts;
  return {rows.data + begin * rows.stride(0) + from, static_cast<size_t>(to - from)};
}
void prefetch_rows(const Weight& w, int64_t n) {
  prefetch(rows_part(w.codes, 0, n, 0, 1));
  if (w.scales) prefetch(rows_part(w.scales, 0, n, 0, 1));
}

// Rows [row, row + 16) of w, as far as they exist, but at least one.
Columns columns_at(const Weight& w, int64_t row) {
  const int64_t first = std::min(row, w.rows - 1);
  return {.codes = w.codes.as<uint8_t>(first),
          .scales = w.scales ? &w.scales.as<F8E4M3>(first)->bits : nullptr,
          .codes_stride = w.codes.stride(0),
          .scales_stride = w.scales ? w.scales.stride(0) : 0,
          .count = std::min(w.rows - first, kUnitRows),
          .depth = w.cols};
}

// `stride` sums per row.
void write(const float* sums, int64_t stride, int64_t cols, float factor, const MutView& y, int64_t col) {
  for (int64_t m = 0; m < y.dim(0); ++m, sums += stride) {
    if (y.dtype == DType::bf16) {
      for (int64_t n = 0; n < cols; ++n) y.as<Bf16>(m)[col + n] = to_bf16(sums[n] * factor);
    } else {
      for (int64_t n = 0; n < cols; ++n) y.as<float>(m)[col + n] = sums[n] * factor;
    }
  }
}

}  // namespace

bool same_packing(const QuantSpec& a, const QuantSpec& b) {
  const Codes &first = *codes_of(a), &second = *codes_of(b);
  return first.grain == second.grain && first.factor == second.factor && first.pairs == second.pairs;
}

int64_t row_bytes(const QuantSpec& weights, int64_t depth) {
  return groups_of(depth) * group_bytes(codes_of(weights)->grain, 1);
}

void pack(const Bf16* const* rows, int64_t n, int64_t depth, const QuantSpec& weights, std::byte* packed) {
  const Codes& codes = *codes_of(weights);
  const auto pack_row = sys::machine().avx512_vnni ? &pack_row_avx512 : &pack_row_avx2;
  for (int64_t r = 0; r < n; ++r) pack_row(rows[r], depth, codes, n, r, packed);
}

int64_t workspace(int64_t rows) { return sum_bytes(rows) + 2 * kUnitsBytes; }

void product(const std::byte* packed, const Weight& w, const MutView& y, std::span<std::byte> workspace,
             const Thresholds& t) {
  const Codes& codes = *codes_of(w.spec);
  const int64_t rows = y.dim(0), own = row_bytes(w.spec, w.cols), blocks = (rows + kBlockRows - 1) / kBlockRows;
  const sys::Machine& machine = sys::machine();
  const auto strip = machine.avx512_vnni ? &strip_avx512 : machine.avx_vnni ? &strip_avx2_vnni : &strip_avx2;
  auto* sums = reinterpret_cast<float*>(workspace.data());
  if (rows <= std::min(codes.few_rows, t.codes_few_rows)) {
    prefetch_rows(w, kFewCols);  // each call prefetches the rows of the next
    for (int64_t n = 0; n < w.rows; n += kFewCols) {
      codes.few(columns_at(w, n), packed, rows, sums);
      write(sums, kFewCols, std::min(kFewCols, w.rows - n), codes.worth * w.global, y, n);
    }
    return;
  }
  std::byte* units = workspace.data() + sum_bytes(rows);
  prefetch_rows(w, kStripCols);
  const int64_t parts = (w.cols + kChunk - 1) / kChunk * blocks;  // calls of strip, each prefetches a part
  for (int64_t n = 0; n < w.rows; n += kStripCols) {
    int64_t part = 0;
    for (int64_t k = 0; k < w.cols; k += kChunk) {
      const int64_t values = std::min(kChunk, w.cols - k);
      codes.columns(columns_at(w, n), k, values, units);
      codes.columns(columns_at(w, n + kUnitRows), k, values, units + kUnitsBytes);
      for (int64_t m = 0; m < rows; m += kBlockRows) {
        const int64_t some = std::min(kBlockRows, rows - m);
        const Bytes ahead = rows_part(w.codes, n + kStripCols, kStripCols, part, parts);
        if (w.scales) prefetch(rows_part(w.scales, n + kStripCols, kStripCols, part, parts));
        ++part;
        strip({.x = packed + m * own + k / kGroup * group_bytes(codes.grain, some),
               .w = units,
               .w_half = kUnitsBytes,
               .rows = some,
               .steps = steps_of(values),
               .y = sums + m * kStripCols,
               .add = k > 0,
               .ahead = ahead.data(),
               .ahead_lines = lines_of(ahead)},
              codes);
      }
    }
    write(sums, kStripCols, std::min(kStripCols, w.rows - n), codes.worth * w.global, y, n);
  }
}

}  // namespace braid::codes::a8
