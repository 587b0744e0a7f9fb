// A model whose parameters are owned and have gradients: what training, fine-tuning and `braid grad` hold. Every stored
// tensor has an FP32 master, its gradient, and with BF16 products a rounded copy that the blocks read; optimisers and
// files see the list of tensors, blocks see Params that point into them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/tensor.h"
#include "io/model_path.h"
#include "models/model.h"

namespace braid::models {

struct TrainTensor {
  std::string name;             // as the files spell it
  Shape shape{};                // as the files hold it
  bool transposed = false;      // the files hold [cols, rows]
  float plus = 0;               // the master is this much more than what the files hold
  Tensor master{};              // F32 [rows, cols]; stacked experts one below the other
  Tensor working{};             // BF16, or empty when the blocks read the master
  std::vector<Tensor> grads{};  // F32, one a use; all but the first are summed into it by sum_uses
};

struct Trainable {
  std::shared_ptr<Arena> arena = std::make_shared<Arena>();
  std::vector<TrainTensor> tensors;
  std::unique_ptr<Model> model;

  void zero_grads(int threads);
  // The gradient of every tensor is in grads[0]; of its other uses nothing is left.
  void sum_uses(int threads);
  // After the masters changed: the copies that the blocks read.
  void refresh(int threads);
};

// Of a folder's files, quantised ones decoded. `operands` is F32 or BF16: what products read.
Trainable load_trainable(const io::ModelPath& path, DType operands);

// A tensor of the file's shape from one of the master's (the master itself, a gradient, a moment), F32; `plus` is taken
// off when `is_value`.
std::vector<float> as_stored(const TrainTensor& tensor, const View& values, bool is_value);

}  // namespace braid::models
