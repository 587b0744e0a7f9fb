// Experts on a CPU, in five steps: a counting sort of the (token, slot) pairs by expert, stable by token; their rows of
// x gathered in that order; the up (and gate) products with the activation; the down products; the weighted sum of each
// token's slots in slot order. A product is cut into tasks (expert, block of weight rows): every weight byte is read by
// one task of one thread, as one stream, and is used for all rows of its expert while it is in L2. Tasks are scheduled
// dynamically, since an expert may have one row or all of them; the schedule does not change the result. Products
// are those of an engine (math/product.h), in training those of math/packed.h.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "kernels/experts/experts_rows.h"
#include "math/packed_weight.h"
#include "math/panel.h"
#include "math/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/experts/experts_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

HWY_INLINE FloatVec activate(FloatTag d, FloatVec u, ExpertAct act) {
  if (act == ExpertAct::silu) return sigmoid_times(d, u, u);
  const FloatVec positive = positive_part(d, u);
  return hn::Mul(positive, positive);
}

// hidden = act(up), or act(gate) * up where there are gates.
template <class Num>
void activate_row(const float* up, const float* gate, ExpertAct act, int64_t n, Num* hidden) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t m = HWY_MIN(lanes, n - i);
    const FloatVec u = m == lanes ? load(d, up + i) : load_n(d, up + i, m);
    FloatVec h;
    if (gate) {
      h = hn::Mul(activate(d, m == lanes ? load(d, gate + i) : load_n(d, gate + i, m), act), u);
    } else {
      h = activate(d, u, act);
    }
    m == lanes ? store(h, d, hidden + i) : store_n(h, d, hidden + i, m);
  }
}
void activate_f32(const float* up, const float* gate, ExpertAct act, int64_t n, float* hidden) {
  activate_row(up, gate, act, n, hidden);
}
void activate_bf16(const float* up, const float* gate, ExpertAct act, int64_t n, Bf16* hidden) {
  activate_row(up, gate, act, n, hidden);
}

// y = sum_j weights[j] * results[at[j]], rows of `width`.
template <class Num>
void combine_row(const float* results, const int32_t* at, const float* weights, int64_t k, int64_t width, Num* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < width; i += lanes) {
    const int64_t m = HWY_MIN(lanes, width - i);
    FloatVec sum = hn::Zero(d);
    for (int64_t j = 0; j < k; ++j) {
      const float* row = results + at[j] * width + i;
      sum = hn::MulAdd(hn::Set(d, weights[j]), m == lanes ? load(d, row) : load_n(d, row, m), sum);
    }
    m == lanes ? store(sum, d, y + i) : store_n(sum, d, y + i, m);
  }
}
void combine_f32(const float* results, const int32_t* at, const float* weights, int64_t k, int64_t width, float* y) {
  combine_row(results, at, weights, k, width, y);
}
void combine_bf16(const float* results, const int32_t* at, const float* weights, int64_t k, int64_t width, Bf16* y) {
  combine_row(results, at, weights, k, width, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

HWY_EXPORT(activate_f32);
HWY_EXPORT(activate_bf16);
HWY_EXPORT(combine_f32);
HWY_EXPORT(combine_bf16);

// The up products of a task go to FP32 scratch before the activation, this many rows at a time: whole packing blocks.
constexpr int64_t kRowsMax = 256;
int64_t rows_max(const ExpertProducts& c) {
  if (!c.engine) return kRowsMax;
  return std::min(c.engine->rows_max, kRowsMax / c.engine->block_rows * c.engine->block_rows);
}
// Approximate weight bytes of a task: long enough to be a stream, short enough to stay in L2 while x streams by.
constexpr int64_t kTaskBytes = 256 << 10;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Weight rows of a task: whole panels, and whole strips of tiles.
int64_t block_rows(const Weight& w) {
  constexpr int64_t kGrain = std::lcm(kPanelCols, tiles::kStripCols);
  const int64_t row_bytes = std::max<int64_t>(w.bytes() / std::max<int64_t>(w.rows, 1), 1);
  return std::min((kTaskBytes / row_bytes / kGrain + 1) * kGrain, w.rows);
}

int64_t block_rows_max(std::span<const Weight> list) {
  int64_t most = 0;
  for (const Weight& w : list) most = std::max(most, block_rows(w));
  return most;
}

// The workspace, cut up.
struct Scratch {
  int32_t* offsets;        // [E + 1] first sorted position of each expert
  int32_t* order;          // [T K] slot at each sorted position
  int32_t* at;             // [T K] sorted position of each slot; of dropped ones T K, where `results` has zeros
  std::byte* x;            // [T K, R] rows of x, sorted
  std::byte* hidden;       // [T K, F] in the dtype of x
  std::byte* packed;       // the sorted rows of x, then of hidden, as an engine that packs reads them
  std::byte* packed_gate;  // the rows of x for products of gates: the same, unless these are of another format
  float* results;          // [T K + 1, R]
  std::byte* own;          // one part per thread: workspace of a product, up block, gate block
  int64_t own_bytes, product_bytes, block_floats;
  int64_t bytes;  // of everything
};

int64_t product_bytes_max(const ExpertProducts& c, const ExpertsFwd& op) {
  const int64_t rows = std::min(op.experts.count(), rows_max(c));
  int64_t most = 0;
  for (const auto list : {op.up, op.gate, op.down}) {
    // Products of gates are cut like those of up.
    const auto cut_as = list.data() == op.gate.data() ? op.up : list;
    for (const Weight& w : list)
      most = std::max(most, c.engine ? c.engine->workspace(w, rows)
                                     : packed::multiply_bytes(*c.packed, {w}, rows, block_rows_max(cut_as), w.cols));
  }
  return most;
}

// Of a sorted row that is packed once for all tasks; 0: products pack or read the rows themselves.
int64_t packed_row_bytes(const ExpertProducts& c, const Weight& w) {
  return c.engine && c.engine->row_bytes ? c.engine->row_bytes(w) : 0;
}

// Whether gates read the rows that were packed for up.
bool shares_rows(const ExpertProducts& c, const ExpertsFwd& op) {
  if (!c.engine || !c.engine->row_bytes) return true;
  for (size_t e = 0; e < op.gate.size(); ++e) {
    if (!c.engine->same_packing(op.gate[e], op.up[e])) return false;
  }
  return true;
}

Scratch cut(const ExpertProducts& c, const ExpertsFwd& op, int threads, std::byte* base) {
  const int64_t slots = op.experts.count(), width = op.x.dim(1), size = size_of(op.x.dtype);
  Scratch s{};
  int64_t used = 0;
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + used : nullptr;
    used += aligned(bytes);
    return p;
  };
  s.offsets = reinterpret_cast<int32_t*>(take((static_cast<int64_t>(op.up.size()) + 1) * 4));
  s.order = reinterpret_cast<int32_t*>(take(slots * 4));
  s.at = reinterpret_cast<int32_t*>(take(slots * 4));
  s.x = take(slots * width * size);
  s.hidden = take(slots * op.up[0].rows * size);
  s.packed = take(slots * std::max(packed_row_bytes(c, op.up[0]), packed_row_bytes(c, op.down[0])));
  s.packed_gate = shares_rows(c, op) ? s.packed : take(slots * packed_row_bytes(c, op.gate[0]));
  s.results = reinterpret_cast<float*>(take((slots + 1) * width * 4));
  s.product_bytes = aligned(product_bytes_max(c, op));
  s.block_floats = std::min(slots, kRowsMax) * std::max(block_rows_max(op.up), block_rows_max(op.gate));
  s.own_bytes = s.product_bytes + (op.gate.empty() ? 1 : 2) * aligned(s.block_floats * 4);
  s.own = take(s.own_bytes * threads);
  s.bytes = used;
  return s;
}

void sort_by_expert(const ExpertsFwd& op, const Scratch& s) {
  const auto count = static_cast<int64_t>(op.up.size());
  const int64_t tokens = op.experts.dim(0), k = op.experts.dim(1);
  std::fill_n(s.offsets, count + 1, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = op.experts.as<int32_t>(t)[j];
      CHECK(e >= -1 && e < count, "experts_fwd: token {} has expert {} of {}", t, e, count);
      if (e >= 0) ++s.offsets[e + 1];
    }
  }
  for (int64_t e = 0; e < count; ++e) s.offsets[e + 1] += s.offsets[e];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = op.experts.as<int32_t>(t)[j];
      s.at[t * k + j] = static_cast<int32_t>(tokens * k);
      if (e < 0) continue;
      // offsets[e] runs to the end of expert e, which is where e + 1 begins: it is shifted back below.
      const int32_t at = s.offsets[e]++;
      s.order[at] = static_cast<int32_t>(t * k + j);
      s.at[t * k + j] = at;
    }
  }
  for (int64_t e = count; e > 0; --e) s.offsets[e] = s.offsets[e - 1];
  s.offsets[0] = 0;
}

// body(thread, expert, first weight row, weight rows) for every block of every expert that was chosen.
template <class Body>
void for_each_block(int threads, const Scratch& s, std::span<const Weight> list, const Body& body) {
  std::atomic<int64_t> next{0};
  sys::parallel(threads, [&](int thread, int) {
    int64_t task = next.fetch_add(1, std::memory_order_relaxed), first = 0;
    for (size_t e = 0; e < list.size(); ++e) {
      if (s.offsets[e] == s.offsets[e + 1]) continue;
      const int64_t rows = block_rows(list[e]), blocks = (list[e].rows + rows - 1) / rows;
      for (; task < first + blocks; task = next.fetch_add(1, std::memory_order_relaxed)) {
        const int64_t begin = (task - first) * rows;
        body(thread, e, begin, std::min(rows, list[e].rows - begin));
      }
      first += blocks;
    }
  });
}

void gather(const ExpertsFwd& op, const Scratch& s, int threads) {
  const int64_t k = op.experts.dim(1), size = size_of(op.x.dtype), bytes = op.x.dim(1) * size;
  sys::parallel_for(threads, s.offsets[op.up.size()], 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(s.x + i * bytes, op.x.data + s.order[i] / k * op.x.stride(0) * size, static_cast<size_t>(bytes));
  });
}

// Rows [first, first + n) of a matrix in the workspace, columns [col, col + cols).
MutView part(std::byte* base, DType dtype, int64_t width, int64_t first, int64_t n, int64_t col, int64_t cols) {
  MutView v(base + (first * width + col) * size_of(dtype), dtype, {n, cols});
  v.strides[0] = width;
  return v;
}

// The sorted rows, [T K, K of the weights], as the products of each expert read them: once for all tasks.
void pack_rows(const ExpertProducts& c, const Scratch& s, std::span<const Weight> list, std::byte* rows,
               std::byte* packed, int threads) {
  const int64_t row_bytes = packed_row_bytes(c, list[0]), cols = list[0].cols, count = s.offsets[list.size()];
  if (row_bytes == 0) return;
  constexpr double kPerValue = 16;  // operations to find the scale, round and order
  sys::parallel(sys::team_for(threads, kPerValue * static_cast<double>(count * cols)), [&](int thread, int team) {
    int64_t task = 0;
    for (size_t e = 0; e < list.size(); ++e) {
      for (int64_t i = s.offsets[e]; i < s.offsets[e + 1]; i += rows_max(c)) {
        const int64_t n = std::min<int64_t>(rows_max(c), s.offsets[e + 1] - i);
        for (int64_t block = 0; block * c.engine->block_rows < n; ++block) {
          if (task++ % team != thread) continue;
          c.engine->pack(part(rows, c.engine->x, cols, i, n, 0, cols), list[e], block, block + 1,
                         packed + i * row_bytes);
        }
      }
    }
  });
}

// Columns [begin, begin + cols) of the products of sorted rows [first, first + n), to where backward reads them.
void save(const Scratch& s, const float* product, int64_t first, int64_t n, int64_t begin, int64_t cols,
          const MutView& saved) {
  const int64_t k = saved.dim(1);
  for (int64_t r = 0; r < n; ++r, product += cols) {
    const int64_t slot = s.order[first + r];
    const int64_t at = slot / k * saved.stride(0) + slot % k * saved.stride(1) + begin;
    if (saved.dtype == DType::bf16) {
      for (int64_t i = 0; i < cols; ++i) saved.as<Bf16>()[at + i] = to_bf16(product[i]);
    } else {
      std::copy_n(product, cols, saved.as<float>() + at);
    }
  }
}

// y [M, N] F32 = x w^T, where x are sorted rows from `first` on, all of one expert: a part of those that pack_rows
// packed together.
void product(const ExpertProducts& c, const Scratch& s, const std::byte* packed, int64_t first, const View& x,
             const Weight& w, const MutView& y, int thread) {
  const std::span<std::byte> own(s.own + thread * s.own_bytes, static_cast<size_t>(s.product_bytes));
  if (c.engine) {
    c.engine->product({.x = x,
                       .packed = packed + first * packed_row_bytes(c, w),
                       .w = w,
                       .y = y,
                       .workspace = own,
                       .limits = &thresholds()});
    return;
  }
  packed::multiply(*c.packed,
                   {.a = packed::along(x),
                    .w = {w},
                    .rows = y.dim(0),
                    .cols = y.dim(1),
                    .depth = w.cols,
                    .y = y.as<float>(),
                    .y_stride = y.stride(0)},
                   own);
}

void up_block(const ExpertProducts& c, const ExpertsFwd& op, const Scratch& s, int thread, size_t e, int64_t begin,
              int64_t rows) {
  const int64_t width = op.x.dim(1), hidden_width = op.up[e].rows;
  auto* up = reinterpret_cast<float*>(s.own + thread * s.own_bytes + s.product_bytes);
  float* gate = op.gate.empty() ? nullptr : up + aligned(s.block_floats * 4) / 4;
  for (int64_t i = s.offsets[e]; i < s.offsets[e + 1]; i += rows_max(c)) {
    const int64_t n = std::min<int64_t>(rows_max(c), s.offsets[e + 1] - i);
    const View x = part(s.x, op.x.dtype, width, i, n, 0, width);
    product(c, s, s.packed, i, x, op.up[e].rows_of(begin, rows), mut_view_of(up, {n, rows}), thread);
    if (gate) product(c, s, s.packed_gate, i, x, op.gate[e].rows_of(begin, rows), mut_view_of(gate, {n, rows}), thread);
    if (op.u) save(s, up, i, n, begin, rows, op.u);
    if (op.g) save(s, gate, i, n, begin, rows, op.g);
    const MutView hidden = part(s.hidden, op.x.dtype, hidden_width, i, n, begin, rows);
    for (int64_t r = 0; r < n; ++r) {
      const float* gates = gate ? gate + r * rows : nullptr;
      if (op.x.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(activate_bf16)(up + r * rows, gates, op.act, rows, hidden.as<Bf16>(r));
      } else {
        HWY_DYNAMIC_DISPATCH(activate_f32)(up + r * rows, gates, op.act, rows, hidden.as<float>(r));
      }
    }
  }
}

void down_block(const ExpertProducts& c, const ExpertsFwd& op, const Scratch& s, int thread, size_t e, int64_t begin,
                int64_t rows) {
  const int64_t width = op.x.dim(1), hidden_width = op.up[e].rows;
  for (int64_t i = s.offsets[e]; i < s.offsets[e + 1]; i += rows_max(c)) {
    const int64_t n = std::min<int64_t>(rows_max(c), s.offsets[e + 1] - i);
    product(c, s, s.packed, i, part(s.hidden, op.x.dtype, hidden_width, i, n, 0, hidden_width),
            op.down[e].rows_of(begin, rows),
            part(reinterpret_cast<std::byte*>(s.results), DType::f32, width, i, n, begin, rows), thread);
  }
}

void combine(const ExpertsFwd& op, const Scratch& s, int threads) {
  const int64_t k = op.experts.dim(1), width = op.x.dim(1), slots = op.experts.count();
  if (s.offsets[op.up.size()] < slots) std::fill_n(s.results + slots * width, width, 0.0f);
  sys::parallel_for(threads, op.x.dim(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* weights = op.weights.as<float>(t);
      if (op.y.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(combine_bf16)(s.results, s.at + t * k, weights, k, width, op.y.as<Bf16>(t));
      } else {
        HWY_DYNAMIC_DISPATCH(combine_f32)(s.results, s.at + t * k, weights, k, width, op.y.as<float>(t));
      }
    }
  });
}

}  // namespace

int64_t experts_fwd_workspace(const ExpertProducts& c, const ExpertsFwd& op, int threads) {
  return cut(c, op, threads, nullptr).bytes;
}

void experts_fwd_grouped(const ExpertProducts& c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace) {
  // The field check covers only the shape of the first expert.
  for (const auto list : {op.up, op.gate, op.down}) {
    for (const Weight& w : list)
      CHECK(w.rows == list[0].rows && w.cols == list[0].cols, "experts_fwd: [{}, {}] among [{}, {}]", w.rows, w.cols,
            list[0].rows, list[0].cols);
  }
  const Scratch s = cut(c, op, ctx.threads, workspace.data());
  sort_by_expert(op, s);
  gather(op, s, ctx.threads);
  const int team = sys::team_for(ctx.threads, op.flops());
  pack_rows(c, s, op.up, s.x, s.packed, ctx.threads);
  if (s.packed_gate != s.packed) pack_rows(c, s, op.gate, s.x, s.packed_gate, ctx.threads);
  for_each_block(team, s, op.up, [&](int thread, size_t e, int64_t begin, int64_t rows) {
    up_block(c, op, s, thread, e, begin, rows);
  });
  pack_rows(c, s, op.down, s.hidden, s.packed, ctx.threads);
  for_each_block(team, s, op.down, [&](int thread, size_t e, int64_t begin, int64_t rows) {
    down_block(c, op, s, thread, e, begin, rows);
  });
  combine(op, s, ctx.threads);
}

}  // namespace braid
#endif
