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

MlpParams load_mlp(ParamSource& source, const std::string& prefix, const MlpSpec& spec, const char* keys) {
  MlpParams p;
  p.up = source.matrix(prefix + "up_proj.weight", spec.width, spec.hidden, keys);
  if (spec.gated) p.gate = source.matrix(prefix + "gate_proj.weight", spec.width, spec.hidden, keys);
  p.down = source.matrix(prefix + "down_proj.weight", spec.hidden, spec.width, keys);
  if (spec.bias) {
    p.up_bias = source.vector(prefix + "up_proj.bias", {spec.width}, keys);
    if (spec.gated) p.gate_bias = source.vector(prefix + "gate_proj.bias", {spec.width}, keys);
    p.down_bias = source.vector(prefix + "down_proj.bias", {spec.hidden}, keys);
  }
  return p;
}

}  // namespace braid::nn
