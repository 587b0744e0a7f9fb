#include "nn/norm.h"

#include "nn/ops.h"

namespace braid::nn {

Tensor Norm::forward(Run& run, const Tensor& x, DType out) {
  if (centred) return layer_norm(run, x, weight, bias, eps, out);
  return rms_norm(run, x, weight, {.eps = eps, .out = out});
}

void Norm::params(std::vector<Param*>& list) {
  list.push_back(&weight);
  if (centred) list.push_back(&bias);
}

Norm load_rms_norm(ParamSource& source, const std::string& name, int64_t width, float eps, const char* keys) {
  Norm norm;
  norm.weight = source.vector(name, {width}, keys);
  norm.eps = eps;
  return norm;
}

Norm load_layer_norm(ParamSource& source, const std::string& weight, const std::string& bias, int64_t width, float eps,
                     bool one_plus, const char* keys) {
  Norm norm;
  norm.weight = source.vector(weight, {width}, keys, one_plus ? 1.0f : 0.0f);
  norm.bias = source.vector(bias, {width}, keys);
  norm.centred = true;
  norm.eps = eps;
  return norm;
}

}  // namespace braid::nn
