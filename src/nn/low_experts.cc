#include "nn/low_experts.h"

#include <cstring>

#include "kernels/act/act.h"

namespace braid::nn {
namespace {

// The (token, slot) pairs of one sequence that chose an expert, as places in [T * K]; empty where none did.
Tensor picks_of(Ctx& ctx, const View& experts, const Seq& seq, size_t expert) {
  const int64_t k = experts.dim(1), begin = seq.start * k, end = begin + seq.len * k;
  const auto* chosen = experts.as<int32_t>();
  const auto is_it = [&](int64_t i) { return chosen[i] == static_cast<int32_t>(expert); };
  int64_t n = 0;
  for (int64_t i = begin; i < end; ++i) n += is_it(i) ? 1 : 0;
  if (n == 0) return {};
  const Tensor picks(ctx.arena, DType::i32, {n});
  auto* out = picks.mut().as<int32_t>();
  for (int64_t i = begin; i < end; ++i) {
    if (is_it(i)) *out++ = static_cast<int32_t>(i);
  }
  return picks;
}

// What one expert computes for its rows of one sequence.
class Group {
 public:
  Group(Ctx& ctx, const Tensor& picks, const Seq& seq, int64_t slots)
      : ctx_(ctx), picks_(picks), slots_(slots), one_{{.len = picks.dim(0), .pos0 = 0, .sample_id = seq.sample_id}} {}

  int64_t rows() const { return picks_.dim(0); }
  int64_t pick(int64_t i) const { return picks_.view().as<int32_t>()[i]; }
  std::span<const Seq> one() const { return one_; }
  Tensor make(DType dtype, int64_t width) const { return {ctx_.arena, dtype, {rows(), width}}; }

  // Rows of a [T, R] matrix, one a pick.
  Tensor gather(const View& from) const {
    const Tensor to = make(from.dtype, from.dim(1));
    const int64_t bytes = from.dim(1) * size_of(from.dtype);
    for (int64_t i = 0; i < rows(); ++i) {
      const std::byte* row = from.data + pick(i) / slots_ * from.stride(0) * size_of(from.dtype);
      std::memcpy(to.mut().data + i * bytes, row, static_cast<size_t>(bytes));
    }
    return to;
  }
  // Rows of a [T * K, R] matrix.
  void scatter(const Tensor& from, const Tensor& to) const {
    const int64_t width = from.dim(1);
    for (int64_t i = 0; i < rows(); ++i)
      std::memcpy(to.mut().as<float>(pick(i)), from.view().as<float>(i), static_cast<size_t>(width) * sizeof(float));
  }
  // Row i of the result is row i of `from` times the weight of its pick.
  Tensor weighted(const Tensor& from, const View& weights) const {
    const Tensor to = make(DType::f32, from.dim(1));
    for (int64_t i = 0; i < rows(); ++i) {
      const float w = weights.as<float>()[pick(i)];
      for (int64_t c = 0; c < from.dim(1); ++c) to.mut().as<float>(i)[c] = w * from.view().as<float>(i)[c];
    }
    return to;
  }

  Tensor forward(const LowWeight& low, const View& x, const Weight& w) const {
    const Tensor y = make(DType::f32, w.rows);
    product(ctx_, low, LinearFwd{.x = x, .w = w, .y = y.mut(), .train = true}, one_);
    return y;
  }
  Tensor backward_data(const LowWeight& low, const View& dy, const Weight& w) const {
    const Tensor dx = make(DType::f32, w.cols);
    product(ctx_, low, LinearBwdData{.dy = dy, .w = w, .dx = dx.mut()}, one_);
    return dx;
  }
  void backward_weight(const LowWeight& low, const View& dy, const View& x, const MutView& dw) const {
    product(ctx_, low, LinearBwdWeight{.dy = dy, .x = x, .dw = dw}, one_);
  }

 private:
  Ctx& ctx_;
  const Tensor& picks_;
  int64_t slots_;
  Seq one_[1];
};

template <class Body>
void for_each_group(Ctx& ctx, const View& experts, size_t count, std::span<const Seq> seqs, Body&& body) {
  for (size_t e = 0; e < count; ++e) {
    for (const Seq& s : seqs) {
      const Tensor picks = picks_of(ctx, experts, s, e);
      if (picks) body(e, Group(ctx, picks, s, experts.dim(1)));
    }
  }
}

// y_t = sum over slots of weights[t, j] parts[t, j], in slot order; without weights their sum.
void combine(const Tensor& parts, const View& weights, int64_t slots, const MutView& y) {
  for (int64_t t = 0; t < y.dim(0); ++t) {
    for (int64_t c = 0; c < y.dim(1); ++c) {
      float sum = 0;
      for (int64_t j = t * slots; j < (t + 1) * slots; ++j)
        sum += (weights ? weights.as<float>()[j] : 1.0f) * parts.view().as<float>(j)[c];
      if (y.dtype == DType::bf16) {
        y.as<Bf16>(t)[c] = to_bf16(sum);
      } else {
        y.as<float>(t)[c] = sum;
      }
    }
  }
}

Act act_of(ExpertAct act) { return act == ExpertAct::relu2 ? Act::relu2 : Act::silu; }

struct Hidden {
  Tensor x, up, gate, act;
};

template <class Op>
Hidden hidden_of(Ctx& ctx, const LowExperts& low, const Op& op, const Group& group, size_t e) {
  Hidden h{.x = group.gather(op.x), .up = {}, .gate = {}, .act = group.make(op.x.dtype, op.up[e].rows)};
  h.up = group.forward(low.find(low.up, e), h.x.view(), op.up[e]);
  if (!op.gate.empty()) h.gate = group.forward(low.find(low.gate, e), h.x.view(), op.gate[e]);
  run(ctx, ActFwd{.x = h.up.view(), .gate = h.gate.view(), .y = h.act.mut(), .kind = act_of(op.act)});
  return h;
}

}  // namespace

void product(Ctx& ctx, const LowExperts& low, const ExpertsFwd& op, std::span<const Seq> seqs) {
  if (!low) return run(ctx, op);
  const int64_t slots = op.experts.dim(1);
  const Tensor parts(ctx.arena, DType::f32, {op.x.dim(0) * slots, op.y.dim(1)});
  for_each_group(ctx, op.experts, op.up.size(), seqs, [&](size_t e, const Group& group) {
    const Hidden h = hidden_of(ctx, low, op, group, e);
    group.scatter(group.forward(low.find(low.down, e), h.act.view(), op.down[e]), parts);
  });
  combine(parts, op.weights, slots, op.y);
}

void product(Ctx& ctx, const LowExperts& low, const ExpertsBwd& op, std::span<const Seq> seqs) {
  if (!low) return run(ctx, op);
  const int64_t slots = op.experts.dim(1);
  const Tensor parts(ctx.arena, DType::f32, {op.x.dim(0) * slots, op.dx.dim(1)});
  for_each_group(ctx, op.experts, op.up.size(), seqs, [&](size_t e, const Group& group) {
    const LowWeight up = low.find(low.up, e), down = low.find(low.down, e);
    const Hidden h = hidden_of(ctx, low, op, group, e);
    const Tensor dy = group.gather(op.dy), q = group.backward_data(down, dy.view(), op.down[e]);
    for (int64_t i = 0; i < group.rows(); ++i) {
      double dot = 0;
      for (int64_t f = 0; f < q.dim(1); ++f)
        dot += static_cast<double>(q.view().as<float>(i)[f]) * element(h.act.view(), i * q.dim(1) + f);
      op.dweights.as<float>()[group.pick(i)] = static_cast<float>(dot);
    }
    if (!op.ddown.empty())
      group.backward_weight(down, group.weighted(dy, op.weights).view(), h.act.view(), op.ddown[e]);
    const Tensor dh = group.weighted(q, op.weights), du = group.make(DType::f32, q.dim(1)),
                 dg = h.gate ? group.make(DType::f32, q.dim(1)) : Tensor();
    run(ctx, ActBwd{.dy = dh.view(),
                    .x = h.up.view(),
                    .gate = h.gate.view(),
                    .dx = du.mut(),
                    .dgate = dg.mut(),
                    .kind = act_of(op.act)});
    const Tensor dx = group.backward_data(up, du.view(), op.up[e]);
    if (!op.dup.empty()) group.backward_weight(up, du.view(), h.x.view(), op.dup[e]);
    if (dg) {
      const LowWeight gate = low.find(low.gate, e);
      const Tensor more = group.backward_data(gate, dg.view(), op.gate[e]);
      for (int64_t i = 0; i < dx.view().count(); ++i) dx.mut().as<float>()[i] += more.view().as<float>()[i];
      if (!op.dgate.empty()) group.backward_weight(gate, dg.view(), h.x.view(), op.dgate[e]);
    }
    group.scatter(dx, parts);
  });
  combine(parts, {}, slots, op.dx);
}

}  // namespace braid::nn
