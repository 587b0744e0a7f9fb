// The balance of experts in training (docs/internals/train.md, Balance of experts): what routers are asked for and what
// they did in a step, the factors of the balance losses, and the tokens beyond an expert's capacity.
//
// With n_e of T tokens choosing expert e of E, K experts each, and p the normalised scores, a balance loss is
//   E / (K T) * sum_e n_e * sum_t p_te     T when all experts are used alike; only p has a gradient
// over the tokens of a sequence, of a row of the batch (all sequences in it), or of the batch. They are sums over
// tokens: for coef * mean, a factor is coef / tokens of the step. What they are over does not depend on how a batch is
// cut into parts or among ranks, except that the counts of a batch are those of the parts that have come so far, this
// one included, on all ranks (as in Megatron-LM's global_aux_loss): exact where a batch is one part.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/param.h"
#include "core/tensor.h"
#include "nn/run.h"

namespace braid::nn {

struct RouterWatch {
  // Of losses in the total.
  struct Factors {
    float sequence = 0, row = 0, batch = 0;
    float z = 0;  // of logsumexp(logits)^2
    bool balance() const { return sequence != 0 || row != 0 || batch != 0; }
  };
  // Of one router in the step so far.
  struct Layer {
    const Param* bias = nullptr;  // which selects; null where a router has none
    int64_t top_k = 1;
    std::vector<int32_t> load{};          // [E] tokens that chose each expert, those beyond its capacity included
    std::vector<int32_t> known{};         // [E] the load on all ranks, where Factors::batch asks for it
    std::vector<int32_t> margins{};       // [E, kMarginBins] (kernels/router/router.h), where they are counted
    std::vector<double> scores{};         // [E] sums of p
    double sequence = 0, row = 0, z = 0;  // losses without their factors, sequence after sequence
    int64_t dropped = 0;                  // slots

    void resize(int64_t experts, bool with_margins);
  };
  Factors factors{};
  bool count_margins = false;
  // An expert takes at most ceil(capacity K T / E) of the T tokens of a row; 0: all that chose it. Beyond that the
  // tokens with the smallest weights are dropped, or the last ones.
  double capacity = 0;
  bool drop_last = false;
  std::span<const int64_t> rows{};  // the first token of each row of this pass on all ranks of its context, and T;
                                    // empty: one row
  comm::Group* everyone = nullptr;  // ranks that have other tokens of the batch at the same time
  std::map<int, Layer> layers{};

  void clear();  // before a step; keeps the memory
};

// Of a pass whose tokens chose experts [T, K] I32, with scores [S, E] F32 (RouterStats): the factors [S, E] F32 of its
// sequences for RouterBwd, and the losses, added to `seen`.
void balance(Run& run, RouterWatch::Layer& seen, const View& experts, const View& scores, const MutView& factors);

// `experts` [T, K] I32 of `count`, with weights [T, K] F32, as they stay within the capacity: [T, K] I32, -1 for
// dropped slots. A token keeps its other experts with their weights.
Tensor within_capacity(Run& run, RouterWatch::Layer& seen, const Tensor& experts, const Tensor& weights, int64_t count);

}  // namespace braid::nn
