#include "nn/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/attention/attention.h"
#include "nn/context_parallel.h"
#include "nn/ops.h"
#include "nn/ring_attention.h"
#include "sys/error.h"

namespace braid::nn {

void RopeTable::ensure(int64_t positions) {
  if (spec_.positions_max > 0 && positions > spec_.positions_max)
    fail("rope", {.what = "a sequence is longer than dynamic RoPE scaling is supported for",
                  .got = fmt::format("{} tokens", positions),
                  .expected = fmt::format("at most {} (max_position_embeddings)", spec_.positions_max)});
  if (positions <= positions_) return;
  constexpr int64_t kFirst = 256;
  positions_ = std::max({positions, 2 * positions_, kFirst});
  const auto values = static_cast<size_t>(positions_ * (spec_.dim / 2));
  cos_.resize(values);
  sin_.resize(values);
  const Shape shape{positions_, spec_.dim / 2};
  rope_tables(spec_.options, mut_view_of(cos_.data(), shape), mut_view_of(sin_.data(), shape));
}

Attention::Attention(const AttentionSpec& spec, AttentionParams params, std::shared_ptr<RopeTable> rope)
    : spec_(spec), params_(std::move(params)), rope_(std::move(rope)) {}

Tensor Attention::project(Run& run, const Tensor& x, Param& w, Param& bias, Param& norm, int64_t heads) {
  const int64_t tokens = x.dim(0);
  Tensor y = linear(run, x, w, run.numerics.activations, bias.value ? &bias : nullptr);
  if (norm.value) {
    y = rms_norm(run, y.reshaped({tokens * heads, spec_.head_dim}), norm,
                 {.eps = spec_.eps, .out = run.numerics.activations});
  }
  return y.reshaped({tokens, heads, spec_.head_dim});
}

// In place, or on a copy if a tape may recompute it.
Tensor Attention::rotate(Run& run, Tensor x) {
  if (!rope_) return x;
  const View cos = rope_->cos(), sin = rope_->sin();
  const bool adjacent = rope_->adjacent();
  if (!run.ctx.tape) {
    braid::run(run.ctx, RopeFwd{.x = x.mut(), .cos = cos, .sin = sin, .seqs = &run.seqs, .adjacent = adjacent});
    return x;
  }
  const Tensor y(run.ctx.arena, x.dtype(), x.shape());
  taped(
      run.ctx, "rope", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), cos, sin, adjacent, seqs = &run.seqs](Ctx& c) {
        if (!c.dry) std::memcpy(y.mut().data, x.view().data, static_cast<size_t>(x.view().bytes()));
        braid::run(c, RopeFwd{.x = y.mut(), .cos = cos, .sin = sin, .seqs = seqs, .adjacent = adjacent});
      },
      [x = Ref(x), y = Ref(y), cos, sin, adjacent, seqs = &run.seqs](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x);
        if (!c.dry) std::memcpy(dx.mut().data, dy.view().data, static_cast<size_t>(dy.view().bytes()));
        braid::run(c, RopeBwd{.dx = dx.mut(), .cos = cos, .sin = sin, .seqs = seqs, .adjacent = adjacent});
        tape.add_grad(c, x, dx);
      });
  return y;
}

// Over the cache if there is one, else over the keys and values of this pass.
Tensor Attention::attend(Run& run, const SeqMap& seqs, const Tensor& q, const Tensor& k, const Tensor& v) {
  Ctx& ctx = run.ctx;
  const Tensor y(ctx.arena, run.numerics.products, q.shape());
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  const BlockState state = run.block_state(state_index);
  if (state.k_pages) {
    const bool scaled = state.k_pages.dtype == DType::f8_e4m3;
    const float k_factor = scaled ? params_.k_factor : 1, v_factor = scaled ? params_.v_factor : 1;
    braid::run(ctx, KvStore{.k = k.view(),
                            .v = v.view(),
                            .k_pages = state.k_pages,
                            .v_pages = state.v_pages,
                            .k_scales = state.k_scales,
                            .v_scales = state.v_scales,
                            .page_table = run.state.page_table,
                            .seqs = &seqs,
                            .k_factor = k_factor,
                            .v_factor = v_factor});
    braid::run(ctx, AttentionFwd{.q = q.view(),
                                 .k_pages = state.k_pages,
                                 .v_pages = state.v_pages,
                                 .k_scales = state.k_scales,
                                 .v_scales = state.v_scales,
                                 .page_table = run.state.page_table,
                                 .y = y.mut(),
                                 .seqs = &seqs,
                                 .scale = scale * k_factor,
                                 .v_factor = v_factor});
    return y;
  }
  const Tensor lse = ctx.tape ? Tensor(ctx.arena, DType::f32, {q.dim(0), q.dim(1)}) : Tensor();
  const bool train = run.numerics.product_class == ProductClass::packed;
  taped(
      ctx, "attention", {.in = {q, k, v}, .out = {y, lse}, .saved = {q, k, v, y, lse}},
      [q = Ref(q), k = Ref(k), v = Ref(v), y = Ref(y), lse = Ref(lse), seqs = &seqs, train, scale](Ctx& c) {
        const Shape page{1, k.shape()[0], k.shape()[1], k.shape()[2]};
        braid::run(c, AttentionFwd{.q = q.view(),
                                   .k_pages = View(k.view().data, k.view().dtype, page),
                                   .v_pages = View(v.view().data, v.view().dtype, page),
                                   .y = y.mut(),
                                   .lse = lse.mut(),
                                   .seqs = seqs,
                                   .train = train,
                                   .scale = scale});
      },
      [q = Ref(q), k = Ref(k), v = Ref(v), y = Ref(y), lse = Ref(lse), seqs = &seqs, scale](Ctx& c, Tape& tape) {
        const Tensor dq = tape.make_grad(c, q), dk = tape.make_grad(c, k), dv = tape.make_grad(c, v);
        braid::run(c, AttentionBwd{.dy = tape.grad(y).view(),
                                   .q = q.view(),
                                   .k = k.view(),
                                   .v = v.view(),
                                   .y = y.view(),
                                   .lse = lse.view(),
                                   .dq = dq.mut(),
                                   .dk = dk.mut(),
                                   .dv = dv.mut(),
                                   .seqs = seqs,
                                   .scale = scale});
        tape.add_grad(c, q, dq);
        tape.add_grad(c, k, dk);
        tape.add_grad(c, v, dv);
      });
  return y;
}

// With context parallelism: the keys of all ranks in turn, or all tokens of this rank's heads.
Tensor Attention::attend_across(Run& run, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t rows = q.dim(0), width = spec_.head_dim;
  if (run.context->ring) return ring_attention(run, q, k, v, 1.0f / std::sqrt(static_cast<float>(width)));
  const auto exchanged = [&](const Tensor& x) {
    const int64_t heads = x.dim(1);
    const Tensor y = tokens_to_heads(run, x.reshaped({rows, heads * width}), {{"heads", 0, heads * width, heads}});
    return y.reshaped({y.dim(0), y.dim(1) / width, width});
  };
  const Tensor y = attend(run, *run.context->whole, exchanged(q), exchanged(k), exchanged(v));
  const int64_t inner = spec_.heads * width;
  return heads_to_tokens(run, y.reshaped({y.dim(0), y.dim(1) * width}), {{"heads", 0, inner, spec_.heads}});
}

Tensor Attention::forward(Run& run, const Tensor& x) {
  if (rope_) {
    int64_t positions = 0;
    for (const Seq& s : run.seqs.seqs) positions = std::max(positions, s.pos0 + s.len);
    rope_->ensure(positions);
  }
  Param none;
  const Tensor q = rotate(run, project(run, x, params_.q, params_.q_bias, params_.q_norm, spec_.heads)),
               k = rotate(run, project(run, x, params_.k, params_.k_bias, params_.k_norm, spec_.kv_heads)),
               v = project(run, x, params_.v, params_.v_bias, none, spec_.kv_heads);
  const Tensor y = (run.context ? attend_across(run, q, k, v) : attend(run, run.seqs, q, k, v))
                       .reshaped({x.dim(0), spec_.heads * spec_.head_dim});
  return linear(run, y, params_.o, DType::f32, params_.o_bias.value ? &params_.o_bias : nullptr);
}

void Attention::params(std::vector<Param*>& out) {
  for (Param* p : {&params_.q, &params_.k, &params_.v, &params_.o, &params_.q_bias, &params_.k_bias, &params_.v_bias,
                   &params_.o_bias, &params_.q_norm, &params_.k_norm}) {
    if (p->value) out.push_back(p);
  }
}

AttentionParams load_attention(const BlockSource& source, const AttentionSpec& spec) {
  using enum Shard::Axis;
  const int64_t q_width = spec.heads * spec.head_dim, kv_width = spec.kv_heads * spec.head_dim;
  const Shard heads{.axis = rows, .units = spec.heads, .shared = spec.kv_heads}, none{.axis = whole};
  const Segment q{"q", 0, q_width, spec.heads}, k{"k", q_width, kv_width, spec.kv_heads},
      v{"v", q_width + kv_width, kv_width, spec.kv_heads}, alone{"kv", 0, kv_width, spec.kv_heads};
  const auto bias_part = [](const Param& all, const Segment& segment, ParamRole of) {
    Param p = part_of(all, segment, fmt::format("{}.{}", all.name, segment.name), ParamRole::bias);
    p.of = of;
    return p;
  };
  AttentionParams p;
  if (source.has(ParamRole::qkv)) {
    const int64_t width = q_width + 2 * kv_width;
    const Param w = source.get(ParamRole::qkv, {width, spec.hidden}, heads, {q, k, v});
    p.q = part_of(w, q, w.name + ".q", ParamRole::q);
    p.k = part_of(w, k, w.name + ".k", ParamRole::k);
    p.v = part_of(w, v, w.name + ".v", ParamRole::v);
    if (spec.bias) {
      const Param b = source.bias(ParamRole::qkv, width, heads, {q, k, v});
      p.q_bias = bias_part(b, q, ParamRole::q);
      p.k_bias = bias_part(b, k, ParamRole::k);
      p.v_bias = bias_part(b, v, ParamRole::v);
    }
  } else {
    p.q = source.get(ParamRole::q, {q_width, spec.hidden}, heads);
    p.k = source.get(ParamRole::k, {kv_width, spec.hidden}, heads, {alone});
    p.v = source.get(ParamRole::v, {kv_width, spec.hidden}, heads, {alone});
    if (spec.bias) {
      p.q_bias = source.bias(ParamRole::q, q_width, heads);
      p.k_bias = source.bias(ParamRole::k, kv_width, heads, {alone});
      p.v_bias = source.bias(ParamRole::v, kv_width, heads, {alone});
    }
  }
  if (spec.qk_bias) {
    const Param b = source.get(ParamRole::bias, {2, 1, spec.heads, spec.head_dim}, heads, {q, k}, ParamRole::qkv);
    p.q_bias = bias_part(b, q, ParamRole::q);
    p.k_bias = bias_part(b, k, ParamRole::k);
  }
  p.o = source.get(ParamRole::attention_out, {spec.hidden, q_width},
                   {.axis = cols, .units = spec.heads, .shared = spec.kv_heads});
  if (spec.out_bias) p.o_bias = source.bias(ParamRole::attention_out, spec.hidden, none);
  if (spec.qk_norm) {
    p.q_norm = source.get(ParamRole::q_norm, {spec.head_dim}, none);
    p.k_norm = source.get(ParamRole::k_norm, {spec.head_dim}, none);
  }
  p.k_factor = source.cache_factor(ParamRole::k);
  p.v_factor = source.cache_factor(ParamRole::v);
  return p;
}

}  // namespace braid::nn
