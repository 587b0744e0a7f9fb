// ZeRO, stages 2 and 3 (arXiv 1910.02054, section 5), layer by layer. When the backward pass of a layer is over, its
// gradients are reduced to the ranks that update them, and a rank keeps the sums of its own part alone. Stage 3 divides
// the weights too: those of a layer are gathered before its forward pass, freed after it, and gathered once more
// for its backward pass. What no layer has alone (tables, head, final norm, prediction block) is gathered for all
// passes of a step, and its gradients are summed after them (mesh.h). With parallel.overlap the gradients of one layer
// are on their way while the one below computes: two layers of them are whole then.
//
// Addresses do not change (models::Parted): freed weights read as zeros.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "models/master_weights.h"
#include "nn/layer_passes.h"
#include "train/families.h"
#include "train/overlap.h"

namespace braid::train {

class LayerShards final : public nn::LayerPasses {
 public:
  // All outlive this. `weights`: of stage 3.
  struct Rules {
    bool weights = false, overlap = false;
    int threads = 1;
  };
  LayerShards(models::MasterWeights& masters, std::span<const Family> families, std::span<const PartialSum> partial,
              const Rules& rules, Waits& waits);

  void begin(int64_t layer, bool backward) override;
  void end(int64_t layer, bool backward) override;
  // Around the passes of a step, or of an evaluation.
  void begin_passes() { gather(rest_); }
  void end_passes() {
    finish();
    drop(rest_);
  }

 private:
  struct Unit {
    std::vector<const Family*> families{};
    std::vector<const PartialSum*> partial{};
  };
  void gather(const Unit& unit);
  void drop(const Unit& unit);
  void set_aside(const Unit& unit);
  void sum(const Unit& unit);
  void finish();

  models::MasterWeights& masters_;
  Rules rules_;
  Waits& waits_;
  std::map<int64_t, Unit> layers_;
  Unit rest_;
  // Of the parts of layers that are this rank's, from the parts of the batch before this one: of the layer in its
  // backward pass, and of the one whose gradients are on their way.
  std::vector<float> sums_, before_;
  const Unit* summed_ = nullptr;  // the latter
  std::vector<comm::Handle> started_;
};

// Everything of the family that is not this rank's.
std::vector<Range> others_of(const Family& family);

}  // namespace braid::train
