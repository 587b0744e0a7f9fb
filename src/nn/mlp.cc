#include "nn/mlp.h"

#include "nn/ops.h"

namespace braid::nn {
namespace {

Param* present(Param& p) { return p.value ? &p : nullptr; }

}  // namespace

Tensor Mlp::forward(Run& run, const Tensor& x) {
  const Tensor up = linear(run, x, params_.up, run.numerics.activations, present(params_.up_bias));
  Tensor gate;
  if (spec_.gated) gate = linear(run, x, params_.gate, run.numerics.activations, present(params_.gate_bias));
  const Tensor h = act(run, up, gate, spec_.act);
  return linear(run, h, params_.down, DType::f32, present(params_.down_bias));
}

void Mlp::params(std::vector<Param*>& out) {
  for (Param* p :
       {&params_.up, &params_.gate, &params_.down, &params_.up_bias, &params_.gate_bias, &params_.down_bias}) {
    if (p->value) out.push_back(p);
  }
}

Tensor LinearBlock::forward(Run& run, const Tensor& x) { return linear(run, x, weight_); }

MlpParams load_mlp(const BlockSource& source, const MlpSpec& spec) {
  using enum Shard::Axis;
  // Columns of `down` that share a scale in NVFP4 stay together.
  const int64_t units = spec.width % 16 == 0 ? spec.width / 16 : spec.width;
  const Shard outputs{.axis = rows, .units = units};
  MlpParams p;
  if (source.has(ParamRole::gate_up)) {
    CHECK(spec.gated && !spec.bias, "{} fused rows", 2 * spec.width);
    const Segment gate{"gate", 0, spec.width, units}, up{"up", spec.width, spec.width, units};
    const Param w = source.get(ParamRole::gate_up, {2 * spec.width, spec.hidden}, outputs, {gate, up});
    p.gate = part_of(w, gate, w.name + ".gate", ParamRole::gate);
    p.up = part_of(w, up, w.name + ".up", ParamRole::up);
  } else {
    p.up = source.get(ParamRole::up, {spec.width, spec.hidden}, outputs);
    if (spec.bias) p.up_bias = source.bias(ParamRole::up, spec.width, outputs);
    if (spec.gated) p.gate = source.get(ParamRole::gate, {spec.width, spec.hidden}, outputs);
    if (spec.gated && spec.bias) p.gate_bias = source.bias(ParamRole::gate, spec.width, outputs);
  }
  p.down = source.get(ParamRole::down, {spec.hidden, spec.width}, {.axis = cols, .units = units});
  if (spec.bias) p.down_bias = source.bias(ParamRole::down, spec.hidden, {.axis = whole});
  return p;
}

}  // namespace braid::nn
