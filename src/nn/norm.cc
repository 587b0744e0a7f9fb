#include "nn/norm.h"

#include "nn/hidden_parallel.h"
#include "nn/ops.h"

namespace braid::nn {

Tensor Norm::forward(Run& run, const Tensor& x, DType out) {
  if (run.hidden) return rms_norm_part(run, x, weight, eps, out);
  if (centred) return layer_norm(run, x, weight, bias, eps, out);
  return rms_norm(run, x, weight, {.eps = eps, .out = out});
}

void Norm::params(std::vector<Param*>& list) {
  list.push_back(&weight);
  if (centred) list.push_back(&bias);
}

Norm load_norm(ParamSource& source, ParamInfo info, const NormSpec& spec) {
  info.shard.axis = Shard::Axis::whole;
  const auto ask = [&](const char* leaf, ParamRole role, float plus) {
    ParamRequest r{info, {spec.width}, "hidden_size"};
    r.name += leaf;
    r.role = role;
    if (role == ParamRole::bias) r.of = ParamRole::norm;
    r.plus = plus;
    return source.get(r);
  };
  Norm norm{.centred = spec.centred, .eps = spec.eps};
  norm.weight = ask(".weight", ParamRole::norm, spec.one_plus ? 1.0f : 0.0f);
  if (spec.centred) norm.bias = ask(".bias", ParamRole::bias, 0);
  return norm;
}

}  // namespace braid::nn
