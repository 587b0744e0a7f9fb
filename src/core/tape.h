// The tape: what a forward pass did, so that it can be walked back. A node is a copy of the op's contract struct with
// its bytes and FLOPs; replaying it recomputes its outputs. Blocks call taped ops from the first day; without a tape in
// the Ctx nothing is recorded. Activation gradients overwrite; where a value is used twice its gradients are summed
// here.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/op.h"

namespace braid {

class Tape {
 public:
  struct Node {
    const char* name;
    int64_t bytes;
    double flops;
    std::function<void(Ctx&)> replay;
    std::function<void(Ctx&, Tape&)> backward;
  };

  // The closures keep alive, by holding Tensors, whatever the node's views point at.
  template <class Op>
  void record(const Op& op, std::function<void(Ctx&, Tape&)> backward) {
    nodes_.push_back({Op::name, bytes_of(op), op.flops(), [op](Ctx& ctx) { run(ctx, op); }, std::move(backward)});
  }

  // Gradient of `value`, or an empty Tensor when nothing downstream used it.
  Tensor grad(const Tensor& value) const;
  // Adds to the gradient of `value`. The first one is taken as it is and later ones are summed into it: two values must
  // not be given the same Tensor.
  void add_grad(const Tensor& value, Tensor grad);

  // Walks the nodes back from `loss`, whose gradient the caller has given.
  void backward(Ctx& ctx);

  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, Tensor> grads_;  // by Tensor::id
};

}  // namespace braid
