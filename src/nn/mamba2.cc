#include "nn/mamba2.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "comm/group.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/copy_state/copy_state.h"
#include "nn/context_parallel.h"
#include "nn/ops.h"

namespace braid::nn {
namespace {

SsdStep step_of(const SsdFwd& op) {
  return {.x = op.x,
          .b = op.b,
          .c = op.c,
          .dt = op.dt,
          .dt_bias = op.dt_bias,
          .a_log = op.a_log,
          .d_skip = op.d_skip,
          .state = op.state,
          .state_scales = op.state_scales,
          .y = op.y,
          .seqs = op.seqs,
          .noise = op.noise,
          .dt_min = op.dt_min,
          .dt_max = op.dt_max};
}

}  // namespace

Mamba2::Mamba2(const Mamba2Spec& spec, Mamba2Params params) : spec_(spec), params_(std::move(params)) {}

StateShape Mamba2::state_shape() const {
  return {.conv_columns = spec_.conv_width - 1,
          .conv_channels = spec_.conv_channels(),
          .heads = spec_.heads,
          .head_dim = spec_.head_dim,
          .state = spec_.state,
          .chunk = spec_.chunk};
}

Tensor Mamba2::forward(Run& run, const Tensor& x) {
  const int64_t inner = spec_.inner(), channels = spec_.conv_channels();
  const Tensor u =
      linear(run, x, params_.in_proj, run.numerics.activations, params_.in_bias.value ? &params_.in_bias : nullptr);
  const Tensor z = u.slice(1, 0, inner), raw = u.slice(1, inner, channels),
               dt = u.slice(1, inner + channels, spec_.heads);
  if (run.replays) record(run, raw, dt);
  const Heads heads = all_heads(run);
  const Tensor y = !run.context          ? scan(run, heads, convolve(run, heads, raw), dt)
                   : run.context->states ? scan_pieces(run, convolve_pieces(run, raw), dt)
                                         : mix_heads(run, u.slice(1, inner, channels + spec_.heads));
  const RmsNormOptions norm{.groups = spec_.groups, .eps = spec_.eps, .out = run.numerics.products};
  const Tensor o = spec_.norm.groups > 0 ? rms_norm_across(run, y, params_.norm, norm, spec_.norm, z)
                                         : rms_norm(run, y, params_.norm, norm, z);
  return linear(run, o, params_.out_proj, DType::f32, params_.out_bias.value ? &params_.out_bias : nullptr);
}

// With context parallelism: inputs [own, x | B | C | dt] -> y [own, inner], by way of all tokens of this rank's heads.
Tensor Mamba2::mix_heads(Run& run, const Tensor& inputs) {
  const int64_t inner = spec_.inner(), bc = spec_.groups * spec_.state, channels = spec_.conv_channels();
  const int ranks = run.context->ranks->size(), rank = run.context->ranks->rank();
  const Range own = units_of(spec_.heads, rank, ranks), groups = units_of(spec_.groups, rank, ranks);
  Heads heads{.spec = spec_, .head = own.begin, .group = groups.begin, .seqs = run.context->whole};
  heads.spec.heads = own.count;
  heads.spec.groups = groups.count;
  const Tensor all = tokens_to_heads(run, inputs,
                                     {{"x", 0, inner, spec_.heads},
                                      {"b", inner, bc, spec_.groups},
                                      {"c", inner + bc, bc, spec_.groups},
                                      {"dt", channels, spec_.heads, spec_.heads}});
  const int64_t width = heads.spec.conv_channels();
  const Tensor y = scan(run, heads, convolve(run, heads, all.slice(1, 0, width)), all.slice(1, width, own.count));
  return heads_to_tokens(run, y, {{"x", 0, inner, spec_.heads}});
}

void Mamba2::record(Run& run, const Tensor& raw, const Tensor& dt) {
  int64_t rows = 0;
  for (const Seq& s : run.seqs.seqs) rows += s.trail < 0 ? 0 : s.len;
  const Tensor inputs(run.ctx.arena, raw.dtype(), {rows, raw.dim(1)}),
      steps(run.ctx.arena, dt.dtype(), {rows, dt.dim(1)});
  rows = 0;
  for (const Seq& s : run.seqs.seqs) {
    if (s.trail < 0) continue;
    copy_rows(raw.view().slice(0, s.start, s.len), inputs.mut().slice(0, rows, s.len));
    copy_rows(dt.view().slice(0, s.start, s.len), steps.mut().slice(0, rows, s.len));
    rows += s.len;
  }
  run.replays->push_back([this, inputs, steps](Run& again, int64_t first) {
    const int64_t count = again.seqs.tokens();
    const Heads heads = all_heads(again);
    (void)scan(again, heads, convolve(again, heads, inputs.slice(0, first, count)), steps.slice(0, first, count));
  });
}

std::array<Mamba2::Channels, 3> Mamba2::channels_of(const Heads& heads) const {
  const Mamba2Spec& own = heads.spec;
  if (own.heads == spec_.heads) return {{{0, 0, spec_.conv_channels()}, {}, {}}};
  const int64_t bc = own.groups * own.state, group = heads.group * own.state;
  return {{{0, heads.head * own.head_dim, own.inner()},
           {own.inner(), spec_.inner() + group, bc},
           {own.inner() + bc, spec_.inner() + spec_.groups * own.state + group, bc}}};
}

Tensor Mamba2::convolve(Run& run, const Heads& heads, const Tensor& raw) {
  const Tensor y(run.ctx.arena, run.numerics.activations, raw.shape());
  taped(
      run.ctx, "conv1d",
      {.in = {raw},
       .out = {y},
       .saved = {raw},
       .cost = Cost::cheap,
       .trains = params_.conv.grad || params_.conv_bias.grad},
      [this, heads, raw = Ref(raw), y = Ref(y), state = run.block_state(state_index).conv](Ctx& c) {
        for (const Channels& part : channels_of(heads)) {
          if (part.count == 0) continue;
          braid::run(
              c, Conv1dFwd{.x = raw.view().slice(1, part.own, part.count),
                           .w = params_.conv.value.codes.slice(0, part.all, part.count),
                           .bias = params_.conv_bias.value ? vector_of(params_.conv_bias).slice(0, part.all, part.count)
                                                           : View(),
                           .state = state,
                           .y = y.mut().slice(1, part.own, part.count),
                           .seqs = heads.seqs});
        }
      },
      [this, heads, raw = Ref(raw), y = Ref(y)](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, raw);
        for (const Channels& part : channels_of(heads)) {
          if (part.count > 0) convolve_backward(c, heads, part, tape.grad(y).view(), raw.view(), dx.mut());
        }
        tape.add_grad(c, raw, dx);
      });
  return y;
}

void Mamba2::convolve_backward(Ctx& c, const Heads& heads, const Channels& part, const View& dy, const View& x,
                               const MutView& dx) {
  Tensor spare, spare_bias;
  const bool bias = static_cast<bool>(params_.conv_bias.value);
  const MutView dw = vector_grad(c, params_.conv, spare);
  const MutView dbias = bias ? vector_grad(c, params_.conv_bias, spare_bias) : MutView();
  braid::run(
      c, Conv1dBwd{.dy = dy.slice(1, part.own, part.count),
                   .x = x.slice(1, part.own, part.count),
                   .w = params_.conv.value.codes.slice(0, part.all, part.count),
                   .bias = bias ? vector_of(params_.conv_bias).slice(0, part.all, part.count) : View(),
                   .dx = dx.slice(1, part.own, part.count),
                   .dw = MutView(dw.data, DType::f32, params_.conv.value.codes.shape).slice(0, part.all, part.count),
                   .dbias = bias ? dbias.slice(0, part.all, part.count) : MutView(),
                   .seqs = heads.seqs});
}

// Blocks draw differently, but a model always draws the same, so its answers are reproducible.
void Mamba2::set_state(SsdFwd& op, const BlockState& state) const {
  op.state = state.ssm;
  op.state_scales = state.ssm_scales;
  op.noise = {.stream = static_cast<uint32_t>(state_index)};
}

// conv [T, C] after convolution, dt [T, H] raw -> the scan's operands, all but the state
SsdFwd Mamba2::operands(const Heads& heads, const View& conv, const View& dt, const MutView& y) const {
  const Mamba2Spec& own = heads.spec;
  const int64_t inner = own.inner(), bc = own.groups * own.state;
  return {.x = conv.slice(1, 0, inner).split_last(own.heads, own.head_dim),
          .b = conv.slice(1, inner, bc).split_last(own.groups, own.state),
          .c = conv.slice(1, inner + bc, bc).split_last(own.groups, own.state),
          .dt = dt,
          .dt_bias = vector_of(params_.dt_bias).slice(0, heads.head, own.heads),
          .a_log = vector_of(params_.a_log).slice(0, heads.head, own.heads),
          .d_skip = vector_of(params_.d_skip).slice(0, heads.head, own.heads),
          .y = y.split_last(own.heads, own.head_dim),
          .chunk = spec_.chunk,
          .dt_min = spec_.dt_min,
          .dt_max = spec_.dt_max > 0 ? spec_.dt_max : std::numeric_limits<float>::infinity()};
}

Tensor Mamba2::scan(Run& run, const Heads& heads, const Tensor& conv, const Tensor& dt) {
  const Tensor y(run.ctx.arena, run.numerics.activations, {conv.dim(0), heads.spec.inner()});
  const BlockState state = run.block_state(state_index);
  if (run.numerics.exact && state.ssm) {
    scan_exact(run, conv.view(), dt.view(), y.mut());
    return y;
  }
  const auto& seqs = run.seqs.seqs;
  if (std::any_of(seqs.begin(), seqs.end(), [](const Seq& s) { return s.phase == Phase::step; })) {
    CHECK(!run.ctx.tape, "steps cannot be taped");
    scan_by_phase(run, conv.view(), dt.view(), y.mut());
    return y;
  }
  taped(
      run.ctx, "ssd",
      {.in = {conv, dt},
       .out = {y},
       .saved = {conv, dt},
       .trains = params_.dt_bias.grad || params_.a_log.grad || params_.d_skip.grad},
      [this, heads, conv = Ref(conv), dt = Ref(dt), y = Ref(y), state](Ctx& c) {
        SsdFwd op = operands(heads, conv.view(), dt.view(), y.mut());
        set_state(op, state);
        op.seqs = heads.seqs;
        braid::run(c, op);
      },
      [this, heads, conv = Ref(conv), dt = Ref(dt), y = Ref(y)](Ctx& c, Tape& tape) {
        scan_backward(c, tape, heads, conv, dt, y);
      });
  return y;
}

void Mamba2::scan_backward(Ctx& ctx, Tape& tape, const Heads& heads, const Ref& conv, const Ref& dt, const Ref& y,
                           const View& state, const MutView& dstate) {
  Tensor spare_bias, spare_a, spare_d;
  const Tensor dconv = tape.make_grad(ctx, conv), ddt = tape.make_grad(ctx, dt), dy = tape.grad(y);
  const Mamba2Spec& own = heads.spec;
  const int64_t inner = own.inner(), bc = own.groups * own.state;
  const SsdFwd op = operands(heads, conv.view(), dt.view(), dy.mut());
  const auto vector = [&](const Param& p, Tensor& spare) {
    return vector_grad(ctx, p, spare).slice(0, heads.head, own.heads);
  };
  braid::run(ctx, SsdBwd{.dy = dy.view().split_last(own.heads, own.head_dim),
                         .x = op.x,
                         .b = op.b,
                         .c = op.c,
                         .dt = op.dt,
                         .dt_bias = op.dt_bias,
                         .a_log = op.a_log,
                         .d_skip = op.d_skip,
                         .state = state,
                         .dx = dconv.mut().slice(1, 0, inner).split_last(own.heads, own.head_dim),
                         .db = dconv.mut().slice(1, inner, bc).split_last(own.groups, own.state),
                         .dc = dconv.mut().slice(1, inner + bc, bc).split_last(own.groups, own.state),
                         .ddt = ddt.mut(),
                         .ddt_bias = vector(params_.dt_bias, spare_bias),
                         .da_log = vector(params_.a_log, spare_a),
                         .dd_skip = vector(params_.d_skip, spare_d),
                         .dstate = dstate,
                         .seqs = heads.seqs,
                         .chunk = op.chunk,
                         .dt_min = op.dt_min,
                         .dt_max = op.dt_max});
  tape.add_grad(ctx, conv, dconv);
  tape.add_grad(ctx, dt, ddt);
}

// Sequences that are prefilled and sequences that step have separate ops: one per run of the same kind.
void Mamba2::scan_by_phase(Run& run, const View& conv, const View& dt, const MutView& y) {
  const auto& seqs = run.seqs.seqs;
  for (size_t first = 0, end = 0; first < seqs.size(); first = end) {
    while (end < seqs.size() && seqs[end].phase == seqs[first].phase) ++end;
    const bool whole = first == 0 && end == seqs.size();  // a copy would cost every step an allocation
    const SeqMap cut = whole ? SeqMap() : run.seqs.part(first, end);
    const SeqMap& part = whole ? run.seqs : cut;
    const int64_t row = seqs[first].start, rows = part.tokens();
    SsdFwd op = operands(all_heads(run), conv.slice(0, row, rows), dt.slice(0, row, rows), y.slice(0, row, rows));
    set_state(op, run.block_state(state_index));
    op.seqs = &part;
    if (seqs[first].phase == Phase::step) {
      braid::run(run.ctx, step_of(op));
    } else {
      braid::run(run.ctx, op);
    }
  }
}

// Every token is a row of the chunk form, whatever pass computes it: the inputs of an unfinished chunk are kept, and
// each pass runs from the last chunk boundary. A row does not depend on the rows after it, so one token at a time gives
// the bits of a whole prefill. A step with a trail is as many steps of one token, each from a copy of the state before.
void Mamba2::scan_exact(Run& run, const View& conv, const View& dt, const MutView& y) {
  const BlockState state = run.block_state(state_index);
  for (const Seq& s : run.seqs.seqs) {
    if (s.trail < 0) {
      scan_exact_sequence(run, s, conv, dt, y);
      continue;
    }
    for (int64_t i = 0; i < s.len; ++i) {
      const Seq token{.start = s.start + i, .len = 1, .pos0 = s.pos0 + i, .slot = run.seqs.slot_after(s, i)};
      const std::array<CopyState::Copy, 1> copy = {{{.from = run.seqs.slot_before(s, i), .to = token.slot}}};
      if (copy[0].from == copy[0].to) {
        scan_exact_sequence(run, token, conv, dt, y);
        continue;
      }
      for (const MutView& v : {state.chunk_ssm, state.chunk_inputs})
        braid::run(run.ctx, CopyState{.state = CopyState::entries(v), .copies = copy});
      scan_exact_sequence(run, token, conv, dt, y);
    }
  }
}

void Mamba2::scan_exact_sequence(Run& run, const Seq& s, const View& conv, const View& dt, const MutView& y) {
  const BlockState state = run.block_state(state_index);
  const int64_t channels = spec_.conv_channels(), width = channels + spec_.heads, chunk = spec_.chunk;
  const int64_t kept = s.pos0 % chunk, rows = kept + s.len, whole = rows / chunk * chunk;
  const Tensor inputs(run.ctx.arena, conv.dtype, {rows, width}), out(run.ctx.arena, y.dtype, {rows, spec_.inner()});
  const MutView ring(state.chunk_inputs.slice(0, s.slot, 1).data, state.chunk_inputs.dtype, {chunk, width});
  const auto copy = [&run](const View& from, const MutView& to) {
    if (!run.ctx.dry) copy_rows(from, to);
  };
  copy(ring.slice(0, 0, kept), inputs.mut());
  copy(conv.slice(0, s.start, s.len), inputs.mut().slice(0, kept, s.len));
  copy(dt.slice(0, s.start, s.len), inputs.mut().slice(0, kept, s.len).slice(1, channels, spec_.heads));

  const auto part = [&](int64_t begin, int64_t n, const MutView& from) {
    if (n == 0) return;
    const View in = inputs.view().slice(0, begin, n);
    const SeqMap one = SeqMap::one(n, s.pos0 - kept + begin, s.slot);
    SsdFwd op = operands(all_heads(run), in.slice(1, 0, channels), in.slice(1, channels, spec_.heads),
                         out.mut().slice(0, begin, n));
    op.state = from;
    op.seqs = &one;
    braid::run(run.ctx, op);
  };
  part(0, whole, state.chunk_ssm);
  const MutView boundary = state.chunk_ssm.slice(0, s.slot, 1), now = state.ssm.slice(0, s.slot, 1);
  if (!run.ctx.dry) std::memcpy(now.data, boundary.data, static_cast<size_t>(boundary.bytes()));
  part(whole, rows - whole, state.ssm);
  copy(inputs.view().slice(0, whole, rows - whole), ring);
  copy(out.view().slice(0, kept, s.len), y.slice(0, s.start, s.len));
}

void Mamba2::params(std::vector<Param*>& out) {
  for (Param* p : {&params_.in_proj, &params_.conv, &params_.conv_bias, &params_.a_log, &params_.d_skip,
                   &params_.dt_bias, &params_.norm, &params_.out_proj, &params_.in_bias, &params_.out_bias}) {
    if (p->value) out.push_back(p);
  }
}

Mamba2Params load_mamba2(const BlockSource& source, const Mamba2Spec& spec) {
  using enum Shard::Axis;
  const int64_t inner = spec.inner(), bc = spec.groups * spec.state;
  const Shard heads{.axis = rows, .units = spec.heads, .shared = spec.groups}, none{.axis = whole};
  const std::vector<Segment> in = {{"z", 0, inner, spec.heads},
                                   {"x", inner, inner, spec.heads},
                                   {"b", 2 * inner, bc, spec.groups},
                                   {"c", 2 * inner + bc, bc, spec.groups},
                                   {"dt", 2 * inner + 2 * bc, spec.heads, spec.heads}},
                             channels = {{"x", 0, inner, spec.heads},
                                         {"b", inner, bc, spec.groups},
                                         {"c", inner + bc, bc, spec.groups}};
  Mamba2Params p;
  p.in_proj = source.get(ParamRole::mamba_in, {spec.in_rows(), spec.hidden}, heads, in);
  p.conv = source.get(ParamRole::conv, {spec.conv_channels(), 1, spec.conv_width}, heads, channels);
  if (spec.conv_bias) p.conv_bias = source.bias(ParamRole::conv, spec.conv_channels(), heads, channels);
  p.a_log = source.get(ParamRole::a_log, {spec.heads}, heads);
  p.d_skip = source.get(ParamRole::d_skip, {spec.heads}, heads);
  p.dt_bias = source.get(ParamRole::dt_bias, {spec.heads}, heads);
  p.norm = source.get(ParamRole::gated_norm, {inner}, heads);
  p.out_proj = source.get(ParamRole::mamba_out, {spec.hidden, inner},
                          {.axis = cols, .units = spec.heads, .shared = spec.groups});
  if (spec.proj_bias) {
    p.in_bias = source.bias(ParamRole::mamba_in, spec.in_rows(), heads, in);
    p.out_bias = source.bias(ParamRole::mamba_out, spec.hidden, none);
  }
  return p;
}

}  // namespace braid::nn
