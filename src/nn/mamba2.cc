#include "nn/mamba2.h"

#include <cstring>
#include <limits>
#include <utility>

#include "kernels/conv1d/conv1d.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/ssd/ssd.h"

namespace braid::nn {
namespace {

// Copies rows of F32 numbers between views whose rows may lie apart.
void copy_rows(const View& from, const MutView& to) {
  for (int64_t t = 0; t < from.dim(0); ++t)
    std::memcpy(to.as<float>(t), from.as<float>(t), static_cast<size_t>(from.dim(1)) * sizeof(float));
}

}  // namespace

Mamba2::Mamba2(const Mamba2Spec& spec, Mamba2Params params) : spec_(spec), params_(std::move(params)) {
  const int64_t inner = spec.inner(), bc = spec.groups * spec.state;
  params_.in_proj.segments = {{"z", 0, inner},
                              {"x", inner, inner},
                              {"b", 2 * inner, bc},
                              {"c", 2 * inner + bc, bc},
                              {"dt", 2 * inner + 2 * bc, spec.heads}};
  params_.conv.segments = {{"x", 0, inner}, {"b", inner, bc}, {"c", inner + bc, bc}};
}

StateShape Mamba2::state_shape() const {
  return {.conv_columns = spec_.conv_width - 1,
          .conv_channels = spec_.conv_channels(),
          .heads = spec_.heads,
          .head_dim = spec_.head_dim,
          .state = spec_.state,
          .chunk = spec_.chunk};
}

Tensor Mamba2::forward(Run& run, const Tensor& x) {
  Ctx& ctx = run.ctx;
  const int64_t tokens = x.dim(0), inner = spec_.inner(), channels = spec_.conv_channels();
  const Tensor u = linear(ctx, x, params_.in_proj, DType::f32, params_.in_bias.value ? &params_.in_bias : nullptr);
  const View z = u.view().slice(1, 0, inner), raw = u.view().slice(1, inner, channels),
             dt = u.view().slice(1, inner + channels, spec_.heads);
  const BlockState& state = run.state.blocks[static_cast<size_t>(state_index)];

  const Tensor conv(ctx.arena, DType::f32, {tokens, channels});
  const View conv_bias = params_.conv_bias.value ? vector_of(params_.conv_bias) : View();
  braid::run(ctx, Conv1dFwd{.x = raw,
                            .w = params_.conv.value.codes,
                            .bias = conv_bias,
                            .state = state.conv,
                            .y = conv.mut(),
                            .seqs = &run.seqs});

  const Tensor y(ctx.arena, DType::f32, {tokens, inner});
  if (ctx.exact) {
    scan_exact(run, conv.view(), dt, y.mut());
  } else {
    scan(run, conv.view(), dt, y.mut(), run.seqs, state.ssm, run.phase == Phase::step);
  }
  const Tensor o(ctx.arena, run.act, {tokens, inner});
  braid::run(
      ctx,
      RmsNormFwd{
          .x = y.view(), .w = vector_of(params_.norm), .z = z, .y = o.mut(), .groups = spec_.groups, .eps = spec_.eps});
  return linear(ctx, o, params_.out_proj, DType::f32, params_.out_bias.value ? &params_.out_bias : nullptr);
}

void Mamba2::scan(Run& run, const View& conv, const View& dt, const MutView& y, const SeqMap& seqs,
                  const MutView& state, bool step) {
  const int64_t inner = spec_.inner(), bc = spec_.groups * spec_.state;
  const View x = conv.slice(1, 0, inner).split_last(spec_.heads, spec_.head_dim);
  const View b = conv.slice(1, inner, bc).split_last(spec_.groups, spec_.state);
  const View c = conv.slice(1, inner + bc, bc).split_last(spec_.groups, spec_.state);
  const MutView out = y.split_last(spec_.heads, spec_.head_dim);
  const float dt_max = spec_.dt_max > 0 ? spec_.dt_max : std::numeric_limits<float>::infinity();
  const SsdFwd op{.x = x,
                  .b = b,
                  .c = c,
                  .dt = dt,
                  .dt_bias = vector_of(params_.dt_bias),
                  .a_log = vector_of(params_.a_log),
                  .d_skip = vector_of(params_.d_skip),
                  .state = state,
                  .y = out,
                  .seqs = &seqs,
                  .chunk = spec_.chunk,
                  .dt_min = spec_.dt_min,
                  .dt_max = dt_max};
  if (step) {
    braid::run(run.ctx, SsdStep{.x = op.x,
                                .b = op.b,
                                .c = op.c,
                                .dt = op.dt,
                                .dt_bias = op.dt_bias,
                                .a_log = op.a_log,
                                .d_skip = op.d_skip,
                                .state = op.state,
                                .y = op.y,
                                .seqs = op.seqs,
                                .dt_min = op.dt_min,
                                .dt_max = op.dt_max});
  } else {
    braid::run(run.ctx, op);
  }
}

// Every token is a row of the chunk form, whatever pass computes it: the inputs of an unfinished chunk are kept, and
// each pass runs from the last chunk boundary. A row does not depend on the rows after it, so one token at a time gives
// the bits of a whole prefill.
void Mamba2::scan_exact(Run& run, const View& conv, const View& dt, const MutView& y) {
  const BlockState& state = run.state.blocks[static_cast<size_t>(state_index)];
  const int64_t channels = spec_.conv_channels(), width = channels + spec_.heads, chunk = spec_.chunk;
  for (const Seq& s : run.seqs.seqs) {
    const int64_t kept = s.pos0 % chunk, rows = kept + s.len, whole = rows / chunk * chunk;
    const Tensor inputs(run.ctx.arena, DType::f32, {rows, width}),
        out(run.ctx.arena, DType::f32, {rows, spec_.inner()});
    const MutView ring(state.chunk_inputs.slice(0, s.slot, 1).data, DType::f32, {chunk, width});
    copy_rows(ring.slice(0, 0, kept), inputs.mut());
    copy_rows(conv.slice(0, s.start, s.len), inputs.mut().slice(0, kept, s.len));
    copy_rows(dt.slice(0, s.start, s.len), inputs.mut().slice(0, kept, s.len).slice(1, channels, spec_.heads));

    const auto part = [&](int64_t begin, int64_t n, const MutView& from) {
      if (n == 0) return;
      const View in = inputs.view().slice(0, begin, n);
      scan(run, in.slice(1, 0, channels), in.slice(1, channels, spec_.heads), out.mut().slice(0, begin, n),
           SeqMap::one(n, s.pos0 - kept + begin, s.slot), from, false);
    };
    part(0, whole, state.chunk_ssm);
    const MutView boundary = state.chunk_ssm.slice(0, s.slot, 1), now = state.ssm.slice(0, s.slot, 1);
    std::memcpy(now.data, boundary.data, static_cast<size_t>(boundary.bytes()));
    part(whole, rows - whole, state.ssm);
    copy_rows(inputs.view().slice(0, whole, rows - whole), ring);
    copy_rows(out.view().slice(0, kept, s.len), y.slice(0, s.start, s.len));
  }
}

void Mamba2::params(std::vector<Param*>& out) {
  for (Param* p : {&params_.in_proj, &params_.conv, &params_.conv_bias, &params_.a_log, &params_.d_skip,
                   &params_.dt_bias, &params_.norm, &params_.out_proj, &params_.in_bias, &params_.out_bias}) {
    if (p->value) out.push_back(p);
  }
}

Mamba2Params load_mamba2(ParamSource& source, const std::string& prefix, const Mamba2Spec& spec) {
  constexpr const char* kHeads = "mamba_num_heads";
  constexpr const char* kConv = "mamba_num_heads * mamba_head_dim + 2 * n_groups * ssm_state_size, conv_kernel";
  constexpr const char* kIn =
      "2 * mamba_num_heads * mamba_head_dim + 2 * n_groups * ssm_state_size + mamba_num_heads, hidden_size";
  Mamba2Params p;
  p.in_proj = source.matrix(prefix + "in_proj.weight", spec.in_rows(), spec.hidden, kIn);
  p.conv = source.vector(prefix + "conv1d.weight", {spec.conv_channels(), 1, spec.conv_width}, kConv);
  if (spec.conv_bias) p.conv_bias = source.vector(prefix + "conv1d.bias", {spec.conv_channels()}, kConv);
  p.a_log = source.vector(prefix + "A_log", {spec.heads}, kHeads);
  p.d_skip = source.vector(prefix + "D", {spec.heads}, kHeads);
  p.dt_bias = source.vector(prefix + "dt_bias", {spec.heads}, kHeads);
  p.norm = source.vector(prefix + "norm.weight", {spec.inner()}, "mamba_num_heads * mamba_head_dim");
  p.out_proj = source.matrix(prefix + "out_proj.weight", spec.hidden, spec.inner(),
                             "hidden_size, mamba_num_heads * mamba_head_dim");
  if (spec.proj_bias) {
    p.in_bias = source.vector(prefix + "in_proj.bias", {spec.in_rows()}, kIn);
    p.out_bias = source.vector(prefix + "out_proj.bias", {spec.hidden}, "hidden_size");
  }
  return p;
}

}  // namespace braid::nn
