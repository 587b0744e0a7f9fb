// Gradients that are summed over ranks while the backward pass goes on (parallel.overlap): when that of a layer is
// over, in the last part of a batch, its gradients are final, and their collective is on its way while the layers below
// compute; a thread makes it progress (comm::Group::drive). As PyTorch's DDP does with buckets (Li et al. 2020,
// arXiv 2006.15704, section 3.2.3), with a layer for a bucket.
//
// No bit differs from sums of the whole array at the end. With zero = 1 a rank's block of a layer is where its part of
// the array and the layer meet, so that an element belongs to the same block of the same algorithm; with zero = 0 only
// algorithms may sum that add up every element in the same order.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "models/master_weights.h"
#include "nn/layer_passes.h"
#include "train/families.h"

namespace braid::train {

// How long a rank waited for gradients of others.
class Waits {
 public:
  void wait(comm::Handle& handle);
  double seconds() const { return seconds_; }

 private:
  double seconds_ = 0;
};

class Overlap final : public nn::LayerPasses {
 public:
  // The whole array is one family; all outlive this. `divides`: zero = 1, its ranks keep a part each. `parts`: of a
  // batch. Error for an algorithm that adds up in another order when the vector is another.
  Overlap(models::MasterWeights& masters, const Family& family, bool divides, int64_t parts, Waits& waits);

  void begin(int64_t, bool) override {}
  void end(int64_t layer, bool backward) override;
  void begin_passes() { passes_.clear(); }
  // After the passes of a step and sum_uses(): what no layer has alone, and then waits for everything.
  void finish();

 private:
  void start(const Range& elements);

  models::MasterWeights& masters_;
  const Family& family_;
  bool divides_;
  int64_t parts_;
  Waits& waits_;
  std::string algorithm_;  // of the whole array
  std::map<int64_t, std::vector<Range>> layers_;
  std::vector<Range> rest_;
  std::map<int64_t, int64_t> passes_;  // backward, by layer
  std::vector<comm::Handle> started_;
};

}  // namespace braid::train
