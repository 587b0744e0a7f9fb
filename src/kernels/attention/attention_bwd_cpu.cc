// Backward of attention with Highway. A unit is a sequence and a KV head with all query heads that read it. Its tiles
// of rows (token by token, heads of a token next to each other) are paired with the blocks of keys they see; each pair
// recomputes the scores as in forward, makes p and ds of them, and does five products, of register tiles or on packed
// operands. dq of a tile and dk, dv of the sequence stay in the thread's memory, where tiles and blocks are summed in
// order.
#include <algorithm>
#include <utility>

#include "kernels/attention/attention_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_bwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "kernels/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// c [m][n] += a b over whole matrices, in register tiles; n is rounded up to whole vectors.
template <bool kAcross>
void multiply(TileProduct<float, kAcross> p, int64_t rows, int64_t cols) {
  const int64_t vectors = (cols + kLanes - 1) / kLanes;
  const TileProduct<float, kAcross> whole = p;
  for (int64_t col = 0, n = 0; col < vectors; col += n) {
    n = even_part(vectors - col, kCols);
    p.b = whole.b + col * kLanes;
    for (int64_t row = 0, m = 0; row < rows; row += m) {
      m = even_part(rows - row, kRows);
      p.a = whole.a + row * (kAcross ? 1 : whole.a_stride);
      p.c = whole.c + row * whole.c_stride + col * kLanes;
      tile_any(p, m, n);
    }
  }
}

// Row r of [T, heads, P], head h, as floats times `scale`; zeros up to `pad`.
void widen(const View& rows, int64_t row, int64_t head, float scale, float* to, int64_t pad) {
  const int64_t width = rows.dim(2);
  if (rows.dtype == DType::bf16) {
    widen_row(rows.as<Bf16>(row) + head * rows.stride(1), scale, to, width);
  } else {
    widen_row(rows.as<float>(row) + head * rows.stride(1), scale, to, width);
  }
  std::fill(to + width, to + pad, 0.0f);
}

template <class Num>
void narrow_row(const float* from, float scale, Num* to, int64_t n) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Mul(load(d, from + i), factor), d, to + i);
  if (i < n) store_n(hn::Mul(load(d, from + i), factor), d, to + i, n - i);
}
void narrow(const float* from, float scale, const MutView& rows, int64_t row, int64_t head) {
  if (rows.dtype == DType::bf16) {
    narrow_row(from, scale, rows.as<Bf16>(row) + head * rows.stride(1), rows.dim(2));
  } else {
    narrow_row(from, scale, rows.as<float>(row) + head * rows.stride(1), rows.dim(2));
  }
}

template <class Num>
void transpose_from(const View& heads, int64_t first, int64_t head, int64_t n, float* to) {
  const Num* rows[kAttentionBlock];
  for (int64_t j = 0; j < kAttentionBlock; ++j) {
    rows[j] = heads.as<Num>(first + (j < n ? j : 0)) + head * heads.stride(1);
  }
  transpose_keys(rows, n, heads.dim(2), to);
}
void transpose(const View& heads, int64_t first, int64_t head, int64_t n, float* to) {
  if (heads.dtype == DType::bf16) {
    transpose_from<Bf16>(heads, first, head, n, to);
  } else {
    transpose_from<float>(heads, first, head, n, to);
  }
}

float dot(const float* a, const float* b, int64_t n) {
  const FloatTag d;
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += kLanes) sum = hn::MulAdd(load(d, a + i), load(d, b + i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// q, dy, lse and delta of the tile's rows; dq starts at zero.
void fill_rows(const AttentionBwd& op, const AttentionTile& t, AttentionBwdScratch& s) {
  const float scale = s.tiles ? 1 : op.scale;
  for (int64_t r = 0; r < t.rows(); ++r) {
    const int64_t token = t.seq.start + t.first + r / t.ratio, head = t.group * t.ratio + r % t.ratio;
    float* dq = s.dq + r * s.pad;
    widen(op.q, token, head, scale, s.q + r * s.pad, s.pad);
    widen(op.dy, token, head, 1, s.dy + r * s.pad, s.pad);
    // Rounded here, so that delta is of what products read, and the ds of a row add up to nothing.
    for (int64_t i = 0; s.tiles && i < s.pad; ++i) s.dy[r * s.pad + i] = to_float(to_bf16(s.dy[r * s.pad + i]));
    widen(op.y, token, head, 1, dq, s.pad);
    s.delta[r] = dot(s.dy + r * s.pad, dq, s.pad);
    s.lse[r] = op.lse.as<float>(token)[head];
    std::fill(dq, dq + s.pad, 0.0f);
  }
  if (!s.tiles) return;
  s.cols_from = -1;
  const int64_t width = op.q.dim(2);
  packed::pack(*s.tiles, packed::Side::rows, {.data = s.q, .stride = s.pad, .along = true}, t.rows(), width, s.q_rows);
  packed::pack(*s.tiles, packed::Side::rows, {.data = s.dy, .stride = s.pad, .along = true}, t.rows(), width,
               s.dy_rows);
}

// Scores times `scale` become p, dy . v becomes ds; both are zero for keys that a row does not see. `seen` belongs to
// the first row.
HWY_NOINLINE void differentiate(const AttentionTile& t, const AttentionBwdScratch& s, int64_t first, int64_t seen,
                                int64_t vectors, float scale) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, scale);
  for (int64_t r = first; r < t.rows(); ++r) {
    const int64_t n = seen + (r - first) / t.ratio;
    float *p = s.p + r * kAttentionBlock, *ds = s.ds + r * kAttentionBlock;
    const FloatVec lse = hn::Set(d, s.lse[r]), delta = hn::Set(d, s.delta[r]);
    for (int64_t i = 0; i < vectors * kLanes; i += kLanes) {
      FloatVec e = safe_exp(d, hn::MulSub(load(d, p + i), factor, lse)),
               g = hn::Mul(e, hn::Sub(load(d, ds + i), delta));
      if (i + kLanes > n) {
        const auto visible = hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(n - i, 0)));
        e = hn::IfThenElseZero(visible, e);
        g = hn::IfThenElseZero(visible, g);
      }
      store(e, d, p + i);
      store(g, d, ds + i);
    }
  }
}

// One tile of rows and one block of keys.
void meet(const AttentionBwd& op, const AttentionTile& t, const AttentionBwdScratch& s, int64_t start) {
  const int64_t n = std::min(kAttentionBlock, t.keys() - start), token = std::max<int64_t>(0, start - t.pos());
  const int64_t row = token * t.ratio, rows = t.rows() - row, width = op.q.dim(2), from = t.seen.start + start;
  transpose(op.k, from, t.group, n, s.keys_across);
  transpose(op.v, from, t.group, n, s.values_across);
  for (int64_t j = 0; j < n; ++j) widen(op.k, from + j, t.group, 1, s.keys + j * s.pad, s.pad);
  float *q = s.q + row * s.pad, *dy = s.dy + row * s.pad, *dq = s.dq + row * s.pad;
  float *p = s.p + row * kAttentionBlock, *ds = s.ds + row * kAttentionBlock;
  std::fill(p, p + rows * kAttentionBlock, 0.0f);
  std::fill(ds, ds + rows * kAttentionBlock, 0.0f);
  multiply<false>({q, s.pad, s.keys_across, kAttentionBlock, width, p, kAttentionBlock}, rows, n);
  multiply<false>({dy, s.pad, s.values_across, kAttentionBlock, width, ds, kAttentionBlock}, rows, n);
  differentiate(t, s, row, t.pos() + token + 1 - start, (n + kLanes - 1) / kLanes, 1);
  multiply<true>({p, kAttentionBlock, dy, s.pad, rows, s.dv + start * s.pad, s.pad}, n, width);
  multiply<true>({ds, kAttentionBlock, q, s.pad, rows, s.dk + start * s.pad, s.pad}, n, width);
  multiply<false>({ds, kAttentionBlock, s.keys, s.pad, n, dq, s.pad}, rows, width);
}

// Keys or values of a block as they lie.
packed::Source rows_of(const View& heads, int64_t first, int64_t head, bool along) {
  const std::byte* data = heads.data + (first * heads.stride(0) + head * heads.stride(1)) * size_of(heads.dtype);
  return {.data = data, .stride = heads.stride(0), .bf16 = heads.dtype == DType::bf16, .along = along};
}

// y [rows, n] (+)= a times a source of n columns.
struct BlockProduct {
  const std::byte* a = nullptr;
  int64_t rows = 0, n = 0, depth = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
};
void multiply_packed(const AttentionBwdScratch& s, const packed::Source& b, const BlockProduct& p) {
  packed::pack(*s.tiles, packed::Side::cols, b, p.n, p.depth, s.panel);
  packed::product(*s.tiles, {.a = p.a,
                             .b = s.panel,
                             .m = p.rows,
                             .n = p.n,
                             .depth = p.depth,
                             .y = p.y,
                             .y_stride = p.y_stride,
                             .add = p.add});
}

// meet on packed operands. Rows begin with a whole panel: those of the panel that see no key of the block have zeros.
void meet_packed(const AttentionBwd& op, const AttentionTile& t, AttentionBwdScratch& s, int64_t start) {
  using packed::Side;
  const packed::Kernel& kernel = *s.tiles;
  const int64_t n = std::min(kAttentionBlock, t.keys() - start), token = std::max<int64_t>(0, start - t.pos());
  const int64_t first = token * t.ratio, row = first / kernel.rows * kernel.rows, rows = t.rows() - row;
  const int64_t width = op.q.dim(2), from = t.seen.start + start, block = kAttentionBlock;
  float *p = s.p + row * block, *ds = s.ds + row * block;
  const int64_t skipped = packed::packed_bytes(kernel, Side::rows, row, width);
  multiply_packed(s, rows_of(op.k, from, t.group, true), {s.q_rows + skipped, rows, n, width, p, block});
  multiply_packed(s, rows_of(op.v, from, t.group, true), {s.dy_rows + skipped, rows, n, width, ds, block});
  std::fill(p, s.p + first * block, 0.0f);
  std::fill(ds, s.ds + first * block, 0.0f);
  differentiate(t, s, first, t.pos() + token + 1 - start, (n + kLanes - 1) / kLanes, op.scale);
  if (s.cols_from != row) {
    packed::pack(kernel, Side::cols, {.data = s.q + row * s.pad, .stride = s.pad}, width, rows, s.q_cols);
    packed::pack(kernel, Side::cols, {.data = s.dy + row * s.pad, .stride = s.pad}, width, rows, s.dy_cols);
    s.cols_from = row;
  }
  const auto add_to = [&](const float* scores, const std::byte* columns, float* sums) {
    packed::pack(kernel, Side::rows, {.data = scores, .stride = block}, n, rows, s.scores);
    packed::product(kernel, {.a = s.scores,
                             .b = columns,
                             .m = n,
                             .n = width,
                             .depth = rows,
                             .y = sums + start * s.pad,
                             .y_stride = s.pad,
                             .add = true});
  };
  add_to(p, s.dy_cols, s.dv);
  add_to(ds, s.q_cols, s.dk);
  packed::pack(kernel, Side::rows, {.data = ds, .stride = block, .along = true}, rows, n, s.scores);
  multiply_packed(s, rows_of(op.k, from, t.group, false), {s.scores, rows, width, n, s.dq + row * s.pad, s.pad, true});
}

void bwd_unit(const AttentionBwd& op, const AttentionTile& unit, AttentionBwdScratch& s, int64_t tile_tokens) {
  AttentionTile t = unit;
  std::fill(s.dk, s.dk + t.seen.count * s.pad, 0.0f);
  std::fill(s.dv, s.dv + t.seen.count * s.pad, 0.0f);
  for (t.first = 0; t.first < t.seq.len; t.first += tile_tokens) {
    t.tokens = std::min(tile_tokens, t.seq.len - t.first);
    fill_rows(op, t, s);
    for (int64_t start = 0; start < t.keys(); start += kAttentionBlock)
      s.tiles ? meet_packed(op, t, s, start) : meet(op, t, s, start);
    for (int64_t r = 0; r < t.rows(); ++r) {
      narrow(s.dq + r * s.pad, op.scale, op.dq, t.seq.start + t.first + r / t.ratio, t.group * t.ratio + r % t.ratio);
    }
  }
  for (int64_t j = 0; j < t.seen.count; ++j) {
    narrow(s.dk + j * s.pad, s.tiles ? op.scale : 1, op.dk, t.seen.start + j, t.group);
    narrow(s.dv + j * s.pad, 1, op.dv, t.seen.start + j, t.group);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(bwd_unit);

namespace {

struct BwdPlan {
  const packed::Kernel* tiles = nullptr;
  int64_t ratio = 1, tile_tokens = 1, rows = 0, longest = 0, keys = 0, width = 0, pad = 0;
};

BwdPlan make_plan(const packed::Kernel* tiles, const AttentionBwd& op) {
  BwdPlan plan{.tiles = tiles};
  plan.ratio = op.q.dim(1) / op.k.dim(1);
  plan.width = op.q.dim(2);
  plan.pad = (plan.width + 15) / 16 * 16;
  plan.tile_tokens = std::max<int64_t>(kAttentionTileRows / plan.ratio, 1);
  for (size_t i = 0; i < op.seqs->seqs.size(); ++i) {
    plan.longest = std::max(plan.longest, op.seqs->seqs[i].len);
    plan.keys = std::max(plan.keys, keys_of(*op.seqs, op.keys, i).count);
  }
  plan.rows = (std::min(plan.tile_tokens, plan.longest) * plan.ratio + 15) / 16 * 16;
  return plan;
}

// At `base`, and its bytes: whole lines.
std::pair<AttentionBwdScratch, int64_t> scratch_at(const BwdPlan& plan, std::byte* base) {
  AttentionBwdScratch s{.pad = plan.pad, .tiles = plan.tiles};
  int64_t used = 0;
  const auto take_bytes = [&](int64_t bytes) { return base + std::exchange(used, used + (bytes + 63) / 64 * 64); };
  const auto take = [&](int64_t n) { return reinterpret_cast<float*>(take_bytes(n * int64_t{sizeof(float)})); };
  s.q = take(plan.rows * plan.pad);
  s.dy = take(plan.rows * plan.pad);
  s.dq = take(plan.rows * plan.pad);
  s.p = take(plan.rows * kAttentionBlock);
  s.ds = take(plan.rows * kAttentionBlock);
  s.lse = take(plan.rows);
  s.delta = take(plan.rows);
  s.dk = take(plan.keys * plan.pad);
  s.dv = take(plan.keys * plan.pad);
  if (!plan.tiles) {
    s.keys_across = take(plan.width * kAttentionBlock);
    s.values_across = take(plan.width * kAttentionBlock);
    s.keys = take(plan.pad * kAttentionBlock);
    return {s, used};
  }
  const auto bytes = [&](packed::Side side, int64_t n, int64_t depth) {
    return packed::packed_bytes(*plan.tiles, side, n, depth);
  };
  using packed::Side;
  constexpr int64_t kBlock = kAttentionBlock;
  s.q_rows = take_bytes(bytes(Side::rows, plan.rows, plan.width));
  s.dy_rows = take_bytes(bytes(Side::rows, plan.rows, plan.width));
  s.q_cols = take_bytes(bytes(Side::cols, plan.width, plan.rows));
  s.dy_cols = take_bytes(bytes(Side::cols, plan.width, plan.rows));
  s.scores = take_bytes(std::max(bytes(Side::rows, plan.rows, kBlock), bytes(Side::rows, kBlock, plan.rows)));
  s.panel = take_bytes(std::max(bytes(Side::cols, kBlock, plan.width), bytes(Side::cols, plan.width, kBlock)));
  return {s, used};
}

}  // namespace

int64_t attention_bwd_workspace(const packed::Kernel* tiles, const AttentionBwd& op, int threads) {
  return threads * scratch_at(make_plan(tiles, op), nullptr).second;
}

void attention_bwd_blocks(const packed::Kernel* tiles, Ctx& ctx, const AttentionBwd& op,
                          std::span<std::byte> workspace) {
  check_sequences(op);
  const BwdPlan plan = make_plan(tiles, op);
  const int64_t own = attention_bwd_workspace(tiles, op, 1);
  const int64_t groups = op.k.dim(1), units = static_cast<int64_t>(op.seqs->seqs.size()) * groups;
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), units, [&](int thread, int64_t i) {
    AttentionBwdScratch s = scratch_at(plan, workspace.data() + thread * own).first;
    const auto number = static_cast<size_t>(i / groups);
    const AttentionTile unit{.seq = op.seqs->seqs[number],
                             .seen = keys_of(*op.seqs, op.keys, number),
                             .group = i % groups,
                             .first = 0,
                             .tokens = 0,
                             .ratio = plan.ratio};
    HWY_DYNAMIC_DISPATCH(bwd_unit)(op, unit, s, plan.tile_tokens);
  });
}

}  // namespace braid
#endif
