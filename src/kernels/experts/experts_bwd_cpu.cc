// Backward of the experts on a CPU. The (token, slot) pairs are sorted by expert, stable by token, and their rows of x
// and dy gathered in that order. Then, in tasks of (expert, block of columns or rows) that are handed out one by one:
//   u, g and q = down^T dy of a block of hidden columns; from them du, dg, weighted h, and a part of dweights
//   dx of each slot = up^T du + gate^T dg; the slots of a token are added up in slot order
//   dup += du x^T, dgate += dg x^T, ddown += dy (weight h)^T: chains over the sorted rows, in token order
// Products are those of math/panel.h (recomputed u, g) and math/outer.h (all others); weights of other formats than F32
// and BF16 are decoded a few rows at a time. The chains of the class bf16_dot
// take tokens by twos and those of tiles (math/packed.h) by 32, so there the rows of an expert are padded with zeros at
// the end of each sequence: no group spans two sequences, and no cut between them changes a bit.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/experts/experts_rows.h"
#include "math/blocks.h"
#include "math/outer.h"
#include "math/packed.h"
#include "math/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/experts/experts_bwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

#ifndef BRAID_EXPERTS_BWD_ROW_
#define BRAID_EXPERTS_BWD_ROW_
namespace braid {
// A row of one block: products in, gradients and the hidden row out.
struct ExpertRow {
  const float *u, *g, *q;  // [n]; g null without gates
  float weight;
  bool silu, round;  // round: u and g to BF16 first
  int64_t n;
  void *du, *dg, *hidden;
};
}  // namespace braid
#endif

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

HWY_INLINE FloatVec rounded(FloatTag d, FloatVec v) {
  HWY_ALIGN Bf16 lanes[HWY_MAX_BYTES / sizeof(float)];
  store(v, d, lanes);
  return load(d, lanes);
}

struct Activation {
  FloatVec value, slope;
};
HWY_INLINE Activation activation(FloatTag d, FloatVec a, bool silu) {
  if (silu) {
    const FloatVec one = hn::Set(d, 1.0f), s = sigmoid_times(d, a, one), value = hn::Mul(a, s);
    return {value, hn::MulAdd(value, hn::Sub(one, s), s)};
  }
  const FloatVec positive = positive_part(d, a);
  return {hn::Mul(positive, positive), hn::Add(positive, positive)};
}

// Numbers of one row of du and dg are A, of the hidden row B. Returns its part of dweight.
template <class A, class B>
float row_gradient(const ExpertRow& r) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec weight = hn::Set(d, r.weight);
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < r.n; i += lanes) {
    const int64_t m = HWY_MIN(lanes, r.n - i);
    const bool whole = m == lanes;
    const auto get = [&](const float* p) { return whole ? load(d, p + i) : load_n(d, p + i, m); };
    const auto put = [&](FloatVec v, auto* p) { whole ? store(v, d, p + i) : store_n(v, d, p + i, m); };
    const FloatVec u = r.round ? rounded(d, get(r.u)) : get(r.u), q = get(r.q), wq = hn::Mul(weight, q);
    FloatVec hidden;
    if (r.g) {
      const FloatVec g = r.round ? rounded(d, get(r.g)) : get(r.g);
      const Activation a = activation(d, g, r.silu);
      hidden = hn::Mul(a.value, u);
      put(hn::Mul(wq, a.value), static_cast<A*>(r.du));
      put(hn::Mul(wq, hn::Mul(a.slope, u)), static_cast<A*>(r.dg));
    } else {
      const Activation a = activation(d, u, r.silu);
      hidden = a.value;
      put(hn::Mul(wq, a.slope), static_cast<A*>(r.du));
    }
    sum = hn::MulAdd(q, hidden, sum);
    put(hn::Mul(weight, hidden), static_cast<B*>(r.hidden));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}
float row_gradient_f32(const ExpertRow& r) { return row_gradient<float, float>(r); }
float row_gradient_wide(const ExpertRow& r) { return row_gradient<float, Bf16>(r); }
float row_gradient_dot(const ExpertRow& r) { return row_gradient<Bf16, Bf16>(r); }

template <class From, class To>
HWY_INLINE void convert(const From* from, int64_t n, To* to) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(load(d, from + i), d, to + i);
  if (i < n) store_n(load_n(d, from + i, n - i), d, to + i, n - i);
}
void narrow_row(const float* from, int64_t n, Bf16* to) { convert(from, n, to); }
void widen_row(const Bf16* from, int64_t n, float* to) { convert(from, n, to); }

// y = sum_j rows[at[j]]
void sum_rows(const float* rows, const int32_t* at, int64_t k, int64_t width, float* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < width; i += lanes) {
    const int64_t m = HWY_MIN(lanes, width - i);
    FloatVec sum = hn::Zero(d);
    for (int64_t j = 0; j < k; ++j) {
      const float* row = rows + at[j] * width + i;
      sum = hn::Add(sum, m == lanes ? load(d, row) : load_n(d, row, m));
    }
    m == lanes ? store(sum, d, y + i) : store_n(sum, d, y + i, m);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

HWY_EXPORT(row_gradient_f32);
HWY_EXPORT(row_gradient_wide);
HWY_EXPORT(row_gradient_dot);
HWY_EXPORT(narrow_row);
HWY_EXPORT(widen_row);
HWY_EXPORT(sum_rows);

constexpr int64_t kCols = kOuterCols;  // of a block of hidden columns, and of dx
constexpr int64_t kRowsMax = 256;      // sorted rows whose u, g and q are in scratch at a time
constexpr int64_t kGradRows = 96;      // of a weight gradient in a task
constexpr int64_t kGradCols = 768;     // packed at a time there
constexpr int64_t kPairsMax = 256;     // pairs of tokens packed at a time
constexpr int64_t kDecodedRows = 256;  // rows of a quantised weight decoded at a time; even, as pairs are

using packed::Side;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

// A matrix of sorted rows in the workspace; the stride is even, so that pairs of BF16 stay whole.
struct Rows {
  std::byte* data;
  DType dtype;
  int64_t width, stride;
  std::byte* at(int64_t row, int64_t col = 0) const { return data + (row * stride + col) * size_of(dtype); }
};

struct Scratch {
  int64_t grain;  // tokens of a step of a chain: rows of an expert and a sequence are padded to it
  int64_t count, hidden_width, blocks;  // experts, F, blocks of hidden columns
  int32_t* offsets;                     // [E + 1] first sorted position of each expert
  int32_t* cursors;                     // [E]
  int32_t* order;                       // slot at each sorted position; -1: a row of zeros
  int32_t* at;                          // [T K] sorted position of each slot
  Rows x, dy;                           // R wide
  Rows du, dg, hidden;                  // F wide
  float* dweights;                      // [rows, blocks]
  float* dx;                            // [rows, R]
  std::byte* own;                       // one part per thread: panels, blocks of u, g and q, decoded weights
  int64_t panel_bytes, block_bytes, own_bytes, bytes;

  bool narrow() const { return grain > 1; }  // products of BF16 alone
};

// How products are computed: by math/outer.h, or on tiles where there is a kernel.
struct Products {
  PanelClass panel;
  const packed::Kernel* tiles;
  bool train;  // forward ran on tiles as well
  int64_t grain() const { return tiles ? tiles->step : panel == PanelClass::bf16_dot ? 2 : 1; }
};

// Whether a product with the transposed weight reads it as it lies. F32 in the BF16 classes is rounded on the way.
bool in_place(const Weight& w, PanelClass c) {
  return w.spec.format == Format::bf16 || (w.spec.format == Format::f32 && c == PanelClass::f32);
}
// The type it is decoded to otherwise.
DType decoded_type(const Weight& w, PanelClass c) {
  return !exact_in_bf16(w.spec.format) && c == PanelClass::f32 ? DType::f32 : DType::bf16;
}

// Room for decoded values and, where a product is added to another one, for its sums.
int64_t decoded_bytes(PanelClass c, const ExpertsBwd& op) {
  int64_t most = 0;
  for (const auto list : {op.up, op.gate, op.down}) {
    for (const Weight& w : list) {
      if (!in_place(w, c)) most = std::max(most, kDecodedRows * kCols * size_of(decoded_type(w, c)));
    }
  }
  return most == 0 ? 0 : aligned(most) + kRowsMax * kCols * 4;
}

// A thread's operands in panels: for data rows and a block of columns, for weights a task's rows and columns.
int64_t tile_bytes(const packed::Kernel& kernel, const ExpertsBwd& op) {
  const auto bytes = [&](Side side, int64_t n, int64_t depth) { return aligned(packed_bytes(kernel, side, n, depth)); };
  return std::max(tile_product_bytes(kernel, kCols, std::max(op.up[0].rows, op.up[0].cols)),
                  bytes(Side::rows, kGradRows, kRowsMax) + bytes(Side::cols, kGradCols, kRowsMax));
}

Scratch cut(const Products& c, const ExpertsBwd& op, int threads, std::byte* base) {
  const int64_t slots = op.experts.count(), width = op.x.dim(1);
  Scratch s{};
  s.grain = c.grain();
  s.count = static_cast<int64_t>(op.up.size());
  s.hidden_width = op.up[0].rows;
  s.blocks = blocks_of(s.hidden_width, kCols);
  const int64_t sequences = op.seqs ? static_cast<int64_t>(op.seqs->seqs.size()) : 1;
  const int64_t rows = slots + (s.grain - 1) * std::min(slots, s.count * sequences);
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + s.bytes : nullptr;
    s.bytes += aligned(bytes);
    return p;
  };
  const auto matrix = [&](DType dtype, int64_t cols) {
    const int64_t stride = (cols + 1) / 2 * 2;
    return Rows{take(rows * stride * size_of(dtype)), dtype, cols, stride};
  };
  s.offsets = reinterpret_cast<int32_t*>(take((s.count + 1) * 4));
  s.cursors = reinterpret_cast<int32_t*>(take(s.count * 4));
  s.order = reinterpret_cast<int32_t*>(take(rows * 4));
  s.at = reinterpret_cast<int32_t*>(take(slots * 4));
  const DType narrow = s.narrow() ? DType::bf16 : DType::f32;
  s.x = matrix(op.x.dtype, width);
  s.dy = matrix(narrow, width);
  s.du = matrix(narrow, s.hidden_width);
  if (!op.gate.empty()) s.dg = matrix(narrow, s.hidden_width);
  s.hidden = matrix(op.x.dtype, s.hidden_width);
  s.dweights = reinterpret_cast<float*>(take(rows * s.blocks * 4));
  s.dx = reinterpret_cast<float*>(take(rows * width * 4));
  for (const auto list : {op.up, op.gate}) {
    for (const Weight& w : list) s.panel_bytes = std::max(s.panel_bytes, aligned(panel_workspace(w)));
  }
  s.block_bytes = std::max(3 * kRowsMax * kCols, kPairsMax * kGradRows) * 4;
  s.own_bytes = s.panel_bytes + s.block_bytes + (c.tiles ? tile_bytes(*c.tiles, op) : decoded_bytes(c.panel, op));
  s.own = take(s.own_bytes * threads);
  return s;
}

void sort_by_expert(const ExpertsBwd& op, const Scratch& s) {
  const SeqMap* seqs = op.seqs;
  const int64_t tokens = op.experts.dim(0), k = op.experts.dim(1);
  // Twice over the batch: each expert's rows are counted, with padding, and then placed.
  std::fill_n(s.offsets, s.count + 1, 0);
  std::fill_n(s.cursors, s.count, 0);
  const auto pass = [&](auto&& visit) {
    const auto sequence = [&](int64_t start, int64_t len) {
      for (int64_t t = start; t < start + len; ++t) {
        for (int64_t j = 0; j < k; ++j) visit(op.experts.as<int32_t>(t)[j], t * k + j);
      }
      for (int64_t e = 0; s.narrow() && e < s.count; ++e) {
        while (s.cursors[e] % s.grain != 0) visit(static_cast<int32_t>(e), -1);
      }
    };
    if (!seqs) return sequence(0, tokens);
    for (const Seq& seq : seqs->seqs) sequence(seq.start, seq.len);
  };
  pass([&](int32_t e, int64_t slot) {
    CHECK(e >= 0 && e < s.count, "experts_bwd: token {} has expert {} of {}", slot / k, e, s.count);
    ++s.cursors[e];
  });
  for (int64_t e = 0; e < s.count; ++e) {
    s.offsets[e + 1] = s.offsets[e] + s.cursors[e];
    s.cursors[e] = s.offsets[e];  // a multiple of the grain
  }
  pass([&](int32_t e, int64_t slot) {
    const int32_t at = s.cursors[e]++;
    s.order[at] = static_cast<int32_t>(slot);
    if (slot >= 0) s.at[slot] = at;
  });
}

// One row from a view of F32 or BF16 to either.
void copy_row(const std::byte* from, DType from_type, int64_t n, std::byte* to, DType to_type) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(n * size_of(to_type)));
  } else if (to_type == DType::bf16) {
    HWY_DYNAMIC_DISPATCH(narrow_row)(reinterpret_cast<const float*>(from), n, reinterpret_cast<Bf16*>(to));
  } else {
    HWY_DYNAMIC_DISPATCH(widen_row)(reinterpret_cast<const Bf16*>(from), n, reinterpret_cast<float*>(to));
  }
}

// Columns of odd widths that only fill up a pair are zero as well.
void zero_tail(const Rows& r, int64_t row) {
  if (r.stride > r.width) std::memset(r.at(row, r.width), 0, static_cast<size_t>(size_of(r.dtype)));
}

void gather(const ExpertsBwd& op, const Scratch& s, int threads) {
  const int64_t k = op.experts.dim(1);
  sys::parallel_for(threads, s.offsets[s.count], 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = s.order[i];
      const auto row = [&](const View& v, const Rows& to) {
        if (slot < 0) {
          std::memset(to.at(i), 0, static_cast<size_t>(to.stride * size_of(to.dtype)));
        } else {
          copy_row(v.data + slot / k * v.stride(0) * size_of(v.dtype), v.dtype, to.width, to.at(i), to.dtype);
          zero_tail(to, i);
        }
      };
      row(op.x, s.x);
      row(op.dy, s.dy);
    }
  });
}

// body(thread, expert, block) for every block of every expert that somebody chose.
template <class Body>
void for_each_block(int team, const Scratch& s, int64_t blocks, const Body& body) {
  std::atomic<int64_t> next{0};
  sys::parallel(team, [&](int thread, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < s.count * blocks;) {
      const int64_t e = i / blocks;
      if (s.offsets[e] < s.offsets[e + 1]) body(thread, static_cast<size_t>(e), i % blocks);
    }
  });
}

// F32 per value, or per pair of BF16.
const void* operand(const Rows& r, int64_t row, int64_t col = 0) { return r.at(row, col); }
int64_t operand_stride(const Rows& r) { return r.dtype == DType::bf16 ? r.stride / 2 : r.stride; }

// y [rows, cols] (+)= sorted rows [first, first + rows) of `a` times columns [col, col + cols) of a weight, whose rows
// are the depth.
struct DataProduct {
  const Rows& a;
  int64_t first, rows;
  const Weight& w;
  int64_t col, cols;
  float* y;
  int64_t y_stride;
  bool add;
};

void plain_product(PanelClass c, const DataProduct& p) {
  outer_product(c, p.w.codes.dtype,
                {.a = operand(p.a, p.first),
                 .a_row = operand_stride(p.a),
                 .a_step = 1,
                 .b = p.w.codes.data + p.col * size_of(p.w.codes.dtype),
                 .b_stride = p.w.codes.stride(0),
                 .c = p.y,
                 .c_stride = p.y_stride,
                 .rows = p.rows,
                 .cols = p.cols,
                 .depth = p.w.rows,
                 .add = p.add});
}

// Sums of a weight that is decoded a few rows at a time: they stand apart until they have met its `global`.
void decoded_product(PanelClass c, const DataProduct& p, std::byte* space) {
  const DType type = decoded_type(p.w, c);
  auto* sums = reinterpret_cast<float*>(space);
  std::byte* values = space + kRowsMax * kCols * 4;
  for (int64_t i = 0; i < p.rows; i += kRowsMax) {
    const int64_t rows = std::min(kRowsMax, p.rows - i);
    for (int64_t k = 0; k < p.w.rows; k += kDecodedRows) {
      const int64_t depth = std::min(kDecodedRows, p.w.rows - k);
      for (int64_t r = 0; r < depth; ++r) {
        if (type == DType::bf16) {
          decode_row(p.w, k + r, p.col, p.cols, reinterpret_cast<Bf16*>(values) + r * kCols);
        } else {
          decode_row(p.w, k + r, p.col, p.cols, reinterpret_cast<float*>(values) + r * kCols);
        }
      }
      outer_product(c, type,
                    {.a = operand(p.a, p.first + i, k),
                     .a_row = operand_stride(p.a),
                     .a_step = 1,
                     .b = values,
                     .b_stride = kCols,
                     .c = sums,
                     .c_stride = p.cols,
                     .rows = rows,
                     .cols = p.cols,
                     .depth = depth,
                     .add = k > 0});
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* y = p.y + (i + r) * p.y_stride;
      for (int64_t j = 0; j < p.cols; ++j) y[j] = (p.add ? y[j] : 0.0f) + p.w.global * sums[r * p.cols + j];
    }
  }
}

packed::Source source_of(const Rows& r, int64_t row, int64_t col, bool along) {
  return {.data = r.at(row, col), .stride = r.stride, .bf16 = r.dtype == DType::bf16, .along = along};
}

void data_product(const Products& c, const Scratch& s, int thread, const DataProduct& p) {
  std::byte* const space = s.own + thread * s.own_bytes + s.panel_bytes + s.block_bytes;
  if (c.tiles) {
    return tile_product(*c.tiles,
                        {.a = source_of(p.a, p.first, 0, true),
                         .w = packed::from(packed::across(p.w.codes), p.col, 0),
                         .rows = p.rows,
                         .cols = p.cols,
                         .depth = p.w.rows,
                         .y = p.y,
                         .y_stride = p.y_stride,
                         .add = p.add},
                        space);
  }
  if (in_place(p.w, c.panel)) return plain_product(c.panel, p);
  decoded_product(c.panel, p, space);
}

// The products of one weight at columns [col, col + cols) of sorted rows [first, first + n): saved, or computed again.
void forward_product(const Products& c, const Scratch& s, const View& saved, const Weight& w, int64_t first, int64_t n,
                     int64_t col, int64_t cols, std::byte* own, float* to) {
  if (!saved && c.tiles && c.train) {
    return tile_product(*c.tiles,
                        {.a = source_of(s.x, first, 0, true),
                         .w = packed::from(packed::along(w.codes), col, 0),
                         .rows = n,
                         .cols = cols,
                         .depth = w.cols,
                         .y = to,
                         .y_stride = cols},
                        own + s.panel_bytes + s.block_bytes);
  }
  if (!saved) {
    View x(s.x.at(first), s.x.dtype, {n, s.x.width});
    x.strides[0] = s.x.stride;
    const std::span<std::byte> panel(own, static_cast<size_t>(s.panel_bytes));
    return panel_product(c.panel, x, w.rows_of(col, cols), mut_view_of(to, {n, cols}), panel);
  }
  const int64_t k = saved.dim(1);
  for (int64_t r = 0; r < n; ++r, to += cols) {
    const int64_t slot = s.order[first + r];
    if (slot < 0) {
      std::fill_n(to, cols, 0.0f);
      continue;
    }
    const int64_t from = slot / k * saved.stride(0) + slot % k * saved.stride(1) + col;
    copy_row(saved.data + from * size_of(saved.dtype), saved.dtype, cols, reinterpret_cast<std::byte*>(to), DType::f32);
  }
}

void hidden_block(const Products& c, const ExpertsBwd& op, const Scratch& s, int thread, size_t e, int64_t block) {
  const int64_t col = block * kCols, cols = std::min(kCols, s.hidden_width - col), k = op.experts.dim(1);
  const bool gated = !op.gate.empty(), last = col + cols == s.hidden_width;
  std::byte* own = s.own + thread * s.own_bytes;
  auto* u = reinterpret_cast<float*>(own + s.panel_bytes);
  float *g = u + kRowsMax * kCols, *q = g + kRowsMax * kCols;
  for (int64_t i = s.offsets[e]; i < s.offsets[e + 1]; i += kRowsMax) {
    const int64_t n = std::min<int64_t>(kRowsMax, s.offsets[e + 1] - i);
    forward_product(c, s, op.u, op.up[e], i, n, col, cols, own, u);
    if (gated) forward_product(c, s, op.g, op.gate[e], i, n, col, cols, own, g);
    data_product(c, s, thread, {s.dy, i, n, op.down[e], col, cols, q, cols, false});
    for (int64_t r = 0; r < n; ++r) {
      const int64_t slot = s.order[i + r];
      const ExpertRow row{.u = u + r * cols,
                          .g = gated ? g + r * cols : nullptr,
                          .q = q + r * cols,
                          .weight = slot < 0 ? 0 : op.weights.as<float>(slot / k)[slot % k],
                          .silu = op.act == ExpertAct::silu,
                          .round = op.x.dtype == DType::bf16,
                          .n = cols,
                          .du = s.du.at(i + r, col),
                          .dg = gated ? s.dg.at(i + r, col) : nullptr,
                          .hidden = s.hidden.at(i + r, col)};
      float& dweight = s.dweights[(i + r) * s.blocks + block];
      if (s.narrow()) {
        dweight = HWY_DYNAMIC_DISPATCH(row_gradient_dot)(row);
      } else if (c.panel == PanelClass::f32) {
        dweight = HWY_DYNAMIC_DISPATCH(row_gradient_f32)(row);
      } else {
        dweight = HWY_DYNAMIC_DISPATCH(row_gradient_wide)(row);
      }
      if (!last) continue;
      zero_tail(s.du, i + r);
      if (gated) zero_tail(s.dg, i + r);
    }
  }
}

void data_block(const Products& c, const ExpertsBwd& op, const Scratch& s, int thread, size_t e, int64_t block) {
  const int64_t width = op.x.dim(1), col = block * kCols, cols = std::min(kCols, width - col);
  const int64_t first = s.offsets[e], rows = s.offsets[e + 1] - first;
  float* to = s.dx + first * width + col;
  data_product(c, s, thread, {s.du, first, rows, op.up[e], col, cols, to, width, false});
  if (!op.gate.empty()) data_product(c, s, thread, {s.dg, first, rows, op.gate[e], col, cols, to, width, true});
}

// The same on tiles, kRowsMax sorted rows at a time.
void weight_tiles(const packed::Kernel& kernel, const Rows& a, const Rows& b, int64_t m, int64_t rows, int64_t first,
                  int64_t tokens, const MutView& into, std::byte* space) {
  std::byte* const b_panels = space + aligned(packed_bytes(kernel, Side::rows, kGradRows, kRowsMax));
  for (int64_t t = 0; t < tokens; t += kRowsMax) {
    const int64_t depth = std::min(kRowsMax, tokens - t);
    packed::pack(kernel, Side::rows, source_of(a, first + t, m, false), rows, depth, space);
    for (int64_t n = 0; n < b.width; n += kGradCols) {
      const int64_t cols = std::min(kGradCols, b.width - n);
      packed::pack(kernel, Side::cols, source_of(b, first + t, n, false), cols, depth, b_panels);
      packed::product(kernel, {.a = space,
                               .b = b_panels,
                               .m = rows,
                               .n = cols,
                               .depth = depth,
                               .y = into.as<float>(m) + n,
                               .y_stride = into.stride(0),
                               .add = true});
    }
  }
}

// Rows of `into` from kGradRows * block on: += a^T b over the sorted rows of the expert.
void weight_block(const Products& c, const Scratch& s, int thread, size_t e, int64_t block, const Rows& a,
                  const Rows& b, const MutView& into) {
  const int64_t m = block * kGradRows, rows = std::min(kGradRows, a.width - m);
  const int64_t first = s.offsets[e], depth = s.offsets[e + 1] - first;
  if (c.tiles) {
    return weight_tiles(*c.tiles, a, b, m, rows, first, depth, into,
                        s.own + thread * s.own_bytes + s.panel_bytes + s.block_bytes);
  }
  OuterBlock product{.c = into.as<float>(m), .c_stride = into.stride(0), .rows = rows, .cols = b.width, .add = true};
  product.b_stride = b.stride;
  if (!s.narrow()) {
    product.a = operand(a, first, m);
    product.a_row = 1;
    product.a_step = a.stride;
    product.b = b.at(first);
    product.depth = depth;
    return outer_product(c.panel, b.dtype, product);
  }
  auto* pairs = reinterpret_cast<uint32_t*>(s.own + thread * s.own_bytes + s.panel_bytes);
  for (int64_t k = 0; k < depth; k += 2 * kPairsMax) {
    const int64_t n = std::min(2 * kPairsMax, depth - k);  // even, as depth is
    for (int64_t i = 0; i < n; i += 2) {
      const auto* low = reinterpret_cast<const Bf16*>(a.at(first + k + i, m));
      const auto* high = reinterpret_cast<const Bf16*>(a.at(first + k + i + 1, m));
      uint32_t* to = pairs + i / 2 * kGradRows;
      for (int64_t j = 0; j < rows; ++j) to[j] = low[j].bits | static_cast<uint32_t>(high[j].bits) << 16;
    }
    product.a = pairs;
    product.a_row = 1;
    product.a_step = kGradRows;
    product.b = b.at(first + k);
    product.depth = n;
    outer_product(c.panel, b.dtype, product);
  }
}

void combine(const ExpertsBwd& op, const Scratch& s, int threads) {
  const int64_t k = op.experts.dim(1), width = op.x.dim(1);
  sys::parallel_for(threads, op.x.dim(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(sum_rows)(s.dx, s.at + t * k, k, width, op.dx.as<float>(t));
      for (int64_t j = 0; j < k; ++j) {
        const float* parts = s.dweights + s.at[t * k + j] * s.blocks;
        float sum = 0;
        for (int64_t b = 0; b < s.blocks; ++b) sum += parts[b];
        op.dweights.as<float>(t)[j] = sum;
      }
    }
  });
}

void check_shapes(const ExpertsBwd& op) {
  for (const auto list : {op.up, op.gate, op.down}) {
    for (const Weight& w : list)
      CHECK(w.rows == list[0].rows && w.cols == list[0].cols, "experts_bwd: [{}, {}] among [{}, {}]", w.rows, w.cols,
            list[0].rows, list[0].cols);
  }
  for (const auto list : {op.dup, op.dgate, op.ddown}) {
    for (const MutView& v : list)
      CHECK(v.shape == list[0].shape, "experts_bwd: {} among {}", to_string(v.shape), to_string(list[0].shape));
  }
}

}  // namespace

int64_t experts_bwd_workspace(PanelClass c, const packed::Kernel* tiles, const ExpertsBwd& op, int threads) {
  return cut({c, tiles, op.train}, op, threads, nullptr).bytes;
}

void experts_bwd_grouped(PanelClass panel, const packed::Kernel* tiles, Ctx& ctx, const ExpertsBwd& op,
                         std::span<std::byte> workspace) {
  check_shapes(op);
  const Products c{panel, tiles, op.train};
  const Scratch s = cut(c, op, ctx.threads, workspace.data());
  const int64_t width = op.x.dim(1);
  const int team = sys::team_for(ctx.threads, op.flops());
  sort_by_expert(op, s);
  gather(op, s, ctx.threads);
  for_each_block(team, s, s.blocks,
                 [&](int thread, size_t e, int64_t block) { hidden_block(c, op, s, thread, e, block); });
  for_each_block(team, s, blocks_of(width, kCols),
                 [&](int thread, size_t e, int64_t block) { data_block(c, op, s, thread, e, block); });
  const auto gradients = [&](std::span<const MutView> into, const Rows& a, const Rows& b) {
    if (into.empty()) return;
    for_each_block(team, s, blocks_of(a.width, kGradRows),
                   [&](int thread, size_t e, int64_t block) { weight_block(c, s, thread, e, block, a, b, into[e]); });
  };
  gradients(op.dup, s.du, s.x);
  gradients(op.dgate, s.dg, s.x);
  gradients(op.ddown, s.dy, s.hidden);
  combine(op, s, ctx.threads);
}

}  // namespace braid
#endif
