#include "nn/hidden_parallel.h"

#include <cmath>

#include "comm/group.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/row_dots/row_dots.h"
#include "nn/param_source.h"
#include "nn/rank_views.h"

namespace braid::nn {

HiddenSide hidden_side(ParamRole role) {
  switch (role) {
    case ParamRole::q:
    case ParamRole::k:
    case ParamRole::v:
    case ParamRole::qkv:
    case ParamRole::mamba_in:
    case ParamRole::up:
    case ParamRole::gate:
    case ParamRole::gate_up:
    case ParamRole::router:
    case ParamRole::latent_in:
      return HiddenSide::reads;
    case ParamRole::attention_out:
    case ParamRole::mamba_out:
    case ParamRole::down:
    case ParamRole::latent_out:
      return HiddenSide::writes;
    default:
      return HiddenSide::none;
  }
}

namespace {

// 1 / rms of every token, [T, 1]. Its gradient is part of the norm's. A stream, so that no plan repeats the sum.
Tensor scales_of(Run& run, const Tensor& x, float eps) {
  const Tensor scale(run.ctx.arena, DType::f32, {x.dim(0), 1});
  taped(
      run.ctx, "norm_scale", {.in = {x}, .out = {scale}, .cost = Cost::stream},
      [x = Ref(x), scale = Ref(scale), ranks = run.hidden, eps](Ctx& c) {
        const MutView sums = flat(scale.mut());
        braid::run(c, RowDots{.a = x.view(), .b = x.view(), .y = sums});
        if (c.dry) return;
        ranks->all_reduce(sums, sums).wait();
        const auto channels = static_cast<float>(x.shape()[1] * ranks->size());
        for (int64_t t = 0; t < sums.dim(0); ++t)
          sums.as<float>()[t] = 1.0f / std::sqrt(sums.as<float>()[t] / channels + eps);
      },
      [](Ctx&, Tape&) {});
  return scale;
}

}  // namespace

Tensor rms_norm_part(Run& run, const Tensor& x, Param& w, float eps, DType out) {
  const Tensor y(run.ctx.arena, out, x.shape()), scale = scales_of(run, x, eps);
  taped(
      run.ctx, "norm",
      {.in = {x, scale}, .out = {y}, .saved = {x, scale}, .cost = Cost::cheap, .trains = static_cast<bool>(w.grad)},
      [x = Ref(x), scale = Ref(scale), y = Ref(y), &w](Ctx& c) {
        braid::run(c, RmsNormFwd{.x = x.view(), .w = vector_of(w), .y = y.mut(), .scale = scale.view()});
      },
      [x = Ref(x), scale = Ref(scale), y = Ref(y), &w, ranks = run.hidden, seqs = &run.rows()](Ctx& c, Tape& tape) {
        Tensor spare;
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x), mean(c.arena, DType::f32, scale.shape());
        const MutView sums = flat(mean.mut());
        braid::run(c, RowDots{.a = dy.view(), .b = x.view(), .w = vector_of(w), .y = sums});
        if (!c.dry) {
          ranks->all_reduce(sums, sums).wait();
          const auto channels = static_cast<float>(x.shape()[1] * ranks->size());
          const auto* scales = scale.view().as<float>();
          for (int64_t t = 0; t < sums.dim(0); ++t) sums.as<float>()[t] *= scales[t] / channels;
        }
        braid::run(c, RmsNormBwd{.dy = dy.view(),
                                 .x = x.view(),
                                 .w = vector_of(w),
                                 .rstd = scale.view(),
                                 .mean = mean.view(),
                                 .dx = dx.mut(),
                                 .dw = vector_grad(c, w, spare),
                                 .seqs = seqs});
        tape.add_grad(c, x, dx);
      });
  return y;
}

namespace {

// Channels of rank r in [T, D] are block r of what collectives exchange.
template <class Of>
void each_block(const Shape& whole, int ranks, Of&& of) {
  const int64_t own = whole[1] / ranks;
  for (int64_t r = 0; r < ranks; ++r) of(r * whole[0], r * own, own);
}

void gather(Ctx& c, comm::Group& ranks, const View& own, const MutView& all) {
  const Tensor blocks(c.arena, own.dtype, {ranks.size() * own.dim(0), own.dim(1)});
  if (c.dry) return;
  ranks.all_gather(flat(own), flat(blocks.mut())).wait();
  each_block(all.shape, ranks.size(), [&](int64_t row, int64_t channel, int64_t n) {
    copy_rows(blocks.view().slice(0, row, own.dim(0)), all.slice(1, channel, n));
  });
}

void scatter_sum(Ctx& c, comm::Group& ranks, const View& all, const MutView& own) {
  const Tensor blocks(c.arena, DType::f32, {ranks.size() * own.dim(0), own.dim(1)});
  if (c.dry) return;
  each_block(all.shape, ranks.size(), [&](int64_t row, int64_t channel, int64_t n) {
    copy_rows(all.slice(1, channel, n), blocks.mut().slice(0, row, own.dim(0)));
  });
  ranks.reduce_scatter(flat(blocks.view()), flat(own)).wait();
}

// The sum, or what every rank has.
void take(Ctx& c, comm::Group& ranks, bool parts, const View& all, const MutView& own) {
  if (parts) return scatter_sum(c, ranks, all, own);
  if (!c.dry) copy_rows(all.slice(1, ranks.rank() * own.dim(1), own.dim(1)), own);
}

}  // namespace

Tensor gather_channels(Run& run, const Tensor& x, bool parts) {
  const Tensor y(run.ctx.arena, x.dtype(), {x.dim(0), x.dim(1) * run.hidden->size()});
  taped(
      run.ctx, "gather_channels", {.in = {x}, .out = {y}, .cost = Cost::stream},
      [x = Ref(x), y = Ref(y), ranks = run.hidden](Ctx& c) { gather(c, *ranks, x.view(), y.mut()); },
      [x = Ref(x), y = Ref(y), ranks = run.hidden, parts](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x);
        take(c, *ranks, parts, dy.view(), dx.mut());
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor own_channels(Run& run, const Tensor& y, bool parts) {
  const Tensor own(run.ctx.arena, DType::f32, {y.dim(0), y.dim(1) / run.hidden->size()});
  taped(
      run.ctx, "own_channels", {.in = {y}, .out = {own}, .cost = Cost::stream},
      [y = Ref(y), own = Ref(own), ranks = run.hidden, parts](Ctx& c) { take(c, *ranks, parts, y.view(), own.mut()); },
      [y = Ref(y), own = Ref(own), ranks = run.hidden](Ctx& c, Tape& tape) {
        const Tensor downs = tape.grad(own), dy = tape.make_grad(c, y);
        gather(c, *ranks, downs.view(), dy.mut());
        tape.add_grad(c, y, dy);
      });
  return own;
}

}  // namespace braid::nn
