// What travels between ranks that share a batch while they compute (parallel.overlap). When the backward pass of a
// layer is over, in the last part of a batch, its gradients are final, and their sums are on their way while the layers
// below compute; the weights of a layer that other ranks have updated arrive while the one before it computes, in the
// first part of the next batch. A thread makes both progress (comm::Group::drive). As PyTorch's DDP does with buckets
// (Li et al. 2020, arXiv 2006.15704, section 3.2.3), with a layer for a bucket, and AxoNN on its grids (arXiv
// 2502.08145).
//
// No bit and no byte differs from what sums and gathers the whole array. Where ranks divide the state, a rank's block
// of a layer is where its part of the array and the layer meet, so that an element belongs to the same block of the
// same algorithm; what all of them have is summed by algorithms that add up every element in the same order.
#pragma once
#include <cstdint>
#include <map>
#include <span>
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
  struct Rules {
    bool divides = false;  // the ranks of the family keep a part of the state each, and update that
    int64_t parts = 1;     // of a batch
    int threads = 1;
  };
  // The whole array is one family; all outlive this. Error for an algorithm that adds up in another order when the
  // vector is another.
  Overlap(models::MasterWeights& masters, const Family& family, std::span<const PartialSum> partial, const Rules& rules,
          Waits& waits);

  void begin(int64_t layer, bool backward) override;
  void end(int64_t layer, bool backward) override;
  // Around the passes of a step, or of an evaluation.
  void begin_passes();
  void end_passes() { gather_rest(); }
  // After the passes of a step and sum_uses(): what no layer has alone, and then waits for everything.
  void finish();

  // After the optimiser: weights that other ranks updated will arrive with the next passes, or now.
  void gather_later();
  void gather_rest();

 private:
  struct Unit {
    std::vector<Range> runs{};
    std::vector<const PartialSum*> partial{};
    bool old = false;  // its weights, of which others were updated
    std::vector<comm::Handle> arriving{};
  };
  // Gradients of a unit, over one kind of ranks after the other.
  struct Sum {
    const Unit* unit = nullptr;
    int next = 0;
    std::vector<comm::Handle> started{};
  };
  bool has(const Unit& unit, int stage) const;
  bool start(Sum& sum);
  void start_scatter(Sum& sum);
  void start_copies(Sum& sum);
  Range own(const Range& run) const { return rules_.divides ? common(family_.own, run) : run; }

  void ask_for(Unit& unit);
  void arrive(Unit& unit);

  models::MasterWeights& masters_;
  const Family& family_;
  Rules rules_;
  Waits& waits_;
  std::string sums_, copies_, gathers_;  // algorithms of the whole array
  std::map<int64_t, Unit> layers_;
  Unit rest_;
  std::map<int64_t, int64_t> passes_;  // backward, by layer
  std::vector<Sum> under_way_;
};

}  // namespace braid::train
