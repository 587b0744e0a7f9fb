// The optimiser's state and one step of it over all masters: AdamW, or Muon for the matrices inside the model and AdamW
// for the rest (embeddings, head, Mamba's fused in_proj, everything that is not a matrix). Moments are stored in the
// order of the masters (models/master_weights.h). A gradient's share in the global norm is added tensor by tensor, in
// order.
#pragma once
#include <cstdint>
#include <limits>
#include <span>

#include "core/ctx.h"
#include "models/master_weights.h"
#include "sys/big_vector.h"
#include "train/recipe.h"

namespace braid::train {

class Optimizer {
 public:
  // `params` are those of the model that `masters` loaded, which outlive the optimiser. It updates the elements `own`
  // of the masters, between matrices if the kind is muon, and has state for these alone, in order.
  Optimizer(const OptimizerRecipe& recipe, models::MasterWeights& masters, const std::vector<Param*>& params,
            std::span<const Range> own);

  // The sum of the squares of their gradients, before clipping, among the elements `of`.
  double squared_norm(Ctx& ctx, const Range& of = {0, std::numeric_limits<int64_t>::max()}) const;
  // Step `number` (from 1) at rate `lr`, gradients clipped by their norm.
  void step(Ctx& ctx, int64_t number, double lr, double norm);

  std::span<float> first() { return m_; }
  std::span<float> second() { return v_; }

 private:
  struct Part {                         // one kernel call
    int64_t offset, state, rows, cols;  // state: where its moments begin
    bool muon, decays, rounded, counted;
  };
  void add_parts(const models::MasterTensor& tensor, const std::vector<Param*>& params, const Range& own,
                 int64_t state);

  OptimizerRecipe recipe_;
  models::MasterWeights& masters_;
  std::vector<Part> parts_;
  sys::BigVector<float> m_, v_;
};

}  // namespace braid::train
