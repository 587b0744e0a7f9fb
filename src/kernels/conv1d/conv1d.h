// Causal depthwise convolution over time with SiLU, for prefill and step alike (docs/internals/layers.md, Mamba-2):
//   a[t,c] = bias[c] + sum_{j<W} w[c,j] * x[t-(W-1)+j, c]     x before the call comes from the state
//   y[t,c] = a * sigmoid(a)                                   or a, when silu is off
// The state holds the last W-1 inputs of a sequence before convolution and activation, oldest first. It is always read:
// the caller zeroes it for a new sequence; without one, zeros precede every sequence and nothing is kept. A step with a
// trail (SeqMap::trails) leaves it unchanged and writes the state after each token to the slots of the trail. All
// arithmetic in FP32 and in one order: the same bits however a sequence is cut into calls. y must not overlap x.
// Backward is for sequences that start from zeros; it recomputes a. dw and dbias accumulate, sequence after sequence,
// so that two calls with some sequences each give the bits of one with all; dx overwrites.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

struct Conv1dFwd {
  View x{};         // [T, C] F32 or BF16
  View w{};         // [C, W] F32
  View bias{};      // [C] F32; may be empty
  MutView state{};  // [S, W-1, C] F32, by Seq.slot: what precedes the call, then what precedes the next; may be empty
  MutView y{};      // [T, C] F32 or BF16
  const SeqMap* seqs = nullptr;
  bool silu = true;
  static constexpr const char* name = "conv1d_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &Conv1dFwd::x, "T C"), in("w", &Conv1dFwd::w, "C W"),
                      maybe("bias", &Conv1dFwd::bias, "C"), maybe_inout("state", &Conv1dFwd::state, "S W-1 C"),
                      out("y", &Conv1dFwd::y, "T C")};
  }
  double flops() const { return static_cast<double>(x.count()) * static_cast<double>(2 * w.dim(1) + (silu ? 4 : 0)); }
  static std::span<const Row<Conv1dFwd>> rows();
};

struct Conv1dBwd {
  View dy{};        // [T, C] F32 or BF16; any stride between tokens
  View x{};         // [T, C] F32 or BF16; any stride between tokens
  View w{};         // [C, W] F32
  View bias{};      // [C] F32; may be empty
  MutView dx{};     // [T, C] F32; any stride between tokens
  MutView dw{};     // [C, W] F32, accumulates
  MutView dbias{};  // [C] F32, accumulates; may be empty
  const SeqMap* seqs = nullptr;
  bool silu = true;
  static constexpr const char* name = "conv1d_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &Conv1dBwd::dy, "T C"),
                      in("x", &Conv1dBwd::x, "T C"),
                      in("w", &Conv1dBwd::w, "C W"),
                      maybe("bias", &Conv1dBwd::bias, "C"),
                      out("dx", &Conv1dBwd::dx, "T C"),
                      inout("dw", &Conv1dBwd::dw, "C W"),
                      maybe_inout("dbias", &Conv1dBwd::dbias, "C")};
  }
  double flops() const { return static_cast<double>(x.count()) * static_cast<double>(6 * w.dim(1) + (silu ? 8 : 0)); }
  static std::span<const Row<Conv1dBwd>> rows();
};

}  // namespace braid
