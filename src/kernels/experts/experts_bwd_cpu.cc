// Backward of the experts on a CPU. The (token, slot) pairs are sorted by expert, stable by token, and their rows of x
// and dy gathered in that order. Then, in dynamically scheduled tasks of (expert, block of columns or rows):
//   u, g and q = down^T dy of a block of hidden columns; from them du, dg, weighted h, and a part of dweights
//   dx of each slot = up^T du + gate^T dg; the slots of a token are added up in slot order
//   dup += du x^T, dgate += dg x^T, ddown += dy (weight h)^T: chains over the sorted rows, in token order
// Products are those of math/packed.h, over weights of any format; those of u and g are of math/panel.h if forward's
// were (train). Chains take tokens by Kernel::step, so the rows of an expert are padded with zeros at the end of each
// sequence: no step spans two sequences, and no cut between them changes a bit.
#include <algorithm>
#include <cstring>

#include "kernels/experts/experts_rows.h"
#include "math/packed_weight.h"
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

// In the type of x. Returns its part of dweight.
template <class Num>
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
      put(hn::Mul(wq, a.value), static_cast<Num*>(r.du));
      put(hn::Mul(wq, hn::Mul(a.slope, u)), static_cast<Num*>(r.dg));
    } else {
      const Activation a = activation(d, u, r.silu);
      hidden = a.value;
      put(hn::Mul(wq, a.slope), static_cast<Num*>(r.du));
    }
    sum = hn::MulAdd(q, hidden, sum);
    put(hn::Mul(weight, hidden), static_cast<Num*>(r.hidden));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}
float row_gradient_f32(const ExpertRow& r) { return row_gradient<float>(r); }
float row_gradient_bf16(const ExpertRow& r) { return row_gradient<Bf16>(r); }

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
HWY_EXPORT(row_gradient_bf16);
HWY_EXPORT(narrow_row);
HWY_EXPORT(widen_row);
HWY_EXPORT(sum_rows);

constexpr int64_t kCols = 192;                      // of a block of hidden columns, and of dx
constexpr int64_t kRowsMax = 256;                   // sorted rows whose u, g and q are in scratch at a time
constexpr int64_t kGradRows = 96, kGradCols = 384;  // of a weight gradient: in a task, and packed at a time there

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

// A matrix of sorted rows in the workspace.
struct Rows {
  std::byte* data;
  DType dtype;
  int64_t width;
  std::byte* at(int64_t row, int64_t col = 0) const { return data + (row * width + col) * size_of(dtype); }
};

struct Scratch {
  int64_t count, hidden_width, blocks;  // experts, F, blocks of hidden columns
  int32_t* offsets;                     // [E + 1] first sorted position of each expert
  int32_t* cursors;                     // [E]
  int32_t* order;                       // slot at each sorted position; -1: a row of zeros
  int32_t* at;                          // [T K] sorted position of each slot; of dropped ones the last, a row of zeros
  Rows x, dy;                           // R wide
  Rows du, dg, hidden;                  // F wide
  float* dweights;                      // [rows + 1, blocks]
  float* dx;                            // [rows + 1, R]
  int64_t rows;
  std::byte* own;  // one part per thread: panels, blocks of u, g and q, packed operands
  int64_t panel_bytes, block_bytes, own_bytes, bytes;
};

// A thread's packed operands: for data rows and a block of columns, for weights a task's rows and columns.
int64_t operand_bytes(const packed::Kernel& kernel, const ExpertsBwd& op, int64_t rows) {
  int64_t most = multiply_bytes(kernel, {}, kGradRows, kGradCols, rows);
  for (const auto list : {op.up, op.gate, op.down}) {
    for (const Weight& w : list)
      most = std::max(most, multiply_bytes(kernel, {w}, std::min(rows, kRowsMax), kCols, std::max(w.rows, w.cols)));
  }
  return most;
}

Scratch cut(const packed::Kernel& kernel, const ExpertsBwd& op, int threads, std::byte* base) {
  const int64_t slots = op.experts.count(), width = op.x.dim(1);
  Scratch s{};
  s.count = static_cast<int64_t>(op.up.size());
  s.hidden_width = op.up[0].rows;
  s.blocks = blocks_of(s.hidden_width, kCols);
  const int64_t sequences = op.seqs ? static_cast<int64_t>(op.seqs->seqs.size()) : 1;
  const int64_t rows = slots + (kernel.step - 1) * std::min(slots, s.count * sequences);
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + s.bytes : nullptr;
    s.bytes += aligned(bytes);
    return p;
  };
  const auto matrix = [&](int64_t cols) { return Rows{take(rows * cols * size_of(op.x.dtype)), op.x.dtype, cols}; };
  s.offsets = reinterpret_cast<int32_t*>(take((s.count + 1) * 4));
  s.cursors = reinterpret_cast<int32_t*>(take(s.count * 4));
  s.order = reinterpret_cast<int32_t*>(take(rows * 4));
  s.at = reinterpret_cast<int32_t*>(take(slots * 4));
  s.x = matrix(width);
  s.dy = matrix(width);
  s.du = matrix(s.hidden_width);
  if (!op.gate.empty()) s.dg = matrix(s.hidden_width);
  s.hidden = matrix(s.hidden_width);
  s.dweights = reinterpret_cast<float*>(take((rows + 1) * s.blocks * 4));
  s.dx = reinterpret_cast<float*>(take((rows + 1) * width * 4));
  s.rows = rows;
  for (const auto list : {op.up, op.gate}) {
    for (const Weight& w : list) s.panel_bytes = std::max(s.panel_bytes, aligned(panel_workspace(w)));
  }
  s.block_bytes = 3 * kRowsMax * kCols * 4;
  s.own_bytes = s.panel_bytes + s.block_bytes + operand_bytes(kernel, op, rows);
  s.own = take(s.own_bytes * threads);
  return s;
}

void sort_by_expert(const ExpertsBwd& op, int64_t grain, const Scratch& s) {
  const SeqMap* seqs = op.seqs;
  const int64_t tokens = op.experts.dim(0), k = op.experts.dim(1);
  // Two passes over the batch: each expert's rows are counted, with padding, and then placed.
  std::fill_n(s.offsets, s.count + 1, 0);
  std::fill_n(s.cursors, s.count, 0);
  std::fill_n(s.at, tokens * k, static_cast<int32_t>(s.rows));
  const auto pass = [&](auto&& visit) {
    const auto sequence = [&](int64_t start, int64_t len) {
      for (int64_t t = start; t < start + len; ++t) {
        for (int64_t j = 0; j < k; ++j) {
          if (const int32_t e = op.experts.as<int32_t>(t)[j]; e != -1) visit(e, t * k + j);
        }
      }
      for (int64_t e = 0; grain > 1 && e < s.count; ++e) {
        while (s.cursors[e] % grain != 0) visit(static_cast<int32_t>(e), -1);
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

void gather(const ExpertsBwd& op, const Scratch& s, int threads) {
  const int64_t k = op.experts.dim(1);
  sys::parallel_for(threads, s.offsets[s.count], 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = s.order[i];
      const auto row = [&](const View& v, const Rows& to) {
        if (slot < 0) {
          std::memset(to.at(i), 0, static_cast<size_t>(to.width * size_of(to.dtype)));
        } else {
          copy_row(v.data + slot / k * v.stride(0) * size_of(v.dtype), v.dtype, to.width, to.at(i), to.dtype);
        }
      };
      row(op.x, s.x);
      row(op.dy, s.dy);
    }
  });
}

// body(thread, expert, block) for every block of every expert that was chosen.
template <class Body>
void for_each_block(int team, const Scratch& s, int64_t blocks, const Body& body) {
  sys::parallel_tasks(team, s.count * blocks, [&](int thread, int64_t i) {
    const int64_t e = i / blocks;
    if (s.offsets[e] < s.offsets[e + 1]) body(thread, static_cast<size_t>(e), i % blocks);
  });
}

packed::Source source_of(const Rows& r, int64_t row, int64_t col, bool along) {
  return {.data = r.at(row, col), .stride = r.width, .bf16 = r.dtype == DType::bf16, .along = along};
}

// The shared operands of a call's products, and the scratch of the thread that computes one.
struct Run {
  const packed::Kernel& kernel;
  const ExpertsBwd& op;
  const Scratch& s;

  std::byte* own(int thread) const { return s.own + thread * s.own_bytes; }
  std::span<std::byte> operands(int thread) const {
    const int64_t before = s.panel_bytes + s.block_bytes;
    return {own(thread) + before, static_cast<size_t>(s.own_bytes - before)};
  }
};

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

void data_product(const Run& run, int thread, const DataProduct& p) {
  packed::multiply(run.kernel,
                   {.a = source_of(p.a, p.first, 0, true),
                    .w = {p.w, false},
                    .rows = p.rows,
                    .col = p.col,
                    .cols = p.cols,
                    .depth = p.w.rows,
                    .y = p.y,
                    .y_stride = p.y_stride,
                    .add = p.add},
                   run.operands(thread));
}

// The products of one weight at columns [col, col + cols) of sorted rows [first, first + n): saved, or recomputed.
void forward_product(const Run& run, int thread, const View& saved, const Weight& w, int64_t first, int64_t n,
                     int64_t col, int64_t cols, float* to) {
  const Scratch& s = run.s;
  if (!saved && run.op.train) {
    return packed::multiply(run.kernel,
                            {.a = source_of(s.x, first, 0, true),
                             .w = {w, true},
                             .rows = n,
                             .col = col,
                             .cols = cols,
                             .depth = w.cols,
                             .y = to,
                             .y_stride = cols},
                            run.operands(thread));
  }
  if (!saved) {
    const std::span<std::byte> panel(run.own(thread), static_cast<size_t>(s.panel_bytes));
    return panel_product(View(s.x.at(first), s.x.dtype, {n, s.x.width}), w.rows_of(col, cols),
                         mut_view_of(to, {n, cols}), panel);
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

void hidden_block(const Run& run, int thread, size_t e, int64_t block) {
  const auto& [kernel, op, s] = run;
  const int64_t col = block * kCols, cols = std::min(kCols, s.hidden_width - col), k = op.experts.dim(1);
  const bool gated = !op.gate.empty(), bf16 = op.x.dtype == DType::bf16;
  auto* u = reinterpret_cast<float*>(run.own(thread) + s.panel_bytes);
  float *g = u + kRowsMax * kCols, *q = g + kRowsMax * kCols;
  for (int64_t i = s.offsets[e]; i < s.offsets[e + 1]; i += kRowsMax) {
    const int64_t n = std::min<int64_t>(kRowsMax, s.offsets[e + 1] - i);
    forward_product(run, thread, op.u, op.up[e], i, n, col, cols, u);
    if (gated) forward_product(run, thread, op.g, op.gate[e], i, n, col, cols, g);
    data_product(run, thread, {s.dy, i, n, op.down[e], col, cols, q, cols, false});
    for (int64_t r = 0; r < n; ++r) {
      const int64_t slot = s.order[i + r];
      const ExpertRow row{.u = u + r * cols,
                          .g = gated ? g + r * cols : nullptr,
                          .q = q + r * cols,
                          .weight = slot < 0 ? 0 : op.weights.as<float>(slot / k)[slot % k],
                          .silu = op.act == ExpertAct::silu,
                          .round = bf16,
                          .n = cols,
                          .du = s.du.at(i + r, col),
                          .dg = gated ? s.dg.at(i + r, col) : nullptr,
                          .hidden = s.hidden.at(i + r, col)};
      s.dweights[(i + r) * s.blocks + block] =
          bf16 ? HWY_DYNAMIC_DISPATCH(row_gradient_bf16)(row) : HWY_DYNAMIC_DISPATCH(row_gradient_f32)(row);
    }
  }
}

void data_block(const Run& run, int thread, size_t e, int64_t block) {
  const auto& [kernel, op, s] = run;
  const int64_t width = op.x.dim(1), col = block * kCols, cols = std::min(kCols, width - col);
  const int64_t first = s.offsets[e], rows = s.offsets[e + 1] - first;
  float* to = s.dx + first * width + col;
  data_product(run, thread, {s.du, first, rows, op.up[e], col, cols, to, width, false});
  if (!op.gate.empty()) data_product(run, thread, {s.dg, first, rows, op.gate[e], col, cols, to, width, true});
}

// Rows of `into` from kGradRows * block on: += a^T b over the sorted rows of the expert.
void weight_block(const Run& run, int thread, size_t e, int64_t block, const Rows& a, const Rows& b,
                  const MutView& into) {
  const int64_t m = block * kGradRows, first = run.s.offsets[e], depth = run.s.offsets[e + 1] - first;
  const Weight right = dense_weight(View(b.at(first), b.dtype, {depth, b.width}));
  for (int64_t n = 0; n < b.width; n += kGradCols) {
    packed::multiply(run.kernel,
                     {.a = source_of(a, first, m, false),
                      .w = {right, false},
                      .rows = std::min(kGradRows, a.width - m),
                      .col = n,
                      .cols = std::min(kGradCols, b.width - n),
                      .depth = depth,
                      .y = into.as<float>(m) + n,
                      .y_stride = into.stride(0),
                      .add = true},
                     run.operands(thread));
  }
}

void combine(const ExpertsBwd& op, const Scratch& s, int threads) {
  const int64_t k = op.experts.dim(1), width = op.x.dim(1);
  std::fill_n(s.dx + s.rows * width, width, 0.0f);
  std::fill_n(s.dweights + s.rows * s.blocks, s.blocks, 0.0f);
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

int64_t experts_bwd_workspace(const packed::Kernel& kernel, const ExpertsBwd& op, int threads) {
  return cut(kernel, op, threads, nullptr).bytes;
}

void experts_bwd_packed(const packed::Kernel& kernel, Ctx& ctx, const ExpertsBwd& op, std::span<std::byte> workspace) {
  check_shapes(op);
  const Scratch s = cut(kernel, op, ctx.threads, workspace.data());
  const Run run{kernel, op, s};
  const int team = sys::team_for(ctx.threads, op.flops());
  sort_by_expert(op, kernel.step, s);
  gather(op, s, ctx.threads);
  for_each_block(team, s, s.blocks, [&](int thread, size_t e, int64_t block) { hidden_block(run, thread, e, block); });
  for_each_block(team, s, blocks_of(op.x.dim(1), kCols),
                 [&](int thread, size_t e, int64_t block) { data_block(run, thread, e, block); });
  const auto gradients = [&](std::span<const MutView> into, const Rows& a, const Rows& b) {
    if (into.empty()) return;
    for_each_block(team, s, blocks_of(a.width, kGradRows),
                   [&](int thread, size_t e, int64_t block) { weight_block(run, thread, e, block, a, b, into[e]); });
  };
  gradients(op.dup, s.du, s.x);
  gradients(op.dgate, s.dg, s.x);
  gradients(op.ddown, s.dy, s.hidden);
  combine(op, s, ctx.threads);
}

}  // namespace braid
#endif
