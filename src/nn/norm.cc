#include "nn/norm.h"

#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"

namespace braid::nn {

Tensor Norm::forward(Run& run, const Tensor& x, DType out) {
  if (!centred) return rms_norm(run.ctx, x, weight, {.eps = eps, .out = out});
  const Tensor y(run.ctx.arena, out, x.shape());
  braid::run(run.ctx,
             LayerNormFwd{.x = x.view(), .w = vector_of(weight), .bias = vector_of(bias), .y = y.mut(), .eps = eps});
  return y;
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
