// The causal convolution with Highway. A task is a panel of channels over all tokens: a row of the panel is a stretch
// of memory, its W predecessors are in the L1 cache, and the state of a panel has one writer. Bound by reading x and
// writing y once the panel's taps are transposed.
#include <cstring>

#include "kernels/conv1d/conv1d_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv1d/conv1d_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include "math/act-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;

// The data of a panel besides x: about 44 KB of stack.
struct Panel {
  int64_t first, size, width;
  bool silu;
  HWY_ALIGN float bias[kConv1dPanel];
  HWY_ALIGN float taps[kConv1dWidthMax * kConv1dPanel];              // [W, panel]
  HWY_ALIGN float window[2 * (kConv1dWidthMax - 1) * kConv1dPanel];  // the state, then the first W-1 inputs
};

void load_taps(const Conv1dFwd& op, Panel& panel) {
  for (int64_t c = 0; c < panel.size; ++c) {
    const float* w = op.w.as<float>(panel.first + c);
    for (int64_t j = 0; j < panel.width; ++j) panel.taps[j * kConv1dPanel + c] = w[j];
    panel.bias[c] = op.bias ? op.bias.as<float>()[panel.first + c] : 0.0f;
  }
}

template <class X>
void copy_row(const X* from, float* to, int64_t size) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) store(load(d, from + i), d, to + i);
  if (i < size) store_n(load_n(d, from + i, size - i), d, to + i, size - i);
}

// y of one token from the W rows that end with it.
template <class X, class Y>
void convolve(const Panel& panel, const X* const* rows, Y* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < panel.size; i += lanes) {
    const int64_t n = HWY_MIN(lanes, panel.size - i);
    FloatVec sum = load(d, panel.bias + i);
    for (int64_t j = 0; j < panel.width; ++j) {
      const FloatVec x = n == lanes ? load(d, rows[j] + i) : load_n(d, rows[j] + i, n);
      sum = hn::MulAdd(load(d, panel.taps + j * kConv1dPanel + i), x, sum);
    }
    if (panel.silu) sum = sigmoid_times(d, sum, sum);
    if (n == lanes) {
      store(sum, d, y + i);
    } else {
      store_n(sum, d, y + i, n);
    }
  }
}

template <class X, class Y>
void convolve_sequence(const Conv1dFwd& op, const Seq& seq, Panel& panel) {
  const int64_t kept = panel.width - 1, fresh = HWY_MIN(seq.len, kept);
  const auto x = [&](int64_t t) { return op.x.as<X>(seq.start + t) + panel.first; };
  const auto state = [&](int64_t slot, int64_t i) {
    return op.state.as<float>(slot) + i * op.state.stride(1) + panel.first;
  };
  const auto window = [&](int64_t i) { return panel.window + i * kConv1dPanel; };
  if (op.state) {
    for (int64_t i = 0; i < kept; ++i) copy_row(state(seq.slot, i), window(i), panel.size);
  } else {
    std::memset(panel.window, 0, static_cast<size_t>(kept * kConv1dPanel) * sizeof(float));
  }
  for (int64_t t = 0; t < fresh; ++t) copy_row(x(t), window(kept + t), panel.size);
  for (int64_t t = 0; t < seq.len; ++t) {
    Y* y = op.y.as<Y>(seq.start + t) + panel.first;
    if (t < fresh) {
      const float* rows[kConv1dWidthMax];
      for (int64_t j = 0; j < panel.width; ++j) rows[j] = window(t + j);
      convolve(panel, rows, y);
    } else {
      if (t + kConv1dAhead < seq.len) conv1d_prefetch(x(t + kConv1dAhead), panel.size);
      const X* rows[kConv1dWidthMax];
      for (int64_t j = 0; j < panel.width; ++j) rows[j] = x(t - kept + j);
      convolve(panel, rows, y);
    }
  }
  // The last W-1 inputs after `read` tokens.
  const auto keep = [&](int64_t read, int64_t slot) {
    for (int64_t i = 0; i < kept; ++i) {
      if (read + i < kept + fresh) {
        copy_row(window(read + i), state(slot, i), panel.size);
      } else {
        copy_row(x(read + i - kept), state(slot, i), panel.size);
      }
    }
  };
  if (!op.state) return;
  if (seq.trail < 0) return keep(seq.len, seq.slot);
  for (int64_t t = 0; t < seq.len; ++t) keep(t + 1, op.seqs->slot_after(seq, t));
}

template <class X>
void convolve_x(const Conv1dFwd& op, const Seq& seq, Panel& panel) {
  op.y.dtype == DType::bf16 ? convolve_sequence<X, Bf16>(op, seq, panel) : convolve_sequence<X, float>(op, seq, panel);
}

void convolve_panel(const Conv1dFwd& op, int64_t first, int64_t size) {
  Panel panel;
  panel.first = first;
  panel.size = size;
  panel.width = op.w.dim(1);
  panel.silu = op.silu;
  load_taps(op, panel);
  for (const Seq& seq : op.seqs->seqs) {
    op.x.dtype == DType::bf16 ? convolve_x<Bf16>(op, seq, panel) : convolve_x<float>(op, seq, panel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

namespace braid {

HWY_EXPORT(convolve_panel);

void conv1d_fwd_hwy(Ctx& ctx, const Conv1dFwd& op, std::span<std::byte>) {
  // Four panels per thread balance the load; 64 channels are four of the widest vectors.
  const int64_t channels = op.x.dim(1), share = (channels / (4 * ctx.threads) + 63) / 64 * 64;
  const int64_t size = std::clamp<int64_t>(share, 64, kConv1dPanel);
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), (channels + size - 1) / size, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(convolve_panel)(op, i * size, std::min(size, channels - i * size));
  });
}

}  // namespace braid
#endif
