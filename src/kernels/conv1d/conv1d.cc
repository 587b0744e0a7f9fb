#include "kernels/conv1d/conv1d.h"

#include "core/ref.h"
#include "kernels/conv1d/conv1d_ref.h"
#include "kernels/conv1d/conv1d_rows.h"

namespace braid {
namespace {

void check_sequences(const Conv1dFwd& op) {
  const int64_t tokens = op.x.dim(0), slots = op.state.dim(0), kept = op.state.dim(1), width = op.w.dim(1);
  CHECK(kept == width - 1, "conv1d: the state keeps {} inputs; expected {}", kept, width - 1);
  CHECK(op.seqs, "conv1d: no sequences");
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.start >= 0 && seq.len >= 0 && seq.start + seq.len <= tokens, "conv1d: rows {}+{} of {}", seq.start,
          seq.len, tokens);
    CHECK(seq.slot >= 0 && seq.slot < slots, "conv1d: slot {} of {}", seq.slot, slots);
  }
}

void fwd_ref(Ctx&, const Conv1dFwd& op, std::span<std::byte>) {
  check_sequences(op);
  const int64_t channels = op.x.dim(1), width = op.w.dim(1);
  const std::vector<double> x = to_doubles(op.x), w = to_doubles(op.w), bias = to_doubles(op.bias);
  std::vector<double> state = to_doubles(op.state), y = to_doubles(op.y);
  for (const Seq& seq : op.seqs->seqs) {
    const auto first = static_cast<size_t>(seq.start * channels), count = static_cast<size_t>(seq.len * channels),
               kept = static_cast<size_t>((width - 1) * channels);
    conv1d_ref<double>(seq.len, channels, width, op.silu, std::span(x).subspan(first, count), w, bias,
                       std::span(state).subspan(static_cast<size_t>(seq.slot) * kept, kept),
                       std::span(y).subspan(first, count));
  }
  store(op.state, state);
  store(op.y, y);
}

void fwd_hwy(Ctx& ctx, const Conv1dFwd& op, std::span<std::byte> workspace) {
  check_sequences(op);
  conv1d_fwd_hwy(ctx, op, workspace);
}

const char* hwy_supports(const Conv1dFwd& op) {
  if (op.w.dtype != DType::f32 || op.state.dtype != DType::f32 || op.y.dtype != DType::f32) return "not F32";
  if (op.x.dtype != DType::f32 && op.x.dtype != DType::bf16) return "x is neither F32 nor BF16";
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

}  // namespace braid
