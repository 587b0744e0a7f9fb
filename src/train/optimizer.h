// The optimiser's state and one step of it over all masters: AdamW, or Muon for the matrices inside the model and AdamW
// for the rest (embeddings, head, Mamba's fused in_proj, everything that is not a matrix). Moments are stored in the
// order of the masters (models/master_weights.h). A gradient's share in the global norm is added tensor by tensor, in
// order.
//
// With `keep_zeros` an element that is zero when a step begins is zero after it, with its moments: which elements these
// are is a function of the masters alone, so that a resumed run needs no mask. Of the matrices inside the model; a
// weight that training happens to bring to exactly zero stays there too.
#pragma once
#include <cstdint>
#include <limits>
#include <span>

#include "core/ctx.h"
#include "models/master_weights.h"
#include "sys/big_vector.h"
#include "train/divided_matrices.h"
#include "train/recipe.h"

namespace braid::train {

class Optimizer {
 public:
  // `params` are those of the model that `masters` loaded, which outlive the optimiser. It updates the elements `own`
  // of the masters, between matrices if the kind is muon, and has state for these alone, in order. `divided`: where
  // ranks have parts of matrices that Muon needs whole; they construct their optimisers and step together.
  Optimizer(const OptimizerRecipe& recipe, models::MasterWeights& masters, const std::vector<Param*>& params,
            std::span<const Range> own, DividedMatrices* divided = nullptr);

  // The sum of the squares of their gradients, before clipping, among the elements `of`. Gradients of zeros to keep
  // become zero.
  double squared_norm(Ctx& ctx, const Range& of = {0, std::numeric_limits<int64_t>::max()});
  // Step `number` (from 1) at rate `lr`, gradients clipped by their norm.
  void step(Ctx& ctx, int64_t number, double lr, double norm);

  std::span<float> first() { return m_; }
  std::span<float> second() { return v_; }

 private:
  struct Part {                         // what one call of kernels updates
    int64_t offset, state, rows, cols;  // state: where its moments begin
    bool muon, decays, rounded, counted, keeps_zeros;
    int64_t divided = -1;  // its number in divided_
    int64_t count() const { return rows * cols; }
    Shape shape() const { return muon ? Shape{rows, cols} : Shape{count()}; }
  };
  struct Rates {
    int64_t number;
    double lr, grad_scale;
  };
  void add_parts(const models::MasterTensor& tensor, const std::vector<Param*>& params, const Range& own,
                 int64_t state);
  // What an element-wise update takes in one call, in pieces that ranks count or do not.
  void add_elements(const models::MasterTensor& tensor, const Part& all);
  MutView in(std::span<float> array, const Part& part) const;
  MutView moments(std::span<float> array, const Part& part) const;
  MutView working(const Part& part) const;
  double decay(const Part& part) const { return part.decays ? recipe_.weight_decay : 0; }
  void adamw(Ctx& ctx, const Part& part, const Rates& rates);
  // Of matrices that become orthogonal together.
  void muon(Ctx& ctx, std::span<const Part* const> parts, const Rates& rates);
  void drop_gradients_of_zeros(Ctx& ctx, const Part& part);
  void clear_zeros(Ctx& ctx, const Part& part);  // gradients and moments, before they are read
  void mark_zeros(Ctx& ctx, const Part& part);   // weights, before an update, and after it:
  void restore_zeros(Ctx& ctx, const Part& part);

  OptimizerRecipe recipe_;
  models::MasterWeights& masters_;
  DividedMatrices* divided_;
  std::vector<Part> parts_;
  sys::BigVector<float> m_, v_;
  sys::BigVector<uint8_t> zeros_;  // of the part that is being updated
};

}  // namespace braid::train
