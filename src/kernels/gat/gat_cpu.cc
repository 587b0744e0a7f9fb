// Attention over edges with Highway. A row and head at a time, its edges in chunks whose weights lie on the stack: the
// exponentials of a chunk are vectors along edges, everything else vectors along channels. Chunks start with each row,
// so that threads change nothing.
#include <algorithm>
#include <cmath>

#include "kernels/gat/gat_rows.h"
#include "math/row_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gat/gat_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

#include "math/act-inl.h"
// after vec-inl
#include "math/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int64_t kChunk = 64;  // edges: their weights fit a few lines of L1, and rescaling is rare

HWY_INLINE float leaky_relu(float v, float slope) { return v > 0 ? v : v * slope; }

// The edges of a row, and the row itself as the last where it has a loop.
struct Neighbours {
  const int32_t* col;
  int64_t row, edges, count, first, all;  // first: the position of its first edge; all: edges of the graph
  Neighbours(const View& rowptr, const View& cols, int64_t i, bool loops)
      : col(cols.as<int32_t>() + rowptr.as<int64_t>()[i]),
        row(i),
        edges(rowptr.as<int64_t>()[i + 1] - rowptr.as<int64_t>()[i]),
        count(edges + (loops ? 1 : 0)),
        first(rowptr.as<int64_t>()[i]),
        all(cols.dim(0)) {}
  int64_t operator[](int64_t e) const { return e < edges ? col[e] : row; }
};

// The random factors of edges [from, from + n) of a node; `order` as in GatBwd, or null. Nothing without dropout.
HWY_INLINE void draw_factors(const AttentionDropout& drop, const Neighbours& list, const int32_t* order, int64_t from,
                             int64_t n, int64_t heads, int64_t h, float* factors) {
  if (drop.rate == 0) return;
  int64_t numbers[kChunk];
  for (int64_t e = 0; e < n; ++e) {
    const int64_t at = list.first + from + e;
    numbers[e] = from + e >= list.edges ? list.all + list.row : order ? order[at] : at;
  }
  attention_factors(drop, numbers, n, heads, h, factors);
}

// exp(s - top) of n scores in place; lanes beyond n are unspecified. Returns their sum.
HWY_INLINE float exponentials(float* s, int64_t n, float top) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec t = hn::Set(d, top);
  for (int64_t e = 0; e < n; e += lanes) hn::Store(exp_or_nan(d, hn::Sub(hn::Load(d, s + e), t)), d, s + e);
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += s[e];
  return sum;
}

template <class Tag, int kVecs, class X>
void attend(const GatFwd& op, const Neighbours& list, int64_t h, int64_t first, int64_t n) {
  const Tag d;
  const VectorOffsets<Tag, kVecs> offsets(n);
  const int64_t heads = op.left.dim(1);
  const float left = op.left.as<float>(list.row)[h];
  const float* right = op.right.as<float>() + h;
  HWY_ALIGN float weights[kChunk] = {}, factors[kChunk];
  hn::VFromD<Tag> acc[kVecs];
  for (int v = 0; v < kVecs; ++v) acc[v] = hn::Zero(d);
  float top = list.count > 0 ? -HUGE_VALF : 0, sum = 0;
  for (int64_t from = 0; from < list.count; from += kChunk) {
    const int64_t edges = HWY_MIN(kChunk, list.count - from);
    float largest = top;
    for (int64_t e = 0; e < edges; ++e) {
      weights[e] = leaky_relu(left + right[list[from + e] * heads], op.slope);
      largest = HWY_MAX(weights[e], largest);  // of those that are not NaN, which the sum then is
    }
    if (largest > top && from > 0) {
      const float shrink = std::exp(top - largest);
      sum *= shrink;
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::Mul(acc[v], hn::Set(d, shrink));
    }
    top = largest;
    sum += exponentials(weights, edges, top);
    draw_factors(op.drop, list, nullptr, from, edges, heads, h, factors);
    for (int64_t e = 0; e < edges && op.drop.rate > 0; ++e) weights[e] *= factors[e];
    for (int64_t e = 0; e < edges; ++e) {
      const X* x = op.x.as<X>(list[from + e]) + first;
      const auto w = hn::Set(d, weights[e]);
      for (int v = 0; v < kVecs; ++v) acc[v] = hn::MulAdd(w, load(d, x + offsets.at[v]), acc[v]);
    }
  }
  const auto share = hn::Set(d, list.count > 0 ? 1 / sum : 0);
  for (int v = 0; v < kVecs; ++v) put(hn::Mul(acc[v], share), d, op.y, list.row, first + offsets.at[v]);
  op.top.as<float>(list.row)[h] = top;
  op.sum.as<float>(list.row)[h] = sum;
}

template <class X>
void attend_rows(const GatFwd& op, int64_t begin, int64_t end) {
  const int64_t heads = op.left.dim(1), part = op.y.dim(1) / heads;
  for (int64_t i = begin; i < end; ++i) {
    const Neighbours list(op.rowptr, op.col, i, op.loops);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t c = 0, n = 0; c < part; c += n) {
        n = next_strip(part - c, kStripMost);
        const int64_t first = h * part + c;
        with_vectors(n, [&]<class Tag, int kVecs>() { attend<Tag, kVecs, X>(op, list, h, first, n); });
      }
    }
  }
}

void attend_range(const GatFwd& op, int64_t begin, int64_t end) {
  op.x.dtype == DType::bf16 ? attend_rows<Bf16>(op, begin, end) : attend_rows<float>(op, begin, end);
}

// <a, b> over n channels; `sums` n floats or null: sums += weight a.
template <class B>
HWY_INLINE float dot_and_add(const float* a, const B* b, int64_t n, float weight, float* sums) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec w = hn::Set(d, weight);
  FloatVec dots = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    const FloatVec v = hn::LoadU(d, a + c);
    dots = hn::MulAdd(v, load(d, b + c), dots);
    if (sums) hn::StoreU(hn::MulAdd(w, v, hn::LoadU(d, sums + c)), d, sums + c);
  }
  float dot = c > 0 ? hn::GetLane(hn::SumOfLanes(d, dots)) : 0;
  for (; c < n; ++c) {
    dot += a[c] * to_float(b[c]);
    if (sums) sums[c] += weight * a[c];
  }
  return dot;
}

// means[i,h] = <dy_i, y_i>
template <class Y>
void mean_rows(const GatBwd& op, int64_t begin, int64_t end, float* means) {
  const int64_t heads = op.left.dim(1), part = op.y.dim(1) / heads;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t h = 0; h < heads; ++h)
      means[i * heads + h] = dot_and_add(op.dy.as<float>(i) + h * part, op.y.as<Y>(i) + h * part, part, 0, nullptr);
  }
}
void mean_range(const GatBwd& op, int64_t begin, int64_t end, float* means) {
  op.y.dtype == DType::bf16 ? mean_rows<Bf16>(op, begin, end, means) : mean_rows<float>(op, begin, end, means);
}

// Weights of the edges between one node and some others, which are the sources if `to_row`.
HWY_INLINE void weights_of(const GatBwd& op, const Neighbours& list, int64_t from, int64_t edges, int64_t h,
                           bool to_row, float* p, float* slopes) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t heads = op.left.dim(1);
  const float *left = op.left.as<float>() + h, *right = op.right.as<float>() + h;
  HWY_ALIGN float sums[kChunk];
  for (int64_t e = 0; e < edges; ++e) {
    const int64_t other = list[from + e], i = to_row ? list.row : other, j = to_row ? other : list.row;
    const float s = left[i * heads] + right[j * heads];
    slopes[e] = s > 0 ? 1 : op.slope;
    p[e] = leaky_relu(s, op.slope) - op.top.as<float>()[i * heads + h];
    sums[e] = op.sum.as<float>()[i * heads + h];
  }
  for (int64_t e = edges; e < (edges + lanes - 1) / lanes * lanes; ++e) p[e] = 0, sums[e] = 1;
  for (int64_t e = 0; e < edges; e += lanes)
    hn::Store(hn::Div(exp_or_nan(d, hn::Load(d, p + e)), hn::Load(d, sums + e)), d, p + e);
}

// dleft of rows.
template <class X>
void left_rows(const GatBwd& op, int64_t begin, int64_t end, const float* means) {
  const int64_t heads = op.left.dim(1), part = op.y.dim(1) / heads;
  HWY_ALIGN float p[kChunk], slopes[kChunk], factors[kChunk];
  std::fill(factors, factors + kChunk, 1.0f);
  for (int64_t i = begin; i < end; ++i) {
    const Neighbours list(op.rowptr, op.col, i, op.loops);
    for (int64_t h = 0; h < heads; ++h) {
      float sum = 0;
      for (int64_t from = 0; from < list.count; from += kChunk) {
        const int64_t edges = HWY_MIN(kChunk, list.count - from);
        weights_of(op, list, from, edges, h, true, p, slopes);
        draw_factors(op.drop, list, nullptr, from, edges, heads, h, factors);
        for (int64_t e = 0; e < edges; ++e) {
          const X* x = op.x.as<X>(list[from + e]) + h * part;
          const float g = factors[e] * dot_and_add(op.dy.as<float>(i) + h * part, x, part, 0, nullptr);
          sum += p[e] * (g - means[i * heads + h]) * slopes[e];
        }
      }
      op.dleft.as<float>(i)[h] = sum;
    }
  }
}
void left_range(const GatBwd& op, int64_t begin, int64_t end, const float* means) {
  op.x.dtype == DType::bf16 ? left_rows<Bf16>(op, begin, end, means) : left_rows<float>(op, begin, end, means);
}

// dright and dx of sources. Sources beyond the rows have no loop.
template <class X>
void source_rows(const GatBwd& op, int64_t begin, int64_t end, const float* means) {
  const int64_t heads = op.left.dim(1), part = op.y.dim(1) / heads;
  const int32_t* order = op.order ? op.order.as<int32_t>() : nullptr;
  HWY_ALIGN float p[kChunk], slopes[kChunk], factors[kChunk];
  std::fill(factors, factors + kChunk, 1.0f);
  for (int64_t j = begin; j < end; ++j) {
    const Neighbours list(op.out_rowptr, op.out_col, j, op.loops && j < op.y.dim(0));
    float* dx = op.dx.as<float>(j);
    std::fill(dx, dx + op.dx.dim(1), 0.0f);
    for (int64_t h = 0; h < heads; ++h) {
      const X* x = op.x.as<X>(j) + h * part;
      float sum = 0;
      for (int64_t from = 0; from < list.count; from += kChunk) {
        const int64_t edges = HWY_MIN(kChunk, list.count - from);
        weights_of(op, list, from, edges, h, false, p, slopes);
        draw_factors(op.drop, list, order, from, edges, heads, h, factors);
        for (int64_t e = 0; e < edges; ++e) {
          const int64_t i = list[from + e];
          const float g =
              factors[e] * dot_and_add(op.dy.as<float>(i) + h * part, x, part, p[e] * factors[e], dx + h * part);
          sum += p[e] * (g - means[i * heads + h]) * slopes[e];
        }
      }
      op.dright.as<float>(j)[h] = sum;
    }
  }
}
void source_range(const GatBwd& op, int64_t begin, int64_t end, const float* means) {
  op.x.dtype == DType::bf16 ? source_rows<Bf16>(op, begin, end, means) : source_rows<float>(op, begin, end, means);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(attend_range);
HWY_EXPORT(mean_range);
HWY_EXPORT(left_range);
HWY_EXPORT(source_range);

void gat_fwd_online(Ctx& ctx, const GatFwd& op, std::span<std::byte>) {
  check_gat(op);
  for_each_row_range(ctx.threads, op.rowptr.as<int64_t>(), op.y.dim(0), op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(attend_range)(op, begin, end);
  });
}

int64_t gat_bwd_workspace(const GatBwd& op, int) { return op.left.count() * static_cast<int64_t>(sizeof(float)); }

void gat_bwd_recompute(Ctx& ctx, const GatBwd& op, std::span<std::byte> workspace) {
  check_gat(op);
  auto* means = reinterpret_cast<float*>(workspace.data());
  const int64_t *rowptr = op.rowptr.as<int64_t>(), rows = op.y.dim(0);
  for_each_row_range(ctx.threads, rowptr, rows, op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(mean_range)(op, begin, end, means);
  });
  for_each_row_range(ctx.threads, rowptr, rows, op.flops(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(left_range)(op, begin, end, means);
  });
  for_each_row_range(ctx.threads, op.out_rowptr.as<int64_t>(), op.x.dim(0), op.flops(),
                     [&](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(source_range)
                       (op, begin, end, means);
                     });
}

}  // namespace braid
#endif
