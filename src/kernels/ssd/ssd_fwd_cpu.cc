// SsdFwd with Highway: the form of docs/internals/layers.md, Scan in chunks, as three register-tiled products, two of
// them with the head's P channels (padded to whole vectors) along the lanes:
//   C.B      [Q, Q] = c [Q, N] b' [N, Q]                       once for the heads of a task, up to the diagonal
//   output   y [Q, P] = e .* (c [Q, N] S' [N, P]) + M [Q, Q] x [Q, P]
//            M_ts = C.B_ts exp(L_t - L_s) d_s for s <= t, and d_skip on the diagonal
//   state    S' [N, P] = e_Q S' + b' [N, Q] (w .* x) [Q, P]    w_s = exp(L_Q - L_s) d_s
// with L the cumulative sum of d a from the start of the block and e = exp(L). A task is some heads of one group of one
// sequence; it walks the blocks in order and keeps the states transposed in its scratch meanwhile. Every element of a
// product is a sum over s or n in ascending order, whatever the tile, and entries beyond s = t add zero: so no bit
// depends on tiles, tasks, threads or later tokens. exp is only taken of differences <= 0.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ssd/ssd_rows.h"
#include "kernels/ssd/ssd_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd/ssd_fwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/contrib/math/math-inl.h>

#include "kernels/ssd/ssd_block-inl.h"
#include "kernels/ssd/ssd_stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// S [P, N] of a slot to S' [N, P] of the scratch, zeros in the padding, and back. Rows of a stored type pass through
// FP32 in the scratch.
void load_state(const SsdFwd& op, int64_t slot, int64_t head, const SsdScratch& scratch, float* to) {
  const int64_t width = op.x.dim(2), states = op.b.dim(2);
  std::memset(to, 0, static_cast<size_t>(scratch.states * scratch.width) * sizeof(float));
  for_each_panel(width, [&](int64_t column, int64_t vecs) HWY_ATTR {
    const int64_t rows = HWY_MIN(vecs * lanes(), width - column);
    const float* from = scratch.rows_read;
    int64_t stride = scratch.states;
    if (scratch.stored) {
      for (int64_t r = 0; r < rows; ++r) load_stored(op, slot, head, column + r, scratch.rows_read + r * stride);
    } else {
      stride = op.state.stride(2);
      from = op.state.as<float>(slot) + head * op.state.stride(1) + column * stride;
    }
    transpose(from, stride, rows, states, to + column * scratch.states, vecs * lanes());
  });
}
void store_state(const SsdFwd& op, const float* from, const SsdScratch& scratch, const Seq& seq, int64_t head) {
  const int64_t width = op.x.dim(2), states = op.b.dim(2);
  for_each_panel(width, [&](int64_t column, int64_t vecs) HWY_ATTR {
    const int64_t rows = HWY_MIN(vecs * lanes(), width - column);
    const float* panel = from + column * scratch.states;
    if (!scratch.stored) {
      float* to = op.state.as<float>(seq.slot) + head * op.state.stride(1) + column * op.state.stride(2);
      transpose(panel, vecs * lanes(), states, rows, to, op.state.stride(2));
      return;
    }
    transpose(panel, vecs * lanes(), states, rows, scratch.rows_read, scratch.states);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scratch.rows_read + r * scratch.states;
      std::fill(row + states, row + scratch.states, 0.0f);
      store_stored(op, row, seq.pos0 + seq.len, seq.slot, head, column + r);
    }
  });
}

// c, b' in both layouts, and C.B of a block.
template <class X>
void prepare_group(const SsdFwd& op, const Block& block, int64_t group, const SsdScratch& s) {
  const int64_t states = op.b.dim(2);
  const hn::FixedTag<float, kTileRows> tile_row;
  std::memset(s.c + block.count * s.states, 0,
              static_cast<size_t>((block.rows - block.count) * s.states) * sizeof(float));
  for (int64_t t = 0; t < block.count; ++t) {
    const X* b = op.b.as<X>(block.first + t) + group * op.b.stride(1);
    const X* c = op.c.as<X>(block.first + t) + group * op.c.stride(1);
    widen_row(tile_row, c, states, [&](int64_t n) { return s.c + t * s.states + n; });
    widen_row(tile_row, b, states, [&](int64_t n) { return s.b + n * s.rows + t * kTileRows; });
  }
  for_each_panel(block.count, [&](int64_t column, int64_t vecs) HWY_ATTR {
    const int64_t panel = vecs * lanes(), valid = HWY_MIN(panel, block.count - column);
    float* to = s.b_columns + column * s.states;
    for (int64_t n = 0; n < states; n += kTileRows)
      transpose(s.b + n * s.rows + column * kTileRows, kTileRows, valid, kTileRows, to + n * panel, panel);
    if (valid == panel) return;
    for (int64_t n = 0; n < states; ++n)
      std::memset(to + n * panel + valid, 0, static_cast<size_t>(panel - valid) * sizeof(float));
  });
}

template <int kVecs>
void multiply_dots(const Block& block, int64_t states, const SsdScratch& s, int64_t column) {
  for (int64_t t = column / kTileRows * kTileRows; t < block.rows; t += kTileRows) {
    Accumulators<kVecs> tile;
    tile.zero();
    tile.add_product({s.c + t * s.states, s.states, 1}, s.b_columns + column * s.states, kVecs * lanes(), states);
    tile.store(s.dots + t * s.row_stride + column, s.row_stride);
  }
}

// x of all heads of a task in column panels, zeros in the padding: row by row, because rows are pages apart.
template <class X>
void prepare_inputs(const SsdFwd& op, const SsdTask& task, const Block& block, const SsdScratch& s) {
  const FloatTag d;
  const int64_t width = op.x.dim(2);
  for (int64_t t = 0; t < block.rows; ++t) {
    for (int64_t i = 0; i < task.heads; ++i) {
      const X* x = op.x.as<X>(block.first + HWY_MIN(t, block.count - 1)) + (task.head + i) * op.x.stride(1);
      for_each_panel(width, [&](int64_t column, int64_t vecs) HWY_ATTR {
        float* to = s.x + (i * s.width + column) * s.rows + t * vecs * lanes();
        for (int64_t at = column; at < column + vecs * lanes(); at += lanes(), to += lanes()) {
          FloatVec v = hn::Zero(d);
          if (t < block.count) v = at + lanes() <= width ? load(d, x + at) : load_n(d, x + at, width - at);
          hn::StoreU(v, d, to);
        }
      });
    }
  }
}

// M, tile row by tile row: first what the rows share, then each row's own part. Left of the diagonal tile, with r the
// row before the tile, exp(L_t - L_s) = exp(L_t - L_r) exp(L_r - L_s): one exp serves the tile's rows.
void prepare_mask(const Block& block, float skip, const SsdScratch& s) {
  const FloatTag d;
  for (int64_t first = 0; first < block.rows; first += kTileRows) {
    const float* dots = s.dots + first * s.row_stride;
    float* mask = s.mask + first * s.row_stride;
    HWY_ALIGN float rise[HWY_MAX_BYTES / sizeof(float)] = {};
    if (first > 0) {
      for (int i = 0; i < kTileRows; ++i) {
        const float high = s.decays.high[first + i] - s.decays.high[first - 1],
                    low = s.decays.low[first + i] - s.decays.low[first - 1];
        rise[i] = HWY_MIN(high + low, 0.0f);
      }
      for (int64_t i = 0; i < kTileRows; i += lanes()) hn::Store(hn::Exp(d, hn::Load(d, rise + i)), d, rise + i);
    }
    for (int64_t from = 0; from < first; from += lanes()) {
      const FloatVec fall = hn::Mul(decay_from(s.decays, first - 1, from), hn::LoadU(d, s.decays.step + from));
      for (int i = 0; i < kTileRows; ++i) {
        const FloatVec weight = hn::Mul(fall, hn::Set(d, rise[i]));
        hn::StoreU(hn::Mul(weight, hn::LoadU(d, dots + i * s.row_stride + from)), d, mask + i * s.row_stride + from);
      }
    }
    for (int i = 0; i < kTileRows; ++i) {
      for (int64_t from = 0; from < kTileRows; from += lanes()) {
        const auto keep = hn::FirstN(d, static_cast<size_t>(HWY_MAX(0, i + 1 - from)));
        const int64_t at = i * s.row_stride + first + from;
        const FloatVec weight =
            hn::Mul(decay_from(s.decays, first + i, first + from), hn::LoadU(d, s.decays.step + first + from));
        hn::StoreU(hn::IfThenElseZero(keep, hn::Mul(weight, hn::LoadU(d, dots + at))), d, mask + at);
      }
      mask[i * s.row_stride + first + i] += skip;
    }
  }
}

template <class Y>
HWY_INLINE void narrow_row(const float* from, int64_t count, Y* to) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) store(hn::LoadU(d, from + i), d, to + i);
  if (i < count) store_n(hn::LoadU(d, from + i), d, to + i, count - i);
}

// y of a block, one head and one column panel.
template <int kVecs>
void multiply_output(const SsdFwd& op, const Block& block, int64_t head, const float* x, const float* state,
                     const SsdScratch& s, int64_t column) {
  const int64_t panel = kVecs * lanes(), width = HWY_MIN(panel, op.x.dim(2) - column);
  HWY_ALIGN float sums[kTileRows * kVecs * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t t = 0; t < block.rows; t += kTileRows) {
    Accumulators<kVecs> tile;
    tile.zero();
    tile.add_product({s.c + t * s.states, s.states, 1}, state, panel, op.b.dim(2));
    tile.scale(s.decays.enter + t, 1);
    tile.add_product({s.mask + t * s.row_stride, s.row_stride, 1}, x, panel, t + kTileRows);
    tile.store(sums, panel);
    for (int64_t i = 0; i < HWY_MIN(kTileRows, block.count - t); ++i) {
      const int64_t at = head * op.y.stride(1) + column;
      if (op.y.dtype == DType::bf16) {
        narrow_row(sums + i * panel, width, op.y.as<Bf16>(block.first + t + i) + at);
      } else {
        narrow_row(sums + i * panel, width, op.y.as<float>(block.first + t + i) + at);
      }
    }
  }
}

// The state after a block, of one head and one column panel; x becomes w .* x.
template <int kVecs>
void multiply_state(const SsdFwd& op, const Block& block, float* x, float* state, const SsdScratch& s) {
  const FloatTag d;
  const int64_t panel = kVecs * lanes(), last = block.count - 1;
  for (int64_t from = 0; from < block.count; from += lanes()) {
    HWY_ALIGN float weights[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(hn::Mul(decay_from(s.decays, last, from), hn::LoadU(d, s.decays.step + from)), d, weights);
    for (int64_t t = from; t < HWY_MIN(from + lanes(), block.count); ++t) {
      for (int64_t j = t * panel; j < (t + 1) * panel; j += lanes())
        hn::StoreU(hn::Mul(hn::Set(d, weights[t - from]), hn::LoadU(d, x + j)), d, x + j);
    }
  }
  for (int64_t n = 0; n < op.b.dim(2); n += kTileRows) {
    Accumulators<kVecs> tile;
    tile.load(state + n * panel, panel);
    tile.scale(s.decays.enter + last, 0);
    tile.add_product({s.b + n * s.rows, 1, kTileRows}, x, panel, block.count);
    tile.store(state + n * panel, panel);
  }
}

template <int kVecs>
void multiply_panel(const SsdFwd& op, const Block& block, const SsdTask& task, int64_t i, const SsdScratch& s,
                    int64_t column) {
  float* x = s.x + (i * s.width + column) * s.rows;
  float* state = s.state + (i * s.width + column) * s.states;
  multiply_output<kVecs>(op, block, task.head + i, x, state, s, column);
  multiply_state<kVecs>(op, block, x, state, s);
}

template <class X>
void run_block(const SsdFwd& op, const SsdTask& task, const Block& block, const SsdScratch& s) {
  prepare_group<X>(op, block, task.group, s);
  for_each_panel(block.count, [&](int64_t column, int64_t vecs) HWY_ATTR {
    const int64_t states = op.b.dim(2);
    if (vecs == 1) multiply_dots<1>(block, states, s, column);
    if (vecs == 2) multiply_dots<2>(block, states, s, column);
    if (vecs == kTileVecs && kTileVecs > 2) multiply_dots<kTileVecs>(block, states, s, column);
  });
  prepare_inputs<X>(op, task, block, s);
  for (int64_t i = 0; i < task.heads; ++i) {
    prepare_decays(op, block, task.head + i, s.decays);
    prepare_mask(block, op.d_skip.as<float>()[task.head + i], s);
    for_each_panel(op.x.dim(2), [&](int64_t column, int64_t vecs) HWY_ATTR {
      if (vecs == 1) multiply_panel<1>(op, block, task, i, s, column);
      if (vecs == 2) multiply_panel<2>(op, block, task, i, s, column);
      if (vecs == kTileVecs && kTileVecs > 2) multiply_panel<kTileVecs>(op, block, task, i, s, column);
    });
  }
}

void run_task(const SsdFwd& op, const SsdTask& task, float* base) {
  const Seq& seq = op.seqs->seqs[static_cast<size_t>(task.seq)];
  if (seq.len == 0) return;
  const SsdScratch s(op, task.heads, base);
  const int64_t size = s.states * s.width;
  if (!op.state) std::memset(s.state, 0, static_cast<size_t>(task.heads * size) * sizeof(float));
  for (int64_t i = 0; op.state && i < task.heads; ++i) load_state(op, seq.slot, task.head + i, s, s.state + i * size);
  for (int64_t t = 0; t < seq.len;) {
    const int64_t count = HWY_MIN(block_left(op, seq.pos0 + t), seq.len - t);
    const Block block{seq.start + t, count, (count + kTileRows - 1) / kTileRows * kTileRows};
    op.x.dtype == DType::bf16 ? run_block<Bf16>(op, task, block, s) : run_block<float>(op, task, block, s);
    t += count;
  }
  for (int64_t i = 0; op.state && i < task.heads; ++i) store_state(op, s.state + i * size, s, seq, task.head + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace braid {
namespace {

// Heads of a task: an even share of a group whose states and inputs stay in the L2 cache, and that leaves work for
// every thread.
int64_t heads_of_task(const SsdFwd& op, int threads) {
  constexpr int64_t kFloats = 1 << 17;  // 512 KiB
  const int64_t of_head = op.x.dim(2) * (op.b.dim(2) + std::min(op.chunk, kSsdBlock));
  const int64_t in_group = op.x.dim(1) / op.b.dim(1), fit = kFloats / of_head;
  const int64_t pairs = static_cast<int64_t>(op.seqs->seqs.size()) * op.x.dim(1);
  const int64_t share = pairs / (4 * static_cast<int64_t>(threads));
  const int64_t most = std::clamp<int64_t>(std::min(fit, share), 1, in_group);
  return (in_group + (in_group + most - 1) / most - 1) / ((in_group + most - 1) / most);  // even parts
}

}  // namespace

HWY_EXPORT(run_task);

int64_t ssd_fwd_hwy_workspace(const SsdFwd& op, int threads) {
  const SsdScratch scratch(op, heads_of_task(op, threads), nullptr);
  return scratch.used() * static_cast<int64_t>(sizeof(float)) * threads;
}

void ssd_fwd_hwy(Ctx& ctx, const SsdFwd& op, std::span<std::byte> workspace) {
  const int64_t most = heads_of_task(op, ctx.threads), in_group = op.x.dim(1) / op.b.dim(1);
  const int64_t parts = (in_group + most - 1) / most, of_seq = op.b.dim(1) * parts;
  const int64_t tasks = static_cast<int64_t>(op.seqs->seqs.size()) * of_seq;
  const int64_t floats = SsdScratch(op, most, nullptr).used();
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), tasks, [&](int thread, int64_t i) {
    float* base = reinterpret_cast<float*>(workspace.data()) + thread * floats;
    const int64_t group = i % of_seq / parts, part = i % parts * most;
    HWY_DYNAMIC_DISPATCH(run_task)
    (op, {i / of_seq, group, group * in_group + part, std::min(most, in_group - part)}, base);
  });
}

}  // namespace braid
#endif
