// Mamba-2 where ranks have consecutive tokens of a sequence (ContextShares::states): the last inputs of the convolution
// and the state of the scan pass from rank to rank, and their gradients back. A rank waits for the one before it.
#include <algorithm>

#include "comm/group.h"
#include "kernels/conv1d/conv1d.h"
#include "nn/context_parallel.h"
#include "nn/mamba2.h"
#include "nn/rank_views.h"

namespace braid::nn {
namespace {

// Entry i of `states` goes to, or comes from, the rank that has what follows or precedes piece i: sequences in order.
void send_on(const ContextShares& shares, const std::vector<int>& peers, const View& states, size_t i) {
  if (peers[i] >= 0) shares.ranks->send(flat(View(states.slice(0, static_cast<int64_t>(i), 1))), peers[i]).wait();
}
void receive(const ContextShares& shares, const std::vector<int>& peers, const MutView& states, size_t i) {
  if (peers[i] >= 0) shares.ranks->recv(flat(MutView(states.slice(0, static_cast<int64_t>(i), 1))), peers[i]).wait();
}

// Pieces with the `halo` rows before each.
SeqMap with_halo(const SeqMap& pieces, int64_t halo) {
  SeqMap map;
  for (const Seq& s : pieces.seqs) map.add(halo + s.len);
  return map;
}

// Rows of `from` in FP32.
void widen_rows(const View& from, const MutView& to) {
  for (int64_t t = 0; t < from.dim(0); ++t) {
    for (int64_t i = 0; i < from.dim(1); ++i)
      to.as<float>(t)[i] = from.dtype == DType::bf16 ? to_float(from.as<Bf16>(t)[i]) : from.as<float>(t)[i];
  }
}

// before [S, halo, C]: the inputs before each piece, from other ranks; zeros where a sequence begins. A rank whose
// piece is longer than that sends its last inputs at once, others after they know those before.
void pass_inputs(const ContextShares& shares, const View& raw, const MutView& before, const MutView& tails) {
  const int64_t halo = before.dim(1);
  const Shape rows{halo, before.dim(2)};
  fill(before, 0);
  for (size_t i = 0; i < shares.own.seqs.size(); ++i) {
    const Seq& s = shares.own.seqs[i];
    const int64_t own = std::min(halo, s.len);
    const MutView tail(tails.slice(0, static_cast<int64_t>(i), 1).data, DType::f32, rows);
    const View earlier(before.slice(0, static_cast<int64_t>(i), 1).data, DType::f32, rows);
    widen_rows(raw.slice(0, s.start + s.len - own, own), tail.slice(0, halo - own, own));
    if (own == halo) send_on(shares, shares.after, tails, i);
    receive(shares, shares.before, before, i);
    if (own == halo) continue;
    copy_rows(earlier.slice(0, own, halo - own), tail.slice(0, 0, halo - own));
    send_on(shares, shares.after, tails, i);
  }
}

// dx [S x (halo + len), C], the gradients of the inputs with those before: what other ranks know of the last ones is
// added, and the first ones are sent to where those inputs are.
void pass_gradients(const ContextShares& shares, const SeqMap& longer, const MutView& dx, const MutView& work) {
  const int64_t halo = work.dim(1);
  for (size_t i = 0; i < longer.seqs.size(); ++i) {
    const Seq& s = longer.seqs[i];
    const auto send_first = [&] {
      if (shares.before[i] < 0) return;
      shares.ranks->send(flat(View(dx.slice(0, s.start, halo))), shares.before[i]).wait();
    };
    const bool apart = s.len >= 2 * halo;  // the first inputs from the last ones
    if (apart) send_first();
    receive(shares, shares.after, work, i);
    auto* last = dx.as<float>(s.start + s.len - halo);
    const auto* more = View(work).as<float>(static_cast<int64_t>(i));
    for (int64_t j = 0; shares.after[i] >= 0 && j < halo * dx.dim(1); ++j) last[j] += more[j];
    if (!apart) send_first();
  }
}

}  // namespace

Tensor Mamba2::convolve_pieces(Run& run, const Tensor& raw) {
  const int64_t halo = spec_.conv_width - 1, pieces = std::ssize(run.seqs.seqs), channels = raw.dim(1);
  const Tensor y(run.ctx.arena, run.numerics.activations, raw.shape()),
      before(run.ctx.arena, DType::f32, {pieces, halo, channels});
  taped(
      run.ctx, "conv1d",
      {.in = {raw}, .out = {y, before}, .saved = {raw, before}, .trains = params_.conv.grad || params_.conv_bias.grad},
      [this, raw = Ref(raw), y = Ref(y), before = Ref(before), shares = run.context](Ctx& c) {
        const Tensor state(c.arena, DType::f32, before.shape());
        if (!c.dry) {
          pass_inputs(*shares, raw.view(), before.mut(), state.mut());
          copy_bytes(before.view(), state.mut());  // which the op moves on
        }
        braid::run(c, Conv1dFwd{.x = raw.view(),
                                .w = params_.conv.value.codes,
                                .bias = params_.conv_bias.value ? vector_of(params_.conv_bias) : View(),
                                .state = state.mut(),
                                .y = y.mut(),
                                .seqs = &shares->own});
      },
      [this, raw = Ref(raw), y = Ref(y), before = Ref(before), shares = run.context](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, raw);
        convolve_pieces_backward(c, *shares, {tape.grad(y).view(), raw.view(), before.view(), dx.mut()});
        tape.add_grad(c, raw, dx);
      });
  return y;
}

// As one convolution over pieces with the inputs before them, whose outputs belong to other ranks.
void Mamba2::convolve_pieces_backward(Ctx& c, const ContextShares& shares, const PieceGradient& g) {
  const int64_t halo = g.before.dim(1), channels = g.raw.dim(1);
  const SeqMap longer = with_halo(shares.own, halo);
  const Shape shape{longer.tokens(), channels};
  const Tensor x(c.arena, DType::f32, shape), dy(c.arena, DType::f32, shape), dx(c.arena, DType::f32, shape),
      work(c.arena, DType::f32, g.before.shape);
  for (size_t i = 0; i < longer.seqs.size() && !c.dry; ++i) {
    const Seq &s = shares.own.seqs[i], &to = longer.seqs[i];
    const View old = g.before.slice(0, static_cast<int64_t>(i), 1);
    copy_rows({old.data, DType::f32, {halo, channels}}, x.mut().slice(0, to.start, halo));
    widen_rows(g.raw.slice(0, s.start, s.len), x.mut().slice(0, to.start + halo, s.len));
    fill(dy.mut().slice(0, to.start, halo), 0);
    copy_rows(g.dy.slice(0, s.start, s.len), dy.mut().slice(0, to.start + halo, s.len));
  }
  Heads heads{.spec = spec_, .seqs = &longer};
  convolve_backward(c, heads, {0, 0, channels}, dy.view(), x.view(), dx.mut());
  if (c.dry) return;
  pass_gradients(shares, longer, dx.mut(), work.mut());
  for (size_t i = 0; i < longer.seqs.size(); ++i) {
    const Seq& s = shares.own.seqs[i];
    copy_rows(dx.view().slice(0, longer.seqs[i].start + halo, s.len), g.dx.slice(0, s.start, s.len));
  }
}

Tensor Mamba2::scan_pieces(Run& run, const Tensor& conv, const Tensor& dt) {
  const Tensor y(run.ctx.arena, run.numerics.activations, {conv.dim(0), spec_.inner()}),
      before(run.ctx.arena, DType::f32, {std::ssize(run.seqs.seqs), spec_.heads, spec_.head_dim, spec_.state});
  const Heads heads = all_heads(run);
  taped(
      run.ctx, "ssd",
      {.in = {conv, dt},
       .out = {y, before},
       .saved = {conv, dt, before},
       .trains = params_.dt_bias.grad || params_.a_log.grad || params_.d_skip.grad},
      [this, heads, conv = Ref(conv), dt = Ref(dt), y = Ref(y), before = Ref(before), shares = run.context](Ctx& c) {
        const Tensor state(c.arena, DType::f32, before.shape());
        if (!c.dry) {
          fill(before.mut(), 0);
          for (size_t i = 0; i < shares->before.size(); ++i) receive(*shares, shares->before, before.mut(), i);
          copy_bytes(before.view(), state.mut());
        }
        SsdFwd op = operands(heads, conv.view(), dt.view(), y.mut());
        op.state = state.mut();
        op.seqs = heads.seqs;
        braid::run(c, op);
        for (size_t i = 0; i < shares->after.size() && !c.dry; ++i) send_on(*shares, shares->after, state.view(), i);
      },
      [this, heads, conv = Ref(conv), dt = Ref(dt), y = Ref(y), before = Ref(before), shares = run.context](
          Ctx& c, Tape& tape) {
        const Tensor dstate(c.arena, DType::f32, before.shape());
        if (!c.dry) {
          fill(dstate.mut(), 0);
          for (size_t i = 0; i < shares->after.size(); ++i) receive(*shares, shares->after, dstate.mut(), i);
        }
        scan_backward(c, tape, heads, conv, dt, y, before.view(), dstate.mut());
        for (size_t i = 0; i < shares->before.size() && !c.dry; ++i) send_on(*shares, shares->before, dstate.view(), i);
      });
  return y;
}

}  // namespace braid::nn
