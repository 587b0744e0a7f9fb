#include "math/tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/codec.h"
#include "codec/nvfp4.h"

namespace braid::tiles {
namespace {

constexpr int64_t kBlock = 16, kStep = 32;  // rows of x and values along k of a packed tile
constexpr int64_t kUnit = 128;              // values in four steps of NVFP4
// Values along k between two uses of the sums: of codes, which are decoded first, 16 KiB of w, so that L1 has room for
// x.
constexpr int64_t kChunk = 512, kCodeChunk = 256;
constexpr int kUp = 64, kDown = 48;  // powers of two: of activations for codes, and back (tile.h)
// Of more rows of x than kFewRows a chunk (32 KiB for 64) does not stay in L1: strips in groups, which read it from L2.
constexpr int64_t kFewRows = 64, kGroup = 4;

int64_t round_up(int64_t n, int64_t grain) { return (n + grain - 1) / grain * grain; }
Order order_of(const Weight& w) {
  if (w.spec.format == Format::nvfp4) return Order::nvfp4;
  return w.spec.format == Format::ggml && w.spec.ggml == GgmlType::nvfp4 ? Order::ggml_nvfp4 : Order::plain;
}
bool has_codes(const Weight& w) { return order_of(w) != Order::plain || w.spec.format == Format::f8_e4m3; }
int64_t steps_of(int64_t values, Order order) {
  return round_up(values, order == Order::plain ? kStep : kUnit) / kStep;
}
int64_t sum_floats(int64_t rows) { return kStripCols * round_up(rows, kBlock); }
int64_t group_of(int64_t rows) { return rows > kFewRows ? kGroup : 1; }

// A strip's chunk along k: rows [row, row + rows) of w, values [begin, begin + values).
struct Piece {
  int64_t strip = 0, row = 0, rows = 0, begin = 0, values = 0;
};

// Pieces in the order in which they are multiplied: groups of strips, chunks of a group, strips of a chunk.
class Pieces {
 public:
  Pieces(const Weight& w, int64_t rows)
      : w_(w), group_(group_of(rows)), chunk_(w.spec.format == Format::bf16 ? kChunk : kCodeChunk) {}
  // False at the end.
  bool next(Piece& piece) {
    if (row_ >= w_.rows) return false;
    piece = {.strip = strip_,
             .row = row_ + strip_ * kStripCols,
             .rows = std::min(kStripCols, w_.rows - row_ - strip_ * kStripCols),
             .begin = begin_,
             .values = std::min(chunk_, w_.cols - begin_)};
    if (++strip_ < group_ && row_ + strip_ * kStripCols < w_.rows) return true;
    strip_ = 0;
    if ((begin_ += chunk_) < w_.cols) return true;
    begin_ = 0;
    row_ += group_ * kStripCols;
    return true;
  }

 private:
  const Weight& w_;
  int64_t group_, chunk_, row_ = 0, strip_ = 0, begin_ = 0;
};

// A piece of codes of NVFP4, as steps of 32 rows.
void decode_piece(const Walk& walk, const Weight& w, const Piece& p, uint16_t* out) {
  if (p.rows < kStripCols) std::memset(out, 0, kStripCols * kChunk * sizeof(uint16_t));
  Decode d{.order = order_of(w),
           .codes = w.codes.as<uint8_t>(p.row) + w.codes.dim(1) * p.begin / w.cols,
           .codes_stride = w.codes.stride(0),
           .rows = p.rows,
           .values = p.values,
           .out = out};
  if (w.scales) {
    d.scales = &w.scales.as<F8E4M3>(p.row)[p.begin / kNvfp4Block].bits;
    d.scales_stride = w.scales.stride(0);
  }
  walk.decode(d);
}

// Values of a piece, rows of kChunk, with zeros up to whole steps and kStripCols rows. Prefetches the same part of the
// strip below: one strip is read as a stream, in whatever order it is walked.
void read_piece(const Walk& walk, const Weight& w, const Piece& p, uint16_t* out) {
  const int64_t width = round_up(p.values, kStep), row_bytes = w.codes.dim(1) * size_of(w.codes.dtype);
  const int64_t begin = row_bytes * p.begin / w.cols, end = row_bytes * (p.begin + p.values) / w.cols;
  if (p.rows < kStripCols) std::memset(out, 0, kStripCols * kChunk * sizeof(uint16_t));
  for (int64_t r = p.row; r < p.row + p.rows; ++r, out += kChunk) {
    const std::byte* below = w.codes.data + (r + kStripCols) * w.codes.stride(0) * size_of(w.codes.dtype);
    for (int64_t line = begin; line < end; line += 64) __builtin_prefetch(below + line);
    if (w.spec.format == Format::f8_e4m3) {
      walk.fp8(&w.codes.as<F8E4M3>(r)[p.begin].bits, p.values, out);
    } else {
      decode_row(w, r, p.begin, p.values, reinterpret_cast<Bf16*>(out));
    }
    std::memset(out + p.values, 0, static_cast<size_t>(width - p.values) * sizeof(uint16_t));
  }
}

bool in_place(const Weight& w, const Piece& p) {
  return w.spec.format == Format::bf16 && p.rows == kStripCols && p.values % kStep == 0;
}

}  // namespace

const char* refusal(const Weight& w) {
  return codec_of(w).dense && w.spec.format != Format::bf16 ? "weights in a format that tiles do not read" : nullptr;
}

bool same_packing(const Weight& a, const Weight& b) {
  return order_of(a) == order_of(b) && has_codes(a) == has_codes(b);
}

int64_t packed_row_bytes(int64_t depth) { return round_up(depth, kUnit) * static_cast<int64_t>(sizeof(Bf16)); }
int64_t packed_bytes(int64_t rows, int64_t depth) { return std::min(rows, kRowsMax) * packed_row_bytes(depth); }

void pack(const Walk& walk, const View& x, const Weight& w, int64_t begin, int64_t end, std::byte* packed) {
  const int64_t block_values = steps_of(x.dim(1), order_of(w)) * kStep * kBlock;
  for (int64_t i = begin; i < end; ++i) {
    Pack block{.rows = std::min(kBlock, x.dim(0) - i * kBlock),
               .depth = x.dim(1),
               .codes = has_codes(w),
               .order = order_of(w),
               .out = reinterpret_cast<uint16_t*>(packed) + i * block_values};
    for (int64_t r = 0; r < block.rows; ++r) block.row[r] = &x.as<Bf16>(i * kBlock + r)->bits;
    walk.pack(block);
  }
}

int64_t workspace(int64_t rows) {
  const int64_t most = std::min(rows, kRowsMax);
  return group_of(most) * sum_floats(most) * static_cast<int64_t>(sizeof(float)) +
         kStripCols * kChunk * static_cast<int64_t>(sizeof(Bf16));
}

void product(const Walk& walk, const std::byte* packed, const Weight& w, const MutView& y,
             std::span<std::byte> workspace) {
  const Order order = order_of(w);
  const int64_t rows = y.dim(0);
  auto* sums = reinterpret_cast<float*>(workspace.data());
  auto* chunk = reinterpret_cast<uint16_t*>(sums + group_of(rows) * sum_floats(rows));
  int64_t widths = -1;
  Strip s{.packed = reinterpret_cast<const uint16_t*>(packed),
          .depth_steps = steps_of(w.cols, order),
          .rows = rows,
          .widths = &widths};
  Result result{.rows = rows, .factor = has_codes(w) ? std::ldexp(w.global, kDown) : w.global, .y_stride = y.stride(0)};
  Pieces pieces(w, rows);
  for (Piece here; pieces.next(here);) {
    s.w = chunk;
    s.w_stride = kChunk;
    s.w_step = kStep;
    s.ahead = 0;
    if (order != Order::plain) {
      decode_piece(walk, w, here, chunk);
      s.w_stride = kStep;
      s.w_step = kStripCols * kStep;
    } else if (in_place(w, here)) {
      s.w = reinterpret_cast<const uint16_t*>(w.codes.as<Bf16>(here.row) + here.begin);
      s.w_stride = w.codes.stride(0);
      s.ahead = rows <= kBlock ? kStripCols * s.w_stride : 0;
    } else {
      read_piece(walk, w, here, chunk);
    }
    s.steps = steps_of(here.values, order);
    s.first_step = here.begin / kStep;
    s.add = here.begin > 0;
    s.sums = sums + here.strip * sum_floats(rows);
    walk.strip(s);
    if (here.begin + here.values < w.cols) continue;
    result.sums = s.sums;
    result.cols = here.rows;
    if (y.dtype == DType::bf16) {
      result.bf16 = &y.as<Bf16>()[here.row].bits;
    } else {
      result.f32 = y.as<float>() + here.row;
    }
    walk.result(result);
  }
  walk.release();
}

}  // namespace braid::tiles
