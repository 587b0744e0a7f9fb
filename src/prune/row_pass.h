// One row of data through a model from empty states, as a training pass without a step.
#pragma once
#include "core/integers.h"
#include "data/batch.h"
#include "models/model.h"
#include "nn/observer.h"

namespace braid::prune {

struct RowPass {
  Ctx& ctx;
  nn::Observer* observer = nullptr;
  nn::Probe* probe = nullptr;

  // The losses of its targets, summed; with a tape in the Ctx their gradients are those of `weight` times the sum.
  models::Model::LossSums operator()(models::Model& model, const data::Batch& row, double weight, bool mtp) const {
    const Tensor ids = integers(ctx.arena, row.ids), targets = integers(ctx.arena, row.targets);
    nn::StateView state;
    nn::Run run{.ctx = ctx,
                .seqs = row.seqs,
                .state = state,
                .numerics = Numerics::training(DType::f32),
                .probe = probe,
                .observer = observer};
    models::Model::LossOptions options{.main_weight = weight};
    if (mtp && model.mtp_steps() > 0) options.mtp_weight[0] = weight;
    models::Model::LossSums sums;
    model.loss(run, ids, targets, options, sums);
    if (ctx.tape) {
      ctx.tape->backward(ctx);
      ctx.tape->clear();
    }
    return sums;
  }
};

}  // namespace braid::prune
