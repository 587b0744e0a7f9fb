// Attention with Highway. A task takes the keys block by block: it transposes the block's keys, multiplies all its
// query rows with them (lanes are keys), turns scores into exponentials, and adds their product with the values (lanes
// are channels). Both products are one register tile, and every one of their sums runs over channels or keys in order,
// whatever the tile's shape: that is what makes prefill, chunks and steps agree bit for bit. With a packed kernel both
// are products of BF16 on tiles; a key that a row does not see has an exponential of zero there, which adds nothing.
#include "kernels/attention/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "kernels/attention/attention_tile-inl.h"
#include "sys/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Row of position `start` in the concatenated pages, without a page table.
HWY_INLINE int64_t flat_row(const View& table, const AttentionTile& t, int64_t start) {
  return table ? start : t.seen.start + start;
}

// visit(j, entry, at): key j of a block is row `at` of page `entry`.
template <class Visit>
void for_each_key(const View& pages, const View& table, const AttentionTile& t, int64_t start, int64_t n,
                  const Visit& visit) {
  const int64_t page = pages.dim(1);
  const int32_t* entries = table ? table.as<int32_t>(t.seq.table) : nullptr;
  const int64_t first = flat_row(table, t, start);
  int64_t entry = first / page, at = first % page;
  for (int64_t j = 0; j < n; ++j) {
    visit(j, entries ? entries[entry] : entry, at);
    if (++at == page) {
      at = 0;
      ++entry;
    }
  }
}

// The rows of one block in a paged cache; entries from n on repeat the first, so that whole vectors of keys may be
// read.
template <class Num>
void block_rows(const View& pages, const View& table, const AttentionTile& t, int64_t start, int64_t n,
                const Num** rows) {
  for_each_key(pages, table, t, start, n, [&](int64_t j, int64_t entry, int64_t at) {
    rows[j] = pages.as<Num>(entry) + at * pages.stride(1) + t.group * pages.stride(2);
  });
  for (int64_t j = n; j < kAttentionBlock; ++j) rows[j] = rows[0];
}

// Codes of one byte become floats before they are multiplied: rows `pad` apart, zero beyond their width.
template <class Num>
void widen_codes(const View& pages, const View& scales, const View& table, const AttentionTile& t, int64_t start,
                 int64_t n, int64_t pad, float* to) {
  const int64_t width = pages.dim(3);
  for_each_key(pages, table, t, start, n, [&](int64_t j, int64_t entry, int64_t at) {
    const Num* row = pages.as<Num>(entry) + at * pages.stride(1) + t.group * pages.stride(2);
    const float scale = scales ? scales.as<float>(entry)[at * scales.stride(1) + t.group] : 1.0f;
    widen_row(row, scale, to + j * pad, width);
    std::fill(to + j * pad + width, to + (j + 1) * pad, 0.0f);
  });
}

// Plain rows of whole vectors with a constant stride can be multiplied in place. Widening BF16 in the tile costs less
// than a copy as long as few tiles do it.
template <class Num>
bool in_place(const AttentionFwd& op, const AttentionTile& t, int64_t start, int64_t n) {
  const int64_t page = op.v_pages.dim(1), first = flat_row(op.page_table, t, start);
  const bool cheap = std::is_same_v<Num, float> || t.rows() <= 2 * kRows;
  return cheap && op.v_pages.dim(3) % kLanes == 0 && first / page == (first + n - 1) / page;
}

template <class Num>
void copy_values(const Num* const* rows, int64_t n, int64_t width, int64_t pad, float* values) {
  for (int64_t j = 0; j < n; ++j) {
    widen_row(rows[j], 1, values + j * pad, width);
    std::fill(values + j * pad + width, values + (j + 1) * pad, 0.0f);
  }
}

// What is subtracted from scores up to `highest`: nothing where all of them are -inf, since -inf - -inf is NaN, and
// such a key adds nothing.
HWY_INLINE FloatVec base_of(FloatVec highest) {
  const FloatTag d;
  const auto none = hn::Eq(highest, hn::Set(d, -std::numeric_limits<float>::infinity()));
  return hn::IfThenZeroElse(none, highest);
}

// One block of the running softmax: scores [rows, kBlock] become exponentials, earlier sums are rescaled to the new
// maximum. `seen` keys are visible to the first row's token, at most `most` to any.
HWY_NOINLINE void soften(const AttentionScratch& s, const AttentionTile& t, int64_t row, int64_t seen, int64_t most) {
  const FloatTag d;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t left = t.ratio; row < t.rows(); ++row, --left) {
    if (left == 0) {
      left = t.ratio;
      ++seen;
    }
    const int64_t n = std::min(seen, most);
    float* scores = s.scores + row * kAttentionBlock;
    FloatVec top = lowest;
    for (int64_t i = 0; i < n; i += kLanes) {
      FloatVec v = load(d, scores + i);
      if (i + kLanes > n) {
        v = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n - i)), v, lowest);
        store(v, d, scores + i);
      }
      top = hn::Max(top, v);
    }
    float* max = s.part.max + row;
    const FloatVec before = hn::Set(d, *max), after = hn::Max(before, hn::MaxOfLanes(d, top));
    const FloatVec base = base_of(after);
    const float highest = hn::GetLane(after);
    FloatVec sum = load(d, s.sums + row * 16);
    if (highest != *max) {
      const FloatVec shrink = hn::Exp(d, hn::Sub(before, after));
      float* y = s.part.y + row * s.part.pad;
      for (int64_t i = 0; i < s.part.pad; i += kLanes) store(hn::Mul(load(d, y + i), shrink), d, y + i);
      sum = hn::Mul(sum, shrink);
      *max = highest;
    }
    for (int64_t i = 0; i < n; i += kLanes) {
      const FloatVec e = exp_nonpositive(d, hn::Sub(load(d, scores + i), base));
      store(e, d, scores + i);
      sum = hn::Add(sum, e);
    }
    store(sum, d, s.sums + row * 16);
  }
}

constexpr int64_t kLines = 44;  // prefetched before a tile of values

// Keys or values of the next block: prefetched into L2, a few lines before each tile of the current one, since many at
// once wait for each other. Only if the rows are contiguous.
class Ahead {
 public:
  Ahead(const View& pages, const View& table, const AttentionTile& t, int64_t start) {
    const int64_t n = std::min(kAttentionBlock, t.keys() - start), page = pages.dim(1), width = pages.dim(3);
    const int64_t first = flat_row(table, t, start);
    if (n <= 0 || pages.stride(1) != width || first / page != (first + n - 1) / page) return;
    const int64_t entry = table ? table.as<int32_t>(t.seq.table)[first / page] : first / page;
    const int64_t at = entry * pages.stride(0) + first % page * pages.stride(1) + t.group * pages.stride(2);
    next_ = pages.data + at * size_of(pages.dtype);
    lines_ = n * width * size_of(pages.dtype) / 64;
  }
  void fetch(int64_t lines) {
    for (lines = std::min(lines, lines_); lines > 0; --lines, --lines_, next_ += 64) prefetch_to_l2(next_);
  }

 private:
  const std::byte* next_ = nullptr;
  int64_t lines_ = 0;
};

// y += exponentials x values. Rows of a tile see different numbers of keys in the diagonal block only; a key that a row
// does not see never affects it.
template <class Num>
void add_values(const AttentionScratch& s, const AttentionTile& t, int64_t row, int64_t seen, int64_t most,
                const Num* values, int64_t stride, int64_t width, Ahead ahead) {
  const int64_t first = row, cols = (width + kLanes - 1) / kLanes;
  const auto depth = [&](int64_t r) { return std::min(seen + (r - first) / t.ratio, most); };
  for (int64_t col = 0, n = 0; col < cols; col += n) {
    n = even_part(cols - col, kCols);
    for (int64_t r = first, m = 0; r < t.rows(); r += m) {
      m = even_part(t.rows() - r, kRows);
      const int64_t common = depth(r);
      TileProduct<Num> p{.a = s.scores + r * kAttentionBlock,
                         .a_stride = kAttentionBlock,
                         .b = values + col * kLanes,
                         .b_stride = stride,
                         .depth = common,
                         .c = s.part.y + r * s.part.pad + col * kLanes,
                         .c_stride = s.part.pad};
      ahead.fetch(kLines);
      tile_any(p, m, n);
      for (int64_t i = 0; i < m; ++i) {
        if (depth(r + i) == common) continue;
        TileProduct<Num> rest = p;
        rest.a += i * p.a_stride + common;
        rest.b += common * p.b_stride;
        rest.depth = depth(r + i) - common;
        rest.c += i * p.c_stride;
        tile_any(rest, 1, n);
      }
    }
  }
}

// s.keys: the keys of a block, transposed. Codes pass through s.values, which is free until the values are loaded.
template <class Num>
void transpose_block(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t start,
                     int64_t n) {
  const int64_t width = op.q.dim(2);
  if constexpr (sizeof(Num) == 1) {
    const float* rows[kAttentionBlock];
    widen_codes<Num>(op.k_pages, op.k_scales, op.page_table, t, start, n, s.part.pad, s.values);
    for (int64_t j = 0; j < kAttentionBlock; ++j) rows[j] = s.values + (j < n ? j : 0) * s.part.pad;
    transpose_keys(rows, n, width, s.keys);
  } else {
    const Num* rows[kAttentionBlock];
    block_rows(op.k_pages, op.page_table, t, start, n, rows);
    transpose_keys(rows, n, width, s.keys);
  }
}

template <class Num>
void add_block(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t start, int64_t n) {
  const int64_t width = op.q.dim(2), token = std::max<int64_t>(0, start - t.pos()), row = token * t.ratio;
  const int64_t seen = t.pos() + token + 1 - start, most = t.most(start);
  const Ahead ahead(op.k_pages, op.page_table, t, start + kAttentionBlock);
  if constexpr (sizeof(Num) == 1) {
    widen_codes<Num>(op.v_pages, op.v_scales, op.page_table, t, start, n, s.part.pad, s.values);
    add_values(s, t, row, seen, most, s.values, s.part.pad, width, ahead);
  } else {
    const Num* rows[kAttentionBlock];
    block_rows(op.v_pages, op.page_table, t, start, n, rows);
    if (in_place<Num>(op, t, start, n)) {
      add_values(s, t, row, seen, most, rows[0], op.v_pages.stride(1), width, ahead);
    } else {
      copy_values(rows, n, width, s.part.pad, s.values);
      add_values(s, t, row, seen, most, s.values, s.part.pad, width, ahead);
    }
  }
}

using HalfTag = hn::ScalableTag<uint16_t>;
using HalfVec = hn::VFromD<HalfTag>;
constexpr int64_t kWords = 2 * kLanes;

// A vector of values that are exact in BF16, as its bits.
HWY_INLINE HalfVec bf16_bits(const Bf16* p) { return hn::LoadU(HalfTag(), &p->bits); }
// Exponent and mantissa of FP8 are shifted into place; the eight least magnitudes, multiples of 2^-9, are looked up.
HWY_INLINE HalfVec bf16_bits(const F8E4M3* p) {
  const HalfTag d;
  const hn::Repartition<uint8_t, HalfTag> d8;
  alignas(16) static constexpr uint16_t kSmall[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const HalfVec bits = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, HalfTag>(), &p->bits));
  const HalfVec magnitude = hn::And(bits, hn::Set(d, 0x7f));
  const HalfVec normal = hn::Add(hn::ShiftLeft<4>(magnitude), hn::Set(d, (127 - 7) << 7));
  const auto table = hn::BitCast(d8, hn::LoadDup128(d, kSmall));
  const HalfVec both = hn::Or(hn::ShiftLeft<1>(magnitude), hn::ShiftLeft<9>(magnitude));
  const HalfVec bytes = hn::Add(hn::And(both, hn::Set(d, 0x0e0e)), hn::Set(d, 0x0100));
  const HalfVec small = hn::BitCast(d, hn::TableLookupBytes(table, hn::BitCast(d8, bytes)));
  const HalfVec finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 8)), small, normal);
  const HalfVec value = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, 0x7f)), hn::Set(d, 0x7fc0), finite);
  return hn::Or(value, hn::ShiftLeft<8>(hn::And(bits, hn::Set(d, 0x80))));
}
HWY_INLINE HalfVec bf16_bits(const int8_t* p) {
  const FloatTag d;
  const WordTag d32;
  const auto low = hn::ShiftRight<16>(hn::BitCast(d32, load(d, p))),
             high = hn::ShiftRight<16>(hn::BitCast(d32, load(d, p + kLanes)));
  const hn::Half<HalfTag> half;
  return hn::Combine(HalfTag(), hn::TruncateTo(half, high), hn::TruncateTo(half, low));
}

// Keys or values of a block as BF16 with one stride: in place, else a copy. Codes are without their scales, which
// multiply scores and exponentials instead.
template <class Num>
packed::Source tile_source(const View& pages, const View& table, const AttentionTile& t, const AttentionScratch& s,
                           int64_t start, int64_t n) {
  const int64_t page = pages.dim(1), width = pages.dim(3), first = flat_row(table, t, start);
  if (std::is_same_v<Num, Bf16> && first / page == (first + n - 1) / page) {
    const int64_t entry = table ? table.as<int32_t>(t.seq.table)[first / page] : first / page;
    const Num* row = pages.as<Num>(entry) + first % page * pages.stride(1) + t.group * pages.stride(2);
    return {.data = row, .stride = pages.stride(1), .bf16 = true};
  }
  for_each_key(pages, table, t, start, n, [&](int64_t j, int64_t entry, int64_t at) {
    const Num* row = pages.as<Num>(entry) + at * pages.stride(1) + t.group * pages.stride(2);
    Bf16* to = s.block_rows + j * width;
    int64_t i = 0;
    for (; i + kWords <= width; i += kWords) hn::StoreU(bf16_bits(row + i), HalfTag(), &to[i].bits);
    for (; i < width; ++i) to[i] = to_bf16(to_float(row[i]));
  });
  return {.data = s.block_rows, .stride = width, .bf16 = true};
}

// s.factors: `factor` times the scale of each key.
void fill_factors(const View& pages, const View& scales, const View& table, const AttentionTile& t, int64_t start,
                  int64_t n, float factor, float* factors) {
  std::fill(factors, factors + kAttentionBlock, factor);
  if (!scales) return;
  for_each_key(pages, table, t, start, n, [&](int64_t j, int64_t entry, int64_t at) {
    factors[j] *= scales.as<float>(entry)[at * scales.stride(1) + t.group];
  });
}

HWY_INLINE void multiply_row(const float* factors, int64_t n, float* row) {
  const FloatTag d;
  for (int64_t i = 0; i < n; i += kLanes) store(hn::Mul(load(d, row + i), load(d, factors + i)), d, row + i);
}

HWY_INLINE int64_t padded_to(int64_t n, int64_t grain) { return (n + grain - 1) / grain * grain; }

// Few rows are bound by reading: while a panel is multiplied, a part of the next block is fetched, since all of it at
// once would stop the arithmetic until it is under way.
constexpr int64_t kFewRows = 32;
class AheadByPanel {
 public:
  AheadByPanel(const View& pages, const View& table, const AttentionTile& t, int64_t start, int64_t panels)
      : ahead_(pages, table, t, start + kAttentionBlock),
        lines_(t.rows() <= kFewRows ? kAttentionBlock * pages.dim(3) * size_of(pages.dtype) / (64 * panels) : 0) {}
  void fetch() { ahead_.fetch(lines_); }

 private:
  Ahead ahead_;
  int64_t lines_;
};

// Scores of all rows of a block; `row` is the first that sees it.
template <class Num>
void tile_scores(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t start, int64_t n,
                 int64_t row) {
  const packed::Kernel& kernel = *s.tiles;
  const int64_t width = op.q.dim(2), first = row / kernel.rows * kernel.rows;
  packed::Source keys = tile_source<Num>(op.k_pages, op.page_table, t, s, start, n);
  keys.along = true;
  AheadByPanel ahead(op.k_pages, op.page_table, t, start, kAttentionBlock / kernel.cols);
  for (int64_t key = 0; key < n; key += kernel.cols) {
    ahead.fetch();
    packed::pack(kernel, packed::Side::cols, packed::from(keys, key, 0), std::min(kernel.cols, n - key), width,
                 s.panel);
    packed::product(kernel, {.a = s.packed_q + packed::packed_bytes(kernel, packed::Side::rows, first, width),
                             .b = s.panel,
                             .m = padded_to(t.rows(), kernel.rows / 2) - first,
                             .n = kernel.cols,
                             .depth = width,
                             .y = s.scores + first * kAttentionBlock + key,
                             .y_stride = kAttentionBlock});
  }
  fill_factors(op.k_pages, op.k_scales, op.page_table, t, start, n, op.scale, s.factors);
  for (int64_t r = row; r < t.rows(); ++r) multiply_row(s.factors, n, s.scores + r * kAttentionBlock);
}

bool all_finite(const packed::Source& source, int64_t rows, int64_t width) {
  for (int64_t j = 0; j < rows; ++j) {
    const Bf16* row = static_cast<const Bf16*>(source.data) + j * source.stride;
    for (int64_t i = 0; i < width; ++i) {
      if ((row[i].bits & 0x7f80) == 0x7f80) return false;
    }
  }
  return true;
}

// add_block on tiles. A value that is not finite would make zeros times it NaN in rows that do not see its key: such a
// block goes through register tiles.
template <class Num>
void tile_values(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t start, int64_t n,
                 int64_t row) {
  const packed::Kernel& kernel = *s.tiles;
  const int64_t width = op.q.dim(2), first = row / kernel.rows * kernel.rows;
  const int64_t rows = padded_to(t.rows(), kernel.rows / 2) - first, seen = t.pos() + row / t.ratio + 1 - start;
  const packed::Source values = tile_source<Num>(op.v_pages, op.page_table, t, s, start, n);
  if ((seen < n || first < row) && !all_finite(values, n, width)) return add_block<Num>(op, t, s, start, n);
  fill_factors(op.v_pages, op.v_scales, op.page_table, t, start, n, 1, s.factors);
  std::fill(s.scores + first * kAttentionBlock, s.scores + row * kAttentionBlock, 0.0f);
  for (int64_t r = row; r < t.rows(); ++r) {
    float* p = s.scores + r * kAttentionBlock;
    const int64_t own = std::min(seen + (r - row) / t.ratio, t.most(start));
    if (op.v_scales) multiply_row(s.factors, own, p);
    std::fill(p + own, p + kAttentionBlock, 0.0f);
  }
  const packed::Source p{.data = s.scores + first * kAttentionBlock, .stride = kAttentionBlock, .along = true};
  packed::pack(kernel, packed::Side::rows, p, rows, n, s.packed_p);
  AheadByPanel ahead(op.v_pages, op.page_table, t, start, s.part.pad / kernel.cols);
  for (int64_t col = 0; col < width; col += kernel.cols) {
    ahead.fetch();
    packed::pack(kernel, packed::Side::cols, packed::from(values, col, 0), std::min(kernel.cols, width - col), n,
                 s.panel);
    packed::product(kernel, {.a = s.packed_p,
                             .b = s.panel,
                             .m = rows,
                             .n = kernel.cols,
                             .depth = n,
                             .y = s.part.y + first * s.part.pad + col,
                             .y_stride = s.part.pad,
                             .add = true});
  }
}

template <class Num>
void block(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t start) {
  const int64_t width = op.q.dim(2), n = std::min(kAttentionBlock, t.keys() - start);
  const int64_t token = std::max<int64_t>(0, start - t.pos()), row = token * t.ratio;
  if constexpr (!std::is_same_v<Num, float>) {
    if (s.tiles) {
      tile_scores<Num>(op, t, s, start, n, row);
      soften(s, t, row, t.pos() + token + 1 - start, t.most(start));
      return tile_values<Num>(op, t, s, start, n, row);
    }
  }
  transpose_block<Num>(op, t, s, start, n);
  const int64_t cols = (n + kLanes - 1) / kLanes;
  std::fill(s.scores + row * kAttentionBlock, s.scores + t.rows() * kAttentionBlock, 0.0f);
  Ahead values(op.v_pages, op.page_table, t, start);
  for (int64_t col = 0, c = 0; col < cols; col += c) {
    c = even_part(cols - col, kCols);
    for (int64_t r = row, m = 0; r < t.rows(); r += m) {
      m = even_part(t.rows() - r, kRows);
      const TileProduct<float> p{.a = s.q + r * width,
                                 .a_stride = width,
                                 .b = s.keys + col * kLanes,
                                 .b_stride = kAttentionBlock,
                                 .depth = width,
                                 .c = s.scores + r * kAttentionBlock + col * kLanes,
                                 .c_stride = kAttentionBlock};
      values.fetch(2 * kLines);
      tile_any(p, m, c);
    }
  }
  soften(s, t, row, t.pos() + token + 1 - start, t.most(start));
  add_block<Num>(op, t, s, start, n);
}

void any_block(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t start) {
  switch (op.k_pages.dtype) {
    case DType::bf16:
      return block<Bf16>(op, t, s, start);
    case DType::f8_e4m3:
      return block<F8E4M3>(op, t, s, start);
    case DType::i8:
      return block<int8_t>(op, t, s, start);
    default:
      return block<float>(op, t, s, start);
  }
}

void fill_queries(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s) {
  const int64_t width = op.q.dim(2);
  const float scale = s.tiles ? 1 : op.scale;
  for (int64_t r = 0; r < t.rows(); ++r) {
    const int64_t token = t.seq.start + t.first + r / t.ratio, head = t.group * t.ratio + r % t.ratio;
    if (op.q.dtype == DType::bf16) {
      widen_row(op.q.as<Bf16>(token) + head * op.q.stride(1), scale, s.q + r * width, width);
    } else {
      widen_row(op.q.as<float>(token) + head * op.q.stride(1), scale, s.q + r * width, width);
    }
  }
  if (!s.tiles) return;
  const packed::Source q{.data = s.q, .stride = width, .along = true};
  packed::pack(*s.tiles, packed::Side::rows, q, t.rows(), width, s.packed_q);
}

// The running softmax of one span, into s.part. Rows before the first that sees the span are not touched.
void span_part(const AttentionFwd& op, const AttentionTile& t, const AttentionScratch& s, int64_t span) {
  const int64_t start = span * kAttentionSpan, end = std::min(start + kAttentionSpan, t.keys());
  const int64_t row = std::max<int64_t>(0, start - t.pos()) * t.ratio, pad = s.part.pad;
  std::fill(s.part.y + row * pad, s.part.y + std::max(s.rows, t.rows()) * pad, 0.0f);
  std::fill(s.part.max + row, s.part.max + t.rows(), -std::numeric_limits<float>::infinity());
  std::fill(s.sums + row * 16, s.sums + t.rows() * 16, 0.0f);
  for (int64_t at = start; at < end; at += kAttentionBlock) any_block(op, t, s, at);
  const FloatTag d;
  for (int64_t r = row; r < t.rows(); ++r) s.part.sum[r] = hn::GetLane(hn::SumOfLanes(d, load(d, s.sums + r * 16)));
}

// total += part, both rescaled to the larger maximum.
HWY_NOINLINE void merge(const AttentionPart& total, const AttentionPart& part, int64_t row, int64_t rows) {
  const FloatTag d;
  for (; row < rows; ++row) {
    const FloatVec a = hn::Set(d, total.max[row]), b = hn::Set(d, part.max[row]), top = hn::Max(a, b);
    const FloatVec base = base_of(top);
    const FloatVec scale_a = hn::Exp(d, hn::Sub(a, base)), scale_b = hn::Exp(d, hn::Sub(b, base));
    float *y = total.y + row * total.pad, *more = part.y + row * total.pad;
    for (int64_t i = 0; i < total.pad; i += kLanes) {
      store(hn::MulAdd(load(d, more + i), scale_b, hn::Mul(load(d, y + i), scale_a)), d, y + i);
    }
    const FloatVec sum = hn::Mul(hn::Set(d, total.sum[row]), scale_a);
    total.sum[row] = hn::GetLane(hn::MulAdd(hn::Set(d, part.sum[row]), scale_b, sum));
    total.max[row] = hn::GetLane(top);
  }
}

template <class Num>
void multiply_into(const float* from, float by, Num* to, int64_t n) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, by);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Mul(load(d, from + i), factor), d, to + i);
  if (i < n) store_n(hn::Mul(load(d, from + i), factor), d, to + i, n - i);
}

void finish(const AttentionFwd& op, const AttentionTile& t, const AttentionPart& total) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    const int64_t token = t.seq.start + t.first + r / t.ratio, head = t.group * t.ratio + r % t.ratio;
    const float* y = total.y + r * total.pad;
    if (op.lse) op.lse.as<float>(token)[head] = total.max[r] + std::log(total.sum[r]);
    if (op.y.dtype == DType::bf16) {
      multiply_into(y, op.v_factor / total.sum[r], op.y.as<Bf16>(token) + head * op.y.stride(1), op.y.dim(2));
    } else {
      multiply_into(y, op.v_factor / total.sum[r], op.y.as<float>(token) + head * op.y.stride(1), op.y.dim(2));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(fill_queries);
HWY_EXPORT(span_part);
HWY_EXPORT(merge);
HWY_EXPORT(finish);

namespace {

// How a call is split: tiles of tokens, sequences, KV heads and, if those are too few for the threads, spans.
struct Plan {
  int64_t ratio = 1, tile_tokens = 1, tiles = 0, seqs = 0, groups = 0, spans = 0;
  int64_t width = 0, pad = 0, rows = 0;
  bool split = false;
  const packed::Kernel* kernel = nullptr;

  int64_t units() const { return tiles * seqs * groups; }
  int64_t part_floats() const { return rows * (pad + 32); }
};

Plan make_plan(const packed::Kernel* kernel, const AttentionFwd& op, int threads) {
  Plan plan;
  plan.kernel = kernel;
  // Multiples of every target's vectors, or of the kernel's panels.
  const int64_t row_grain = kernel ? kernel->rows : 16, col_grain = kernel ? kernel->cols : 16;
  CHECK(kAttentionBlock % col_grain == 0, "panels of {}", col_grain);
  plan.groups = op.k_pages.dim(2);
  plan.ratio = op.q.dim(1) / plan.groups;
  plan.width = op.q.dim(2);
  plan.pad = (plan.width + col_grain - 1) / col_grain * col_grain;
  plan.seqs = static_cast<int64_t>(op.seqs->seqs.size());
  int64_t longest = 0, keys = 0, work = 0;
  for (size_t i = 0; i < op.seqs->seqs.size(); ++i) {
    const Seq& seq = op.seqs->seqs[i];
    longest = std::max(longest, seq.len);
    if (seq.len > 0) keys = std::max(keys, keys_of(*op.seqs, op.keys, i).count);
  }
  plan.tile_tokens = std::clamp<int64_t>(kAttentionTileRows / plan.ratio, 1, std::max<int64_t>(longest, 1));
  plan.rows = (plan.tile_tokens * plan.ratio + row_grain - 1) / row_grain * row_grain;
  plan.tiles = (longest + plan.tile_tokens - 1) / plan.tile_tokens;
  for (const Seq& seq : op.seqs->seqs) work += (seq.len + plan.tile_tokens - 1) / plan.tile_tokens * plan.groups;
  plan.spans = (keys + kAttentionSpan - 1) / kAttentionSpan;
  plan.split = threads > 1 && plan.spans > 1 && work < 2 * threads;
  return plan;
}

// Unit i; the last tiles of the sequences, which see most keys, come first.
AttentionTile tile_at(const AttentionFwd& op, const Plan& plan, int64_t i) {
  AttentionTile t;
  t.ratio = plan.ratio;
  t.group = i % plan.groups;
  const auto number = static_cast<size_t>(i / plan.groups % plan.seqs);
  t.seq = op.seqs->seqs[number];
  t.seen = keys_of(*op.seqs, op.keys, number);
  t.first = (plan.tiles - 1 - i / plan.groups / plan.seqs) * plan.tile_tokens;
  t.tokens = std::min(plan.tile_tokens, t.seq.len - t.first);
  return t;
}

AttentionPart part_at(const Plan& plan, float* at) {
  if (!at) return {};
  return {.y = at, .max = at + plan.rows * plan.pad, .sum = at + plan.rows * (plan.pad + 16), .pad = plan.pad};
}

// Lays out one thread's memory; returns its size in floats. Without memory it only counts.
int64_t lay_out(const Plan& plan, float* base, AttentionScratch& s) {
  int64_t used = 0;
  const auto take = [&](int64_t n) {
    float* at = base ? base + used : nullptr;
    used += (n + 15) / 16 * 16;
    return at;
  };
  s.keys = take(plan.width * kAttentionBlock);
  s.values = take(plan.pad * kAttentionBlock);
  s.scores = take(plan.rows * kAttentionBlock);
  s.sums = take(plan.rows * 16);
  s.total = part_at(plan, take(plan.part_floats()));
  s.part = part_at(plan, take(plan.part_floats()));
  s.q = take(plan.rows * plan.width + 16);  // whole vectors of the last row may be read
  if (!plan.kernel) return used;
  const auto take_packed = [&](packed::Side side, int64_t n, int64_t depth) {
    const int64_t bytes = packed::packed_bytes(*plan.kernel, side, n, depth);
    return reinterpret_cast<std::byte*>(take(bytes / static_cast<int64_t>(sizeof(float))));
  };
  s.tiles = plan.kernel;
  s.rows = plan.rows;
  s.packed_q = take_packed(packed::Side::rows, plan.rows, plan.width);
  s.packed_p = take_packed(packed::Side::rows, plan.rows, kAttentionBlock);
  s.panel = take_packed(packed::Side::cols, plan.kernel->cols, std::max(plan.width, kAttentionBlock));
  s.block_rows = reinterpret_cast<Bf16*>(take(kAttentionBlock * plan.width / 2));
  s.factors = take(kAttentionBlock);
  return used;
}

int64_t spans_of(const AttentionTile& t) { return (t.keys() + kAttentionSpan - 1) / kAttentionSpan; }
int64_t first_row(const AttentionTile& t, int64_t span) {
  return std::max<int64_t>(0, span * kAttentionSpan - t.pos()) * t.ratio;
}

void whole_unit(const AttentionFwd& op, const AttentionTile& t, AttentionScratch s) {
  HWY_DYNAMIC_DISPATCH(fill_queries)(op, t, s);
  for (int64_t span = 0; span < spans_of(t); ++span) {
    HWY_DYNAMIC_DISPATCH(span_part)(op, t, s, span);
    if (span == 0) {
      std::swap(s.part, s.total);
    } else {
      HWY_DYNAMIC_DISPATCH(merge)(s.total, s.part, first_row(t, span), t.rows());
    }
  }
  HWY_DYNAMIC_DISPATCH(finish)(op, t, s.total);
}

}  // namespace

int64_t attention_fwd_workspace(const packed::Kernel* tiles, const AttentionFwd& op, int threads) {
  const Plan plan = make_plan(tiles, op, threads);
  AttentionScratch s;
  const int64_t parts = plan.split ? plan.units() * plan.spans * plan.part_floats() : 0;
  return (threads * lay_out(plan, nullptr, s) + parts) * static_cast<int64_t>(sizeof(float));
}

void attention_fwd_blocks(const packed::Kernel* tiles, Ctx& ctx, const AttentionFwd& op,
                          std::span<std::byte> workspace) {
  check_fwd(op);
  const Plan plan = make_plan(tiles, op, ctx.threads);
  auto* memory = reinterpret_cast<float*>(workspace.data());
  AttentionScratch counted;
  const int64_t thread_floats = lay_out(plan, nullptr, counted);
  float* parts = memory + ctx.threads * thread_floats;
  const int64_t spans = plan.split ? plan.spans : 1, tasks = plan.units() * spans;
  const int team = sys::team_for(ctx.threads, op.flops());
  sys::parallel_tasks(team, tasks, [&](int thread, int64_t i) {
    AttentionScratch s;
    lay_out(plan, memory + thread * thread_floats, s);
    const AttentionTile t = tile_at(op, plan, i / spans);
    if (t.tokens <= 0) return;
    if (!plan.split) {
      whole_unit(op, t, s);
    } else if (i % spans < spans_of(t)) {
      s.part = part_at(plan, parts + i * plan.part_floats());
      HWY_DYNAMIC_DISPATCH(fill_queries)(op, t, s);
      HWY_DYNAMIC_DISPATCH(span_part)(op, t, s, i % spans);
    }
  });
  if (!plan.split) return;
  sys::parallel_tasks(team, plan.units(), [&](int64_t i) {
    const AttentionTile t = tile_at(op, plan, i);
    if (t.tokens <= 0) return;
    const AttentionPart total = part_at(plan, parts + i * spans * plan.part_floats());
    for (int64_t span = 1; span < spans_of(t); ++span) {
      const AttentionPart part = part_at(plan, parts + (i * spans + span) * plan.part_floats());
      HWY_DYNAMIC_DISPATCH(merge)(total, part, first_row(t, span), t.rows());
    }
    HWY_DYNAMIC_DISPATCH(finish)(op, t, total);
  });
}

}  // namespace braid
#endif
