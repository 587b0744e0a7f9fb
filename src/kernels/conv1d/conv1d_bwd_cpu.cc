// The gradients of the causal convolution with Highway, in one pass over x and dy. A task is a panel of channels over
// all tokens, as forward. Token t adds da_t to a ring of W rows, its share to dw, and completes dx of token t-(W-1):
//   dx[t-(W-1)] = sum_j w[c,j] da[t-j]
// dw is summed over blocks of tokens that start with the sequence.
#include <cstring>

#include "kernels/conv1d/conv1d_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv1d/conv1d_bwd_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

constexpr int64_t kBlock = 64;  // tokens whose share of dw is summed separately

// Rows of a panel, in whole vectors: 35 KB of stack, of which four taps touch 19.
using PanelRow = float[kConv1dBwdPanel];
struct BwdPanel {
  int64_t first, size, width;
  bool silu;
  HWY_ALIGN PanelRow bias;
  HWY_ALIGN PanelRow taps[kConv1dWidthMax];
  HWY_ALIGN PanelRow da[kConv1dWidthMax];  // of token t in row t % W
  HWY_ALIGN PanelRow dw[kConv1dWidthMax];  // of a block
  HWY_ALIGN PanelRow dbias;                // of a block
  HWY_ALIGN PanelRow dw_sum[kConv1dWidthMax];
  HWY_ALIGN PanelRow dbias_sum;
};

void load_parameters(const Conv1dBwd& op, BwdPanel& panel) {
  std::memset(panel.bias, 0, sizeof(panel.bias));
  std::memset(panel.taps, 0, sizeof(panel.taps));
  for (int64_t c = 0; c < panel.size; ++c) {
    const float* w = op.w.as<float>(panel.first + c);
    const float* dw = op.dw.as<float>(panel.first + c);
    for (int64_t j = 0; j < panel.width; ++j) {
      panel.taps[j][c] = w[j];
      panel.dw_sum[j][c] = dw[j];
    }
    if (op.bias) panel.bias[c] = op.bias.as<float>()[panel.first + c];
    if (op.dbias) panel.dbias_sum[c] = op.dbias.as<float>()[panel.first + c];
  }
}

void store_gradients(const Conv1dBwd& op, const BwdPanel& panel) {
  for (int64_t c = 0; c < panel.size; ++c) {
    float* dw = op.dw.as<float>(panel.first + c);
    for (int64_t j = 0; j < panel.width; ++j) dw[j] = panel.dw_sum[j][c];
    if (op.dbias) op.dbias.as<float>()[panel.first + c] = panel.dbias_sum[c];
  }
}

// d silu(a) / da
HWY_INLINE FloatVec silu_slope(FloatTag d, FloatVec a) {
  const FloatVec one = hn::Set(d, 1.0f), s = sigmoid_times(d, a, one);
  return hn::Mul(s, hn::MulAdd(a, hn::Sub(one, s), one));
}

// da of one token from dy and the W rows of x that end with it, and its share of dw and dbias. kWidth is W if that is
// known: its vectors then stay in registers.
template <int kWidth, class X, class G>
void add_token(BwdPanel& panel, const X* const* rows, const G* dy, float* da) {
  const FloatTag d;
  const int64_t width = kWidth ? kWidth : panel.width;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < panel.size; i += lanes) {
    const int64_t n = HWY_MIN(lanes, panel.size - i);
    FloatVec x[kConv1dWidthMax], sum = load(d, panel.bias + i);
    for (int64_t j = 0; j < width; ++j) {
      x[j] = n == lanes ? load(d, rows[j] + i) : load_n(d, rows[j] + i, n);
      sum = hn::MulAdd(load(d, panel.taps[j] + i), x[j], sum);
    }
    FloatVec grad = n == lanes ? load(d, dy + i) : load_n(d, dy + i, n);
    if (panel.silu) grad = hn::Mul(grad, silu_slope(d, sum));
    store(grad, d, da + i);
    store(hn::Add(grad, load(d, panel.dbias + i)), d, panel.dbias + i);
    for (int64_t j = 0; j < width; ++j) store(hn::MulAdd(grad, x[j], load(d, panel.dw[j] + i)), d, panel.dw[j] + i);
  }
}

// dx of the token W-1 before `last`, whose da and those before it are in the ring.
template <int kWidth>
void finish_token(const BwdPanel& panel, int64_t last, float* dx) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kWidth ? kWidth : panel.width;
  const float* da[kConv1dWidthMax];
  for (int64_t j = 0; j < width; ++j) da[j] = panel.da[(last - j) % width];
  for (int64_t i = 0; i < panel.size; i += lanes) {
    FloatVec sum = hn::Zero(d);
    for (int64_t j = 0; j < width; ++j) sum = hn::MulAdd(load(d, panel.taps[j] + i), load(d, da[j] + i), sum);
    i + lanes <= panel.size ? store(sum, d, dx + i) : store_n(sum, d, dx + i, panel.size - i);
  }
}

void add_block(BwdPanel& panel) {
  for (int64_t i = 0; i < panel.size; ++i) {
    panel.dbias_sum[i] += panel.dbias[i];
    for (int64_t j = 0; j < panel.width; ++j) panel.dw_sum[j][i] += panel.dw[j][i];
  }
}

template <int kWidth, class X, class G>
void differentiate_sequence(const Conv1dBwd& op, const Seq& seq, BwdPanel& panel) {
  static constexpr X kNothing[kConv1dBwdPanel] = {};
  const int64_t before = panel.width - 1;
  for (int64_t t = 0; t < seq.len + before; ++t) {
    float* da = panel.da[t % panel.width];
    if (t < seq.len) {
      if (t % kBlock == 0) {
        std::memset(panel.dw, 0, sizeof(panel.dw));
        std::memset(panel.dbias, 0, sizeof(panel.dbias));
      }
      if (t + kConv1dAhead < seq.len) {
        conv1d_prefetch(op.x.as<X>(seq.start + t + kConv1dAhead) + panel.first, panel.size);
        conv1d_prefetch(op.dy.as<G>(seq.start + t + kConv1dAhead) + panel.first, panel.size);
      }
      const X* rows[kConv1dWidthMax];
      for (int64_t j = 0; j < panel.width; ++j) {
        const int64_t at = t - before + j;
        rows[j] = at < 0 ? kNothing : op.x.as<X>(seq.start + at) + panel.first;
      }
      add_token<kWidth>(panel, rows, op.dy.as<G>(seq.start + t) + panel.first, da);
      if (t % kBlock == kBlock - 1 || t == seq.len - 1) add_block(panel);
    } else {
      std::memset(da, 0, sizeof(PanelRow));
    }
    if (t >= before && seq.len > 0)
      finish_token<kWidth>(panel, t, op.dx.as<float>(seq.start + t - before) + panel.first);
  }
}

template <int kWidth, class X>
void differentiate_x(const Conv1dBwd& op, const Seq& seq, BwdPanel& panel) {
  op.dy.dtype == DType::bf16 ? differentiate_sequence<kWidth, X, Bf16>(op, seq, panel)
                             : differentiate_sequence<kWidth, X, float>(op, seq, panel);
}
template <int kWidth>
void differentiate_width(const Conv1dBwd& op, const Seq& seq, BwdPanel& panel) {
  op.x.dtype == DType::bf16 ? differentiate_x<kWidth, Bf16>(op, seq, panel)
                            : differentiate_x<kWidth, float>(op, seq, panel);
}

void differentiate_panel(const Conv1dBwd& op, int64_t first, int64_t size) {
  BwdPanel panel;
  panel.first = first;
  panel.size = size;
  panel.width = op.w.dim(1);
  panel.silu = op.silu;
  load_parameters(op, panel);
  for (const Seq& seq : op.seqs->seqs)
    panel.width == 4 ? differentiate_width<4>(op, seq, panel) : differentiate_width<0>(op, seq, panel);
  store_gradients(op, panel);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

namespace braid {

HWY_EXPORT(differentiate_panel);

void conv1d_bwd_hwy(Ctx& ctx, const Conv1dBwd& op, std::span<std::byte>) {
  const int64_t channels = op.x.dim(1), share = (channels / (4 * ctx.threads) + 63) / 64 * 64;
  const int64_t size = std::clamp<int64_t>(share, 64, kConv1dBwdPanel);
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), (channels + size - 1) / size, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(differentiate_panel)(op, i * size, std::min(size, channels - i * size));
  });
}

}  // namespace braid
#endif
