// Calibration of quantised activations for a model and a text: the largest magnitude that each matrix is multiplied by
// (amax; docs/internals/formats.md, FP8 and NVFP4).
#pragma once
#include <map>
#include <span>

#include "core/param.h"
#include "core/view.h"
#include "kernels/experts/experts.h"

namespace braid::nn {

struct Calibration {
  std::map<const Param*, float> amax{};  // NaN and infinity count as infinity

  void see(const Param& w, const View& x);  // x [T, R] F32 or BF16, as below
  // Row t of x [T, R] counts for its experts [T, K], which index w.
  void see_rows(std::span<const Param> w, const View& x, const View& experts);
  // The inputs of the down products: the activation of u [T, K, F], times g where there are gates.
  void see_hidden(std::span<const Param> down, const View& u, const View& g, const View& experts, ExpertAct act);
};

}  // namespace braid::nn
