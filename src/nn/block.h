// A block: one mixer with its weights, the same object for training, prefill and decode. Blocks see flat [T, D]
// activations with a SeqMap; they never see files, formats or families.
#pragma once
#include <vector>

#include "core/param.h"
#include "core/tensor.h"
#include "nn/run.h"
#include "nn/state.h"

namespace braid::nn {

class Block {
 public:
  virtual ~Block() = default;
  // x [T, D] normed, in Numerics::products -> [T, D] F32, to be added to the residual stream.
  virtual Tensor forward(Run& run, const Tensor& x) = 0;
  virtual void params(std::vector<Param*>& out) = 0;
  virtual StateShape state_shape() const { return {}; }

  int layer = 0;         // index in the model, as in the files
  int state_index = -1;  // in StateView::blocks; -1: no state
};

}  // namespace braid::nn
