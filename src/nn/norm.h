// The norm before a block: RMSNorm, or LayerNorm when it has a bias. For LayerNorm1p one is added to the stored weight
// when it is loaded, so kernels need not know.
#pragma once
#include "core/param.h"
#include "nn/param_source.h"
#include "nn/run.h"

namespace braid::nn {

struct Norm {
  Param weight{};
  Param bias{};          // with a bias: LayerNorm; without: RMSNorm
  bool centred = false;  // LayerNorm
  float eps = 1e-5f;

  Tensor forward(Run& run, const Tensor& x, DType out);
  void params(std::vector<Param*>& list);
};

struct NormSpec {
  int64_t width = 0;
  float eps = 1e-5f;
  bool centred = false, one_plus = false;
};
// `info` names the norm, without ".weight".
Norm load_norm(ParamSource& source, ParamInfo info, const NormSpec& spec);

}  // namespace braid::nn
