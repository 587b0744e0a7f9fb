#include "kernels/conv1d/conv1d.h"

#include <algorithm>

#include "core/ref.h"
#include "kernels/conv1d/conv1d_ref.h"
#include "kernels/conv1d/conv1d_rows.h"

namespace braid {
namespace {

template <class Op>
void check_rows(const Op& op) {
  const int64_t tokens = op.x.dim(0);
  CHECK(op.seqs, "{}: no sequences", Op::name);
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.start >= 0 && seq.len >= 0 && seq.start + seq.len <= tokens, "{}: rows {}+{} of {}", Op::name, seq.start,
          seq.len, tokens);
  }
}

void check_sequences(const Conv1dFwd& op) {
  check_rows(op);
  if (!op.state) return;
  const int64_t slots = op.state.dim(0), kept = op.state.dim(1), width = op.w.dim(1);
  CHECK(kept == width - 1, "conv1d: the state keeps {} inputs; expected {}", kept, width - 1);
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.slot >= 0 && seq.slot < slots && op.seqs->trail_fits(seq, slots), "conv1d: slot {} of {}, trail {}",
          seq.slot, slots, seq.trail);
  }
}

void fwd_ref(Ctx&, const Conv1dFwd& op, std::span<std::byte>) {
  check_sequences(op);
  const int64_t channels = op.x.dim(1), width = op.w.dim(1);
  const std::vector<double> x = to_doubles(op.x), w = to_doubles(op.w), bias = to_doubles(op.bias);
  std::vector<double> state = to_doubles(op.state), y = to_doubles(op.y);
  const auto kept = static_cast<size_t>((width - 1) * channels);
  std::vector<double> nothing(kept);
  const auto state_at = [&](int64_t slot) {
    return op.state ? std::span(state).subspan(static_cast<size_t>(slot) * kept, kept) : std::span(nothing);
  };
  for (const Seq& seq : op.seqs->seqs) {
    nothing.assign(kept, 0);
    const int64_t piece = seq.trail < 0 ? std::max<int64_t>(seq.len, 1) : 1;  // tokens from one state to the next
    for (int64_t t = 0; t < seq.len; t += piece) {
      const auto first = static_cast<size_t>((seq.start + t) * channels), count = static_cast<size_t>(piece * channels);
      const auto from = state_at(op.seqs->slot_before(seq, t)), to = state_at(op.seqs->slot_after(seq, t));
      if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
      conv1d_ref<double>(piece, channels, width, op.silu, std::span(x).subspan(first, count), w, bias, to,
                         std::span(y).subspan(first, count));
    }
  }
  store(op.state, state);
  store(op.y, y);
}

void bwd_ref(Ctx&, const Conv1dBwd& op, std::span<std::byte>) {
  check_rows(op);
  const int64_t channels = op.x.dim(1), width = op.w.dim(1);
  const std::vector<double> dy = to_doubles(op.dy), x = to_doubles(op.x), w = to_doubles(op.w),
                            bias = to_doubles(op.bias);
  std::vector<double> dx = to_doubles(op.dx);
  for (const Seq& seq : op.seqs->seqs) {
    const auto first = static_cast<size_t>(seq.start * channels), count = static_cast<size_t>(seq.len * channels);
    std::vector<double> dw(w.size()), dbias(static_cast<size_t>(channels));
    conv1d_bwd_ref(seq.len, channels, width, op.silu, std::span(dy).subspan(first, count),
                   std::span(x).subspan(first, count), w, bias, std::span(dx).subspan(first, count), dw, dbias);
    accumulate(op.dw, dw);
    accumulate(op.dbias, dbias);
  }
  store(op.dx, dx);
}

void fwd_hwy(Ctx& ctx, const Conv1dFwd& op, std::span<std::byte> workspace) {
  check_sequences(op);
  conv1d_fwd_hwy(ctx, op, workspace);
}

void bwd_hwy(Ctx& ctx, const Conv1dBwd& op, std::span<std::byte> workspace) {
  check_rows(op);
  conv1d_bwd_hwy(ctx, op, workspace);
}

const char* bwd_hwy_supports(const Conv1dBwd& op) {
  for (const View& v : {op.w, op.bias, View(op.dx), View(op.dw), View(op.dbias)}) {
    if (v.dtype != DType::f32) return "parameters or gradients are not F32";
  }
  for (const View& v : {op.x, op.dy}) {
    if (v.dtype != DType::f32 && v.dtype != DType::bf16) return "x or dy is neither F32 nor BF16";
  }
  for (const View& v : {op.x, op.dy, op.w, op.bias, View(op.dx), View(op.dw), View(op.dbias)}) {
    if (!v.rows_contiguous()) return "strided rows";
  }
  return op.w.dim(1) <= kConv1dWidthMax ? nullptr : "more than 8 taps";
}

const char* hwy_supports(const Conv1dFwd& op) {
  if (op.w.dtype != DType::f32 || op.state.dtype != DType::f32) return "not F32";
  for (const View& v : {op.x, View(op.y)}) {
    if (v.dtype != DType::f32 && v.dtype != DType::bf16) return "x or y is neither F32 nor BF16";
  }
  if (op.bias && (op.bias.dtype != DType::f32 || !op.bias.contiguous())) return "bias is not a row of F32";
  for (const View& v : {op.x, op.w, View(op.state), View(op.y)}) {
    if (!v.rows_contiguous()) return "strided rows";
  }
  return op.w.dim(1) <= kConv1dWidthMax ? nullptr : "more than 8 taps";
}

}  // namespace

std::span<const Row<Conv1dFwd>> Conv1dFwd::rows() {
  static constexpr Row<Conv1dFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<Conv1dBwd>> Conv1dBwd::rows() {
  static constexpr Row<Conv1dBwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &bwd_hwy_supports, .run = &bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
