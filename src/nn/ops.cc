#include "nn/ops.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "comm/group.h"
#include "kernels/add/add.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/dropout/dropout.h"
#include "kernels/embedding/embedding.h"
#include "kernels/head_loss/distill_loss.h"
#include "kernels/head_loss/head_loss.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "nn/hidden_parallel.h"
#include "nn/observer.h"
#include "nn/param_source.h"
#include "nn/precision.h"
#include "nn/rank_views.h"

namespace braid::nn {

MutView vector_grad(Ctx& ctx, const Param& p, Tensor& spare) {
  const Shape shape{p.value.rows * p.value.cols};
  if (p.grad) return {p.grad.data, DType::f32, shape};
  spare = Tensor(ctx.arena, DType::f32, shape);
  if (!ctx.dry) fill(spare.mut(), 0);
  return spare.mut();
}

Tensor embedding(Run& run, const Tensor& ids, Param& table, DType out) {
  const Tensor y(run.ctx.arena, out, {ids.dim(0), table.value.cols});
  taped(
      run.ctx, "embedding",
      {.in = {ids}, .out = {y}, .saved_weights = {ids}, .cost = Cost::stream, .trains = static_cast<bool>(table.grad)},
      [ids = Ref(ids), y = Ref(y), &table](Ctx& c) {
        braid::run(c, EmbeddingFwd{.ids = ids.view(), .table = table.value, .y = y.mut()});
      },
      [](Ctx&, Tape&) {},  // ids have no gradient
      [ids = Ref(ids), y = Ref(y), &table](Ctx& c, Tape& tape) {
        braid::run(
            c,
            EmbeddingBwd{.ids = ids.view(), .dy = tape.grad(y).view(), .dtable = table.grad, .padding = table.padding});
      });
  return y;
}

namespace {

bool packed(const Run& run) { return run.numerics.product_class == ProductClass::packed; }

Tensor widened(Ctx& c, const View& x) {
  const Tensor y(c.arena, DType::f32, x.shape);
  braid::run(c, AddFwd{.b = x, .y = y.mut()});
  return y;
}

// With a divided residual stream y, or dx, is summed over ranks; one of them adds the bias. Run::overlap: dx travels
// while the gradient of w is computed, so that one closure has both.
Tensor plain(Run& run, const Tensor& x, Param& w, DType out, Param* bias) {
  const HiddenSide side = run.hidden ? hidden_side(w.role) : HiddenSide::none;
  comm::Group *sums_y = side == HiddenSide::reads ? run.hidden : nullptr,
              *sums_dx = side == HiddenSide::writes ? run.hidden : nullptr;
  const Tensor y(run.ctx.arena, out, {x.dim(0), w.value.rows});
  LowWeight low = run.precision ? run.precision->find(w) : LowWeight();
  low.use = run.use;
  // Routers compute in FP32, as transformers': rounding would choose other experts.
  const bool wide = x.dtype() == DType::f32 || w.role == ParamRole::router;
  // Which expert wins a near tie decides the rest of a run: training in FP32 follows the logits, not the order of sums.
  const bool train = packed(run), ranked = train && w.role == ParamRole::router && x.dtype() == DType::f32;
  const auto forward = [x = Ref(x), y = Ref(y), &w, bias, low, wide, sums_y, train, ranked,
                        codes = run.codes()](Ctx& c) {
    const View b = bias && (!sums_y || sums_y->rank() == 0) ? vector_of(*bias) : View();
    const Tensor own = wide && x.view().dtype != DType::f32 ? widened(c, x.view()) : Tensor();
    const View operand = own ? own.view() : x.view();
    product(
        c, low,
        LinearFwd{
            .x = operand, .w = w.value, .bias = b, .y = y.mut(), .train = train, .codes = codes, .wide_sums = ranked});
    if (sums_y && !c.dry) sums_y->all_reduce(flat(y.view()), flat(y.mut())).wait();
  };
  const auto weights = [x = Ref(x), y = Ref(y), &w, bias, low, seqs = &run.rows()](Ctx& c, Tape& tape) {
    const MutView dbias = bias && bias->grad ? MutView(bias->grad.data, DType::f32, {w.value.rows}) : MutView();
    product(c, low,
            LinearBwdWeight{.dy = tape.grad(y).view(), .x = x.view(), .dw = w.grad, .dbias = dbias, .seqs = seqs},
            seqs->seqs);
  };
  const auto inputs = [x = Ref(x), y = Ref(y), &w, low, wide, sums_dx, seqs = &run.rows()](Ctx& c, Tape& tape,
                                                                                           auto&& meanwhile) {
    const Tensor dx = tape.make_grad(c, x);
    const LinearBwdData op{.dy = tape.grad(y).view(), .w = w.value, .dx = dx.mut(), .wide = wide};
    product(c, low, op, seqs->seqs);
    std::optional<comm::Handle> sum;
    if (sums_dx && !c.dry) sum.emplace(sums_dx->all_reduce(flat(dx.view()), flat(dx.mut())));
    meanwhile();
    if (sum) sum->wait();
    tape.add_grad(c, x, dx);
  };
  if (run.overlap && sums_dx && w.grad && run.ctx.tape && run.ctx.tape->needs_grad(x)) {
    taped(run.ctx, "linear", {.in = {x}, .out = {y}, .saved = {x}, .trains = true}, forward,
          [inputs, weights](Ctx& c, Tape& tape) { inputs(c, tape, [&] { weights(c, tape); }); });
  } else {
    taped(
        run.ctx, "linear", {.in = {x}, .out = {y}, .saved_weights = {x}, .trains = static_cast<bool>(w.grad)}, forward,
        [inputs](Ctx& c, Tape& tape) { inputs(c, tape, [] {}); }, weights);
  }
  if (run.observer) run.observer->product(w, x.view(), y.view());
  return y;
}

}  // namespace

Tensor scaled(Run& run, const Tensor& x, float scale, DType out) {
  const Tensor y(run.ctx.arena, out, x.shape());
  taped(
      run.ctx, "scale", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), scale](Ctx& c) { braid::run(c, AddFwd{.b = x.view(), .y = y.mut(), .scale = scale}); },
      [x = Ref(x), y = Ref(y), scale](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        braid::run(c, AddFwd{.b = tape.grad(y).view(), .y = dx.mut(), .scale = scale});
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor converted(Run& run, const Tensor& x, DType out) { return x.dtype() == out ? x : scaled(run, x, 1, out); }

Tensor dropout(Run& run, const Tensor& x, float rate, uint32_t layer, uint32_t use) {
  if (!run.draws || rate == 0) return x;
  const Tensor y(run.ctx.arena, x.dtype(), x.shape());
  const DropoutKey key{.seed = run.draws->seed, .step = run.draws->step, .layer = layer, .op = use};
  taped(
      run.ctx, "dropout", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), rate, key, seqs = &run.rows()](Ctx& c) {
        braid::run(c, DropoutFwd{.x = x.view(), .y = y.mut(), .seqs = seqs, .rate = rate, .key = key});
      },
      [x = Ref(x), y = Ref(y), rate, key, seqs = &run.rows()](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        braid::run(c, DropoutBwd{.dy = tape.grad(y).view(), .dx = dx.mut(), .seqs = seqs, .rate = rate, .key = key});
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor linear(Run& run, const Tensor& x, Param& w, DType out, Param* bias) {
  if (run.hidden && hidden_side(w.role) == HiddenSide::reads && out != DType::f32)
    return converted(run, plain(run, x, w, DType::f32, bias), out);  // sums are not rounded one by one
  if (!w.adapter) return plain(run, x, w, out, bias);
  Adapter& adapter = *w.adapter;
  constexpr uint32_t kUse = 0x6c6f7261;  // "lora": from here on no other op draws
  const Tensor dropped = dropout(run, x, adapter.dropout, adapter.number, kUse + run.use),
               inner = plain(run, dropped, adapter.a, DType::f32, nullptr);
  const Tensor share =
      plain(run, scaled(run, inner, adapter.scale, run.numerics.products), adapter.b, DType::f32, nullptr);
  return add(run, plain(run, x, w, DType::f32, bias), share, out);
}

Tensor rms_norm(Run& run, const Tensor& x, Param& w, const RmsNormOptions& options, const Tensor& z) {
  const Tensor y(run.ctx.arena, options.out, x.shape());
  taped(
      run.ctx, z ? "gated_norm" : "norm",
      {.in = {x, z}, .out = {y}, .saved = {x, z}, .cost = Cost::cheap, .trains = static_cast<bool>(w.grad)},
      [x = Ref(x), z = Ref(z), y = Ref(y), &w, options](Ctx& c) {
        braid::run(c, RmsNormFwd{.x = x.view(),
                                 .w = vector_of(w),
                                 .z = z.view(),
                                 .y = y.mut(),
                                 .groups = options.groups,
                                 .eps = options.eps});
      },
      [x = Ref(x), z = Ref(z), y = Ref(y), &w, options, seqs = &run.rows()](Ctx& c, Tape& tape) {
        Tensor spare;
        const Tensor dx = tape.make_grad(c, x), dz = z ? tape.make_grad(c, z) : Tensor();
        braid::run(c, RmsNormBwd{.dy = tape.grad(y).view(),
                                 .x = x.view(),
                                 .w = vector_of(w),
                                 .z = z.view(),
                                 .dx = dx.mut(),
                                 .dz = dz.mut(),
                                 .dw = vector_grad(c, w, spare),
                                 .seqs = seqs,
                                 .rows_per_token = x.shape()[0] / seqs->tokens(),
                                 .groups = options.groups,
                                 .eps = options.eps});
        tape.add_grad(c, x, dx);
        if (z) tape.add_grad(c, z, dz);
      });
  if (run.observer) run.observer->norm(w, x.view(), z.view(), y.view());
  return y;
}

Tensor layer_norm(Run& run, const Tensor& x, Param& w, Param& bias, float eps, DType out) {
  const Tensor y(run.ctx.arena, out, x.shape());
  taped(
      run.ctx, "norm", {.in = {x}, .out = {y}, .saved = {x}, .cost = Cost::cheap, .trains = w.grad || bias.grad},
      [x = Ref(x), y = Ref(y), &w, &bias, eps](Ctx& c) {
        braid::run(c,
                   LayerNormFwd{.x = x.view(), .w = vector_of(w), .bias = vector_of(bias), .y = y.mut(), .eps = eps});
      },
      [x = Ref(x), y = Ref(y), &w, &bias, eps, seqs = &run.rows()](Ctx& c, Tape& tape) {
        Tensor spare, spare_bias;
        const Tensor dx = tape.make_grad(c, x);
        braid::run(c, LayerNormBwd{.dy = tape.grad(y).view(),
                                   .x = x.view(),
                                   .w = vector_of(w),
                                   .dx = dx.mut(),
                                   .dw = vector_grad(c, w, spare),
                                   .dbias = vector_grad(c, bias, spare_bias),
                                   .seqs = seqs,
                                   .eps = eps});
        tape.add_grad(c, x, dx);
      });
  if (run.observer) run.observer->norm(w, x.view(), {}, y.view());
  return y;
}

Tensor act(Run& run, const Tensor& x, const Tensor& gate, Act kind) {
  const Tensor y(run.ctx.arena, run.numerics.products, x.shape());
  taped(
      run.ctx, "act", {.in = {x, gate}, .out = {y}, .saved = {x, gate}, .cost = Cost::cheap},
      [x = Ref(x), gate = Ref(gate), y = Ref(y), kind](Ctx& c) {
        braid::run(c, ActFwd{.x = x.view(), .gate = gate.view(), .y = y.mut(), .kind = kind});
      },
      [x = Ref(x), gate = Ref(gate), y = Ref(y), kind](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x), dgate = gate ? tape.make_grad(c, gate) : Tensor();
        braid::run(c, ActBwd{.dy = tape.grad(y).view(),
                             .x = x.view(),
                             .gate = gate.view(),
                             .dx = dx.mut(),
                             .dgate = dgate.mut(),
                             .kind = kind});
        tape.add_grad(c, x, dx);
        if (gate) tape.add_grad(c, gate, dgate);
      });
  return y;
}

namespace {

Tensor sum(Run& run, const Tensor& a, const Tensor& b, DType out, Cost cost) {
  const Tensor y(run.ctx.arena, out, a.shape());
  taped(
      run.ctx, "add", {.in = {a, b}, .out = {y}, .cost = cost},
      [a = Ref(a), b = Ref(b), y = Ref(y)](Ctx& c) {
        braid::run(c, AddFwd{.a = a.view(), .b = b.view(), .y = y.mut()});
      },
      [a = Ref(a), b = Ref(b), y = Ref(y)](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y);
        tape.add_grad(c, a, dy);
        tape.add_grad(c, b, dy);
      });
  return y;
}

}  // namespace

Tensor add(Run& run, const Tensor& a, const Tensor& b, DType out) { return sum(run, a, b, out, Cost::cheap); }

Tensor residual(Run& run, const Tensor& stream, const Tensor& block) {
  return sum(run, stream, block, DType::f32, Cost::stream);
}

namespace {

// The losses from the same logits as Model::logits, a few rows at a time.
void panel_losses(Ctx& ctx, const View& x, const Weight& w, const View& targets, const MutView& loss,
                  const MutView& lse) {
  constexpr int64_t kRows = 64;  // 32 MiB of logits with a vocabulary of 131,072
  const int64_t tokens = x.dim(0), most = std::min(kRows, tokens);
  const Tensor logits(ctx.arena, DType::f32, {most, w.rows});
  for (int64_t t = 0; t < tokens; t += kRows) {
    const int64_t n = std::min(kRows, tokens - t);
    const MutView some = logits.mut().slice(0, 0, n);
    braid::run(ctx, LinearFwd{.x = x.slice(0, t, n), .w = w, .y = some});
    braid::run(
        ctx,
        CrossEntropyFwd{
            .logits = some, .targets = targets.slice(0, t, n), .loss = loss.slice(0, t, n), .lse = lse.slice(0, t, n)});
  }
}

}  // namespace

HeadLosses head_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight, float z) {
  const Shape tokens{x.dim(0)};
  const HeadLosses y{.loss = Tensor(run.ctx.arena, DType::f32, tokens),
                     .lse = Tensor(run.ctx.arena, DType::f32, tokens)};
  const bool panel = !packed(run);
  if (!run.ctx.tape) {
    if (panel) {
      panel_losses(run.ctx, x.view(), w.value, targets.view(), y.loss.mut(), y.lse.mut());
      return y;
    }
    braid::run(
        run.ctx,
        HeadLossFwd{.x = x.view(), .w = w.value, .targets = targets.view(), .loss = y.loss.mut(), .lse = y.lse.mut()});
    return y;
  }
  const Tensor dx(run.ctx.arena, DType::f32, x.shape());
  taped(
      run.ctx, "head_loss", {.in = {x, targets, token_weight}, .out = {y.loss, y.lse, dx}, .saved = {dx}, .once = true},
      [x = Ref(x), targets = Ref(targets), weight = Ref(token_weight), loss = Ref(y.loss), lse = Ref(y.lse),
       dx = Ref(dx), &w, z, seqs = &run.seqs, panel](Ctx& c) {
        braid::run(c, HeadLoss{.x = x.view(),
                               .w = w.value,
                               .targets = targets.view(),
                               .token_weight = weight.view(),
                               .loss = loss.mut(),
                               .lse = lse.mut(),
                               .dx = dx.mut(),
                               .dw = w.grad,
                               .z = z,
                               .seqs = seqs});
        if (panel) panel_losses(c, x.view(), w.value, targets.view(), loss.mut(), lse.mut());
      },
      [x = Ref(x), dx = Ref(dx)](Ctx& c, Tape& tape) { tape.add_grad(c, x, tape.handle(dx)); });
  return y;
}

Tensor token_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets) {
  const Tensor loss(run.ctx.arena, DType::f32, {x.dim(0)});
  taped(
      run.ctx, "token_loss",
      {.in = {x, targets}, .out = {loss}, .saved = {x, targets}, .trains = static_cast<bool>(w.grad)},
      [x = Ref(x), targets = Ref(targets), loss = Ref(loss), &w, panel = !packed(run)](Ctx& c) {
        if (panel) {
          const Tensor lse(c.arena, DType::f32, loss.shape());
          return panel_losses(c, x.view(), w.value, targets.view(), loss.mut(), lse.mut());
        }
        braid::run(c, HeadLossFwd{.x = x.view(), .w = w.value, .targets = targets.view(), .loss = loss.mut()});
      },
      [x = Ref(x), targets = Ref(targets), loss = Ref(loss), &w, seqs = &run.seqs](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        braid::run(c, HeadLossBwd{.dloss = tape.grad(loss).view(),
                                  .x = x.view(),
                                  .w = w.value,
                                  .targets = targets.view(),
                                  .dx = dx.mut(),
                                  .dw = w.grad,
                                  .seqs = seqs});
        tape.add_grad(c, x, dx);
      });
  return loss;
}

DistillLosses distill_loss(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight,
                           const Teacher& teacher) {
  const Shape tokens{x.dim(0)};
  const DistillLosses y{.kl = Tensor(run.ctx.arena, DType::f32, tokens),
                        .ce = Tensor(run.ctx.arena, DType::f32, tokens)};
  DistillLoss op{.w = w.value,
                 .teacher_w = teacher.head,
                 .temperature = teacher.temperature,
                 .kl_weight = teacher.kl_weight,
                 .ce_weight = teacher.ce_weight,
                 .seqs = &run.seqs};
  const auto fill_in = [op, x = Ref(x), targets = Ref(targets), weight = Ref(token_weight), kl = Ref(y.kl),
                        ce = Ref(y.ce), teacher_x = Ref(teacher.x), ids = Ref(teacher.top_ids),
                        logprobs = Ref(teacher.top_logprobs)] {
    DistillLoss filled = op;
    filled.x = x.view();
    filled.teacher_x = teacher_x.view();
    filled.top_ids = ids.view();
    filled.top_logprobs = logprobs.view();
    filled.targets = targets.view();
    filled.token_weight = weight.view();
    filled.kl = kl.mut();
    filled.ce = ce.mut();
    return filled;
  };
  if (!run.ctx.tape) {
    braid::run(run.ctx, fill_in());
    return y;
  }
  const Tensor dx(run.ctx.arena, DType::f32, x.shape());
  taped(
      run.ctx, "distill_loss", {.in = {x, targets, token_weight}, .out = {y.kl, y.ce, dx}, .saved = {dx}, .once = true},
      [fill_in, dx = Ref(dx), &w](Ctx& c) {
        DistillLoss filled = fill_in();
        filled.dx = dx.mut();
        filled.dw = w.grad;
        braid::run(c, filled);
      },
      [x = Ref(x), dx = Ref(dx)](Ctx& c, Tape& tape) { tape.add_grad(c, x, tape.handle(dx)); });
  return y;
}

void copy_rows(const View& from, const MutView& to) {
  CHECK(from.dtype == to.dtype, "{} to {}", name_of(from.dtype), name_of(to.dtype));
  const int64_t size = size_of(from.dtype);
  for (int64_t t = 0; t < from.dim(0); ++t) {
    std::memcpy(to.data + t * to.stride(0) * size, from.data + t * from.stride(0) * size,
                static_cast<size_t>(from.dim(1) * size));
  }
}

Tensor concatenate(Run& run, const Tensor& a, const Tensor& b) {
  const int64_t left = a.dim(1), right = b.dim(1);
  const Tensor y(run.ctx.arena, a.dtype(), {a.dim(0), left + right});
  taped(
      run.ctx, "concatenate", {.in = {a, b}, .out = {y}, .cost = Cost::cheap},
      [a = Ref(a), b = Ref(b), y = Ref(y), left, right](Ctx& c) {
        if (c.dry) return;
        copy_rows(a.view(), y.mut().slice(1, 0, left));
        copy_rows(b.view(), y.mut().slice(1, left, right));
      },
      [a = Ref(a), b = Ref(b), y = Ref(y), left, right](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), da = tape.make_grad(c, a), db = tape.make_grad(c, b);
        if (!c.dry) {
          copy_rows(dy.view().slice(1, 0, left), da.mut());
          copy_rows(dy.view().slice(1, left, right), db.mut());
        }
        tape.add_grad(c, a, da);
        tape.add_grad(c, b, db);
      });
  return y;
}

}  // namespace braid::nn
