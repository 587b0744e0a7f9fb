#include "nn/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"

namespace braid::nn {

void RopeTable::ensure(int64_t positions) {
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

Tensor Attention::project(Run& run, const Tensor& x, Param& w, Param& bias, Param& norm, int64_t heads, bool rotate) {
  const int64_t tokens = x.dim(0);
  Tensor y = linear(run.ctx, x, w, DType::f32, bias.value ? &bias : nullptr);
  if (norm.value) y = rms_norm(run.ctx, y.reshaped({tokens * heads, spec_.head_dim}), norm, {.eps = spec_.eps});
  y = y.reshaped({tokens, heads, spec_.head_dim});
  if (rotate && rope_) {
    braid::run(run.ctx, RopeFwd{.x = y.mut(), .cos = rope_->cos(), .sin = rope_->sin(), .seqs = &run.seqs});
  }
  return y;
}

Tensor Attention::forward(Run& run, const Tensor& x) {
  if (rope_) {
    int64_t positions = 0;
    for (const Seq& s : run.seqs.seqs) positions = std::max(positions, s.pos0 + s.len);
    rope_->ensure(positions);
  }
  const int64_t tokens = x.dim(0);
  Param none;
  const Tensor q = project(run, x, params_.q, params_.q_bias, params_.q_norm, spec_.heads, true);
  const Tensor k = project(run, x, params_.k, params_.k_bias, params_.k_norm, spec_.kv_heads, true);
  const Tensor v = project(run, x, params_.v, params_.v_bias, none, spec_.kv_heads, false);
  const BlockState& state = run.state.blocks[static_cast<size_t>(state_index)];
  braid::run(run.ctx, KvStore{.k = k.view(),
                              .v = v.view(),
                              .k_pages = state.k_pages,
                              .v_pages = state.v_pages,
                              .page_table = run.state.page_table,
                              .seqs = &run.seqs});
  const Tensor y(run.ctx.arena, run.act, {tokens, spec_.heads, spec_.head_dim});
  braid::run(run.ctx, AttentionFwd{.q = q.view(),
                                   .k_pages = state.k_pages,
                                   .v_pages = state.v_pages,
                                   .page_table = run.state.page_table,
                                   .y = y.mut(),
                                   .seqs = &run.seqs,
                                   .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim))});
  return linear(run.ctx, y.reshaped({tokens, spec_.heads * spec_.head_dim}), params_.o, DType::f32,
                params_.o_bias.value ? &params_.o_bias : nullptr);
}

void Attention::params(std::vector<Param*>& out) {
  for (Param* p : {&params_.q, &params_.k, &params_.v, &params_.o, &params_.q_bias, &params_.k_bias, &params_.v_bias,
                   &params_.o_bias, &params_.q_norm, &params_.k_norm}) {
    if (p->value) out.push_back(p);
  }
}

AttentionParams load_attention(ParamSource& source, const std::string& prefix, const AttentionSpec& spec) {
  const int64_t q_width = spec.heads * spec.head_dim, kv_width = spec.kv_heads * spec.head_dim;
  constexpr const char* kQ = "num_attention_heads * head_dim, hidden_size";
  constexpr const char* kKv = "num_key_value_heads * head_dim, hidden_size";
  constexpr const char* kO = "hidden_size, num_attention_heads * head_dim";
  AttentionParams p;
  p.q = source.matrix(prefix + "q_proj.weight", q_width, spec.hidden, kQ);
  p.k = source.matrix(prefix + "k_proj.weight", kv_width, spec.hidden, kKv);
  p.v = source.matrix(prefix + "v_proj.weight", kv_width, spec.hidden, kKv);
  p.o = source.matrix(prefix + "o_proj.weight", spec.hidden, q_width, kO);
  if (spec.bias) {
    p.q_bias = source.vector(prefix + "q_proj.bias", {q_width}, kQ);
    p.k_bias = source.vector(prefix + "k_proj.bias", {kv_width}, kKv);
    p.v_bias = source.vector(prefix + "v_proj.bias", {kv_width}, kKv);
  }
  if (spec.out_bias) p.o_bias = source.vector(prefix + "o_proj.bias", {spec.hidden}, kO);
  if (spec.qk_norm) {
    p.q_norm = source.vector(prefix + "q_norm.weight", {spec.head_dim}, "head_dim");
    p.k_norm = source.vector(prefix + "k_norm.weight", {spec.head_dim}, "head_dim");
  }
  return p;
}

}  // namespace braid::nn
