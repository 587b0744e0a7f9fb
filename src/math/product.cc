#include "math/product.h"

#include <algorithm>

#include "math/codes_a8.h"
#include "math/codes_dot.h"
#include "math/panel.h"
#include "math/tile.h"
#include "sys/machine.h"

namespace braid {
namespace {

// Small enough that a late thread delays the rest little, long enough to read one stream. With few rows a task is
// memory-bound, and shorter tasks balance better.
int64_t panel_cols(int64_t rows, int64_t, int, const Thresholds& limits) {
  return rows <= limits.panel_task_rows ? kPanelCols : 3 * kPanelCols;
}

template <PanelClass kClass>
constexpr ProductEngine panel_engine() {
  return {.x = kClass == PanelClass::f32 ? DType::f32 : DType::bf16,
          .refusal = [](const Weight&) { return panel_refusal(kClass); },
          .workspace = [](const Weight& w, int64_t) { return panel_workspace(w); },
          .product = [](const ProductCall& p) { panel_product(kClass, p.x, p.w, p.y, p.workspace, *p.limits); },
          .task_cols = &panel_cols};
}

const tiles::Walk& walk(bool soft) { return soft ? tiles::walk_soft() : tiles::walk_amx(); }

template <bool kSoft>
constexpr ProductEngine tile_engine() {
  return {.rows_max = tiles::kRowsMax,
          .block_rows = 16,
          .refusal = [](const Weight& w) { return kSoft || sys::machine().amx ? tiles::refusal(w) : "no tiles"; },
          .row_bytes = [](const Weight& w) { return tiles::packed_row_bytes(w.cols); },
          .same_packing = &tiles::same_packing,
          .pack = [](const View& x, const Weight& w, int64_t begin, int64_t end,
                     std::byte* packed) { tiles::pack(walk(kSoft), x, w, begin, end, packed); },
          .workspace = [](const Weight&, int64_t rows) { return tiles::workspace(rows); },
          .product = [](const ProductCall& p) { tiles::product(walk(kSoft), p.packed, p.w, p.y, p.workspace); },
          .task_cols = [](int64_t, int64_t, int, const Thresholds&) { return 4 * tiles::kStripCols; }};
}

void pack_a16(const View& x, const Weight& w, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t first = begin * codes::kRowsMax, rows = std::min(end * codes::kRowsMax, x.dim(0)) - first;
  codes::pack(x.slice(0, first, rows), w.spec, packed + codes::packed_bytes(first, w.cols));
}

void pack_a8(const View& x, const Weight& w, int64_t begin, int64_t end, std::byte* packed) {
  using codes::a8::kBlockRows;
  for (int64_t m = begin * kBlockRows; m < std::min(end * kBlockRows, x.dim(0)); m += kBlockRows) {
    const Bf16* block[kBlockRows];
    const int64_t n = std::min(kBlockRows, x.dim(0) - m);
    for (int64_t r = 0; r < n; ++r) block[r] = x.as<Bf16>(m + r);
    codes::a8::pack(block, n, w.cols, w.spec, packed + m * codes::a8::row_bytes(w.spec, w.cols));
  }
}

// A step streams its weights: longer tasks keep what was prefetched, two for each thread balance well enough.
int64_t a8_cols(int64_t rows, int64_t cols, int threads, const Thresholds& limits) {
  using codes::a8::kStripCols;
  constexpr int64_t kMany = 4 * kStripCols, kMost = 32 * kStripCols;
  if (rows > limits.codes_task_rows) return kMany;
  const int64_t each = (cols / (2 * threads) + kStripCols - 1) / kStripCols * kStripCols;
  return std::clamp(each, kMany, kMost);
}

}  // namespace

constexpr ProductEngine kPanelF32 = panel_engine<PanelClass::f32>();
constexpr ProductEngine kPanelBf16 = panel_engine<PanelClass::bf16>();
constexpr ProductEngine kPanelDot = panel_engine<PanelClass::bf16_dot>();
constexpr ProductEngine kTiles = tile_engine<false>();
constexpr ProductEngine kSoftTiles = tile_engine<true>();

constexpr ProductEngine kCodesA16{
    .rows_max = codes::kRowsMax,
    .block_rows = codes::kRowsMax,
    .refusal = &codes::refusal,
    .row_bytes = [](const Weight& w) { return codes::packed_bytes(1, w.cols); },
    .same_packing = [](const Weight& a, const Weight& b) { return codes::same_packing(a.spec, b.spec); },
    .pack = &pack_a16,
    .workspace = [](const Weight&, int64_t) { return int64_t{0}; },
    .product = [](const ProductCall& p) { codes::product(p.packed, p.w, p.y); },
    .task_cols = [](int64_t, int64_t, int, const Thresholds&) { return int64_t{64}; }};

constexpr ProductEngine kCodesA8{
    .rows_max = codes::a8::kRowsMax,
    .block_rows = codes::a8::kBlockRows,
    .refusal = &codes::refusal,
    .row_bytes = [](const Weight& w) { return codes::a8::row_bytes(w.spec, w.cols); },
    .same_packing = [](const Weight& a, const Weight& b) { return codes::a8::same_packing(a.spec, b.spec); },
    .pack = &pack_a8,
    .workspace = [](const Weight&, int64_t rows) { return codes::a8::workspace(rows); },
    .product = [](const ProductCall& p) { codes::a8::product(p.packed, p.w, p.y, p.workspace, *p.limits); },
    .task_cols = &a8_cols};

}  // namespace braid
