#include "nn/moe.h"

#include <algorithm>
#include <string>

#include "nn/balance.h"
#include "nn/expert_parallel.h"
#include "nn/hidden_parallel.h"
#include "nn/observer.h"
#include "nn/ops.h"
#include "nn/precision.h"
#include "nn/tensor_parallel.h"
#include "sys/error.h"

namespace braid::nn {
namespace {

std::vector<Weight> values_of(const std::vector<Param>& params) {
  std::vector<Weight> values;
  values.reserve(params.size());
  for (const Param& p : params) values.push_back(p.value);
  return values;
}

// Empty where they are frozen.
std::vector<MutView> gradients_of(const std::vector<Param>& params) {
  std::vector<MutView> grads;
  if (params.empty() || !params[0].grad) return grads;
  grads.reserve(params.size());
  for (const Param& p : params) grads.push_back(p.grad);
  return grads;
}

struct ExpertsCall {
  const Tensor &x, &experts, &weights, &u, &g;
};
void show(Run& run, const MoeParams& p, const ExpertsCall& call, ExpertAct act) {
  run.observer->experts(run.ctx, {.up = p.up,
                                  .gate = p.gate,
                                  .down = p.down,
                                  .x = call.x.view(),
                                  .experts = call.experts.view(),
                                  .weights = call.weights.view(),
                                  .u = call.u.view(),
                                  .g = call.g.view(),
                                  .act = act});
}

}  // namespace

Moe::Moe(const MoeSpec& spec, MoeParams params)
    : spec_(spec),
      params_(std::move(params)),
      up_(values_of(params_.up)),
      gate_(values_of(params_.gate)),
      down_(values_of(params_.down)),
      up_grad_(gradients_of(params_.up)),
      gate_grad_(gradients_of(params_.gate)),
      down_grad_(gradients_of(params_.down)) {
  if (spec.shared_width > 0) {
    const MlpSpec shared{.hidden = spec.hidden,
                         .width = spec.shared_width,
                         .act = spec.gated ? Act::silu : Act::relu2,
                         .gated = spec.gated};
    shared_ = std::make_unique<Mlp>(shared, std::move(params_.shared));
  }
}

// The recorded choices of this pass, or nothing if there are none.
View Moe::replayed(const Run& run, int64_t tokens) const {
  if (!run.probe || !run.probe->replay) return {};
  const auto found = run.probe->replay->find(layer);
  const int64_t first = run.probe->replay_row * spec_.top_k;
  if (found == run.probe->replay->end() || static_cast<int64_t>(found->second.size()) < first + tokens * spec_.top_k) {
    fail("replayed routes", {.what = fmt::format("not enough choices for layer {}", layer),
                             .expected = fmt::format("{} x {}", run.probe->replay_row + tokens, spec_.top_k)});
  }
  for (int64_t i = first; i < first + tokens * spec_.top_k; ++i) {
    const int32_t e = found->second[static_cast<size_t>(i)];
    if (e < 0 || e >= spec_.experts)
      fail("replayed routes", {.what = fmt::format("no such expert in layer {}", layer),
                               .got = std::to_string(e),
                               .expected = fmt::format("0 to {}", spec_.experts - 1)});
  }
  return view_of(found->second.data() + first, {tokens, spec_.top_k});
}

// Chosen experts [T, K] and their weights. The logits are FP32 sums; they are never rounded.
Tensor Moe::route(Run& run, const Tensor& x, Tensor& weights) {
  const int64_t tokens = x.dim(0);
  const Tensor logits = linear(run, x, params_.router), experts(run.ctx.arena, DType::i32, {tokens, spec_.top_k});
  const bool balanced = run.routers && run.routers->factors.balance();
  const Tensor factors =
      balanced ? Tensor(run.ctx.arena, DType::f32, {std::ssize(run.seqs.seqs), spec_.experts}) : Tensor();
  weights = Tensor(run.ctx.arena, DType::f32, {tokens, spec_.top_k});
  taped(
      run.ctx, "router", {.in = {logits, factors}, .out = {experts, weights}, .saved = {logits, experts, factors}},
      [this, logits = Ref(logits), experts = Ref(experts), weights = Ref(weights),
       forced = replayed(run, tokens)](Ctx& c) {
        braid::run(c, RouterFwd{.logits = logits.view(),
                                .bias = params_.router_bias.value ? vector_of(params_.router_bias) : View(),
                                .forced = forced,
                                .experts = experts.mut(),
                                .weights = weights.mut(),
                                .kind = spec_.router,
                                .n_group = spec_.n_group,
                                .topk_group = spec_.topk_group,
                                .normalise = spec_.normalise,
                                .scale = spec_.scale});
      },
      [this, logits = Ref(logits), experts = Ref(experts), weights = Ref(weights), factors = Ref(factors),
       seqs = &run.seqs, z = run.routers ? run.routers->factors.z : 0.0f](Ctx& c, Tape& tape) {
        const Tensor dlogits = tape.make_grad(c, logits);
        braid::run(c, RouterBwd{.logits = logits.view(),
                                .experts = experts.view(),
                                .dweights = tape.grad(weights).view(),
                                .factors = factors.view(),
                                .dlogits = dlogits.mut(),
                                .kind = spec_.router,
                                .normalise = spec_.normalise,
                                .scale = spec_.scale,
                                .z = z,
                                .seqs = seqs});
        tape.add_grad(c, logits, dlogits);
      });
  if (run.routers) watch(run, logits, experts, factors);
  if (run.probe && run.probe->want_routes) {
    const auto* chosen = experts.view().as<int32_t>();
    auto& log = run.probe->routes[layer];
    log.insert(log.end(), chosen, chosen + tokens * spec_.top_k);
  }
  return experts;
}

void Moe::watch(Run& run, const Tensor& logits, const Tensor& experts, const Tensor& factors) const {
  RouterWatch::Layer& seen = run.routers->layers[layer];
  seen.bias = params_.router_bias.value ? &params_.router_bias : nullptr;
  seen.top_k = spec_.top_k;
  seen.resize(spec_.experts, run.routers->count_margins);
  const auto sequences = std::ssize(run.seqs.seqs);
  const Tensor scores(run.ctx.arena, DType::f32, {sequences, spec_.experts}), z(run.ctx.arena, DType::f32, {sequences});
  braid::run(run.ctx, RouterStats{.logits = logits.view(),
                                  .experts = experts.view(),
                                  .scores = scores.mut(),
                                  .z = z.mut(),
                                  .load = mut_view_of(seen.load.data(), {spec_.experts}),
                                  .kind = spec_.router,
                                  .seqs = &run.seqs});
  if (factors) balance(run, seen, experts.view(), scores.view(), factors.mut());
  if (seen.bias && run.routers->count_margins)
    count_router_margins(run.ctx, {.logits = logits.view(),
                                   .bias = vector_of(params_.router_bias),
                                   .bins = mut_view_of(seen.margins.data(), {spec_.experts, kMarginBins}),
                                   .top_k = spec_.top_k,
                                   .kind = spec_.router});
  if (run.ctx.dry) return;
  for (int64_t s = 0; s < sequences; ++s) {
    seen.z += static_cast<double>(z.view().as<float>()[s]);
    for (size_t e = 0; e < seen.scores.size(); ++e)
      seen.scores[e] += static_cast<double>(scores.view().as<float>(s)[e]);
  }
}

// Rows from other ranks belong to no sequence of this one, and there may be none of them.
Tensor Moe::mix(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out) {
  const Tensor y(run.ctx.arena, out, x.shape());
  const SeqMap* seqs = run.experts ? nullptr : &run.seqs;
  const bool none = x.dim(0) == 0, y_is_read = spec_.latent > 0 && !run.experts;  // by a backward
  const ExpertAct act = spec_.gated ? ExpertAct::silu : ExpertAct::relu2;
  const LowExperts low{
      .precision = run.precision, .up = params_.up, .gate = params_.gate, .down = params_.down, .use = run.use};
  const bool trains = !up_grad_.empty() || !gate_grad_.empty() || !down_grad_.empty();
  const bool train = run.numerics.product_class == ProductClass::packed;
  const Tape* on = run.ctx.tape;
  // Backward can recompute the first products itself, which is cheaper than rerunning the op. If y is not read later
  // either, the outputs are simply dropped.
  const bool save =
      run.observer || (on && !low.find(low.up) && (trains || on->needs_grad(x) || on->needs_grad(weights)) &&
                       (y_is_read || !on->drops_next(Cost::expensive)));
  const Shape products{x.dim(0), experts.dim(1), spec_.width};
  const Tensor u = save ? Tensor(run.ctx.arena, x.dtype(), products) : Tensor(),
               g = save && spec_.gated ? Tensor(run.ctx.arena, x.dtype(), products) : Tensor();
  taped(
      run.ctx, "experts",
      {.in = {x, experts, weights}, .out = {y, u, g}, .saved = {x, experts, weights, u, g}, .trains = trains},
      [this, x = Ref(x), experts = Ref(experts), weights = Ref(weights), y = Ref(y), u = Ref(u), g = Ref(g), act, low,
       train, none, codes = run.codes()](Ctx& c) {
        if (none) return;
        product(c, low,
                ExpertsFwd{.x = x.view(),
                           .experts = experts.view(),
                           .weights = weights.view(),
                           .up = up_,
                           .gate = gate_,
                           .down = down_,
                           .y = y.mut(),
                           .u = u.mut(),
                           .g = g.mut(),
                           .act = act,
                           .train = train,
                           .codes = codes});
      },
      [this, x = Ref(x), experts = Ref(experts), weights = Ref(weights), y = Ref(y), u = Ref(u), g = Ref(g), act, low,
       train, none, seqs](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x), dweights = tape.make_grad(c, weights);
        if (!none)
          product(c, low,
                  ExpertsBwd{.dy = tape.grad(y).view(),
                             .x = x.view(),
                             .experts = experts.view(),
                             .weights = weights.view(),
                             .up = up_,
                             .gate = gate_,
                             .down = down_,
                             .u = u.view(),
                             .g = g.view(),
                             .dx = dx.mut(),
                             .dweights = dweights.mut(),
                             .dup = up_grad_,
                             .dgate = gate_grad_,
                             .ddown = down_grad_,
                             .seqs = seqs,
                             .act = act,
                             .train = train},
                  seqs ? seqs->seqs : std::span<const Seq>());
        tape.add_grad(c, x, dx);
        tape.add_grad(c, weights, dweights);
      });
  if (run.observer) show(run, params_, {x, experts, weights, u, g}, act);
  return y;
}

// As mix(), by the ranks that have the experts, for this rank's share of the tokens; zeros for the others.
Tensor Moe::mix_on_ranks(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out) {
  const Range part = shared_out(run, x.dim(0));
  const ExpertRows rows = to_experts(run, take_rows(run, x, part), take_rows(run, experts, part),
                                     take_rows(run, weights, part), spec_.experts);
  const Tensor y = mix(run, rows.x, rows.experts, rows.weights, DType::f32);
  return place_rows(run, from_experts(run, rows, y, part.count, out), part, x.dim(0));
}

// As mix(), of the slots whose experts this rank has, in their order; 0 for a token that chose none of them.
Tensor Moe::mix_own(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out) {
  CHECK(!run.ctx.tape, "a part of the experts' outputs on a tape");
  const int64_t tokens = x.dim(0), width = x.dim(1);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < tokens * spec_.top_k; ++i) {
    const int64_t e = experts.view().as<int32_t>()[i] - spec_.own.begin;
    if (e >= 0 && e < spec_.own.count) slots.push_back(i);
  }
  const auto count = std::ssize(slots);
  const Tensor rows(run.ctx.arena, x.dtype(), {count, width}), chosen(run.ctx.arena, DType::i32, {count, 1}),
      factors(run.ctx.arena, DType::f32, {count, 1}), y(run.ctx.arena, DType::f32, {tokens, width});
  for (int64_t row = 0; row < count; ++row) {
    const int64_t slot = slots[static_cast<size_t>(row)];
    copy_rows(x.view().slice(0, slot / spec_.top_k, 1), rows.mut().slice(0, row, 1));
    *chosen.mut().as<int32_t>(row) = experts.view().as<int32_t>()[slot] - static_cast<int32_t>(spec_.own.begin);
    *factors.mut().as<float>(row) = weights.view().as<float>()[slot];
  }
  const Tensor parts = mix(run, rows, chosen, factors, DType::f32);
  fill(y.mut(), 0);
  for (int64_t row = 0; row < count; ++row) {
    float* to = y.mut().as<float>(slots[static_cast<size_t>(row)] / spec_.top_k);
    const float* from = parts.view().as<float>(row);
    for (int64_t c = 0; c < width; ++c) to[c] += from[c];
  }
  return converted(run, y, out);
}

// As mix(), where ranks divide the channels of what is not latent.
Tensor Moe::mix_channels(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out) {
  const bool parts = spec_.over_hidden;
  const Tensor each = parts ? to_parts(run, *run.hidden, weights) : weights;
  if (spec_.latent == 0) return own_channels(run, mix(run, gather_channels(run, x, parts), experts, each, out), parts);
  if (!parts) return mix(run, x, experts, each, out);
  const Tensor y = mix(run, to_parts(run, *run.hidden, x), experts, each, DType::f32);
  return converted(run, sum_of_parts(run, *run.hidden, y), out);
}

Tensor Moe::forward(Run& run, const Tensor& x) {
  Tensor weights;
  Tensor experts = route(run, x, weights);
  if (run.routers && run.routers->capacity > 0)
    experts = within_capacity(run, run.routers->layers[layer], experts, weights, spec_.experts);
  const Tensor v = spec_.latent > 0 ? linear(run, x, params_.latent_in, run.numerics.products) : x;
  const DType out = spec_.latent > 0 ? run.numerics.products : DType::f32;
  const Tensor routed = run.hidden            ? mix_channels(run, v, experts, weights, out)
                        : run.experts         ? mix_on_ranks(run, v, experts, weights, out)
                        : spec_.own.count > 0 ? mix_own(run, v, experts, weights, out)
                                              : mix(run, v, experts, weights, out);
  const Tensor y = spec_.latent > 0 ? linear(run, routed, params_.latent_out) : routed;
  return shared_ ? add(run, y, shared_->forward(run, x)) : y;
}

void Moe::params(std::vector<Param*>& out) {
  for (Param* p : {&params_.router, &params_.router_bias, &params_.latent_in, &params_.latent_out}) {
    if (p->value) out.push_back(p);
  }
  for (auto* list : {&params_.up, &params_.gate, &params_.down}) {
    for (Param& p : *list) out.push_back(&p);
  }
  if (shared_) shared_->params(out);
}

// Experts may be split along their width, or each belong to one rank as a whole (Cut::whole_experts), or both
// (ExpertCut).
MoeParams load_moe(const BlockSource& source, const MoeSpec& spec) {
  using enum Shard::Axis;
  const int64_t inside = spec.expert_hidden();
  const int64_t units = spec.width % 16 == 0 ? spec.width / 16 : spec.width;  // as in load_mlp
  const Shard none{.axis = whole}, outputs{.axis = rows, .units = units};
  const BlockSource::Experts experts{spec.experts, spec.own.count > 0 ? spec.own : Range{0, spec.experts}};
  MoeParams p;
  p.router = source.get(ParamRole::router, {spec.experts, spec.hidden}, none);
  if (spec.router == RouterKind::sigmoid) p.router_bias = source.get(ParamRole::router_bias, {spec.experts}, none);
  p.up = source.experts(ParamRole::expert_up, experts, spec.width, inside, outputs);
  if (spec.gated) p.gate = source.experts(ParamRole::expert_gate, experts, spec.width, inside, outputs);
  p.down = source.experts(ParamRole::expert_down, experts, inside, spec.width, {.axis = cols, .units = units});
  if (spec.latent > 0) {
    p.latent_in = source.get(ParamRole::latent_in, {spec.latent, spec.hidden}, none);
    p.latent_out = source.get(ParamRole::latent_out, {spec.hidden, spec.latent}, none);
  }
  if (spec.shared_width > 0)
    p.shared = load_mlp(source.shared(), {.hidden = spec.hidden, .width = spec.shared_width, .gated = spec.gated});
  return p;
}

}  // namespace braid::nn
