#include "train/rehearsal.h"

#include <algorithm>

#include "sys/memory.h"
#include "train/balance.h"
#include "train/depth.h"
#include "train/distill.h"
#include "train/origin.h"
#include "train/task.h"
#include "train/token_gradient.h"
#include "train/token_shares.h"

namespace braid::train {

nn::RecipeParts precision_parts(const Recipe& recipe) {
  return {.stochastic = recipe.precision_stochastic,
          .hadamard = recipe.precision_hadamard,
          .square_weights = recipe.precision_weight_scales == "2d"};
}

StepPlan rehearse(const Recipe& recipe, models::Model& model, const Ctx& ctx, int64_t rows, int64_t length,
                  int64_t loop_steps, Mesh* mesh, const Chunk* chunk) {
  const int64_t part = (rows + recipe.accumulate - 1) / recipe.accumulate;
  // What a dry pass writes are lists of documents. Where these alone could fill the memory, the residual stream is far
  // beyond it.
  const double tokens = static_cast<double>(part) * static_cast<double>(length);
  if (8 * sizeof(Seq) * tokens / kDocument > static_cast<double>(sys::memory_available()))
    fail_larger(static_cast<int64_t>(2 * static_cast<double>(model.config().hidden) * tokens));
  SeqMap packings[2];  // one document per row, and the most there can be
  std::vector<int64_t> begins{0};
  for (int64_t row = 0; row < part; ++row) {
    begins.push_back(begins.back() + length);
    packings[0].add(length);
    for (int64_t at = 0; at < length; at += kDocument) packings[1].add(std::min(kDocument, length - at));
  }
  TokenShares shares[2];
  const ContextModes modes = context_modes(recipe.parallel, model.config());
  for (int i = 0; i < 2; ++i) shares[i].divide(packings[i], mesh, modes, true);
  if (model.config().loop && loop_steps == 0) loop_steps = loop_of(recipe, *model.config().loop).backward_steps;
  const nn::Precision precision(recipe.precision, model.params(), 0, precision_parts(recipe));
  Arena beside;  // for what is not planned
  DryMap map;
  return plan_step(parse_recompute(recipe.recompute), ctx, 2, [&](Ctx& dry, int packing) {
    const SeqMap &whole = packings[packing], &seqs = shares[packing].own(whole);
    nn::StateView state;
    nn::RouterWatch routers;
    ask_routers(recipe.loss, whole.tokens(), routers);
    routers.rows = begins;
    const nn::Draws draws;  // with dropout, if adapters have it
    nn::Run run{.ctx = dry,
                .seqs = seqs,
                .state = state,
                .numerics = numerics_of(recipe),
                .routers = &routers,
                .precision = nn::is_low_precision(recipe.precision) ? &precision : nullptr,
                .draws = &draws};
    shares[packing].put(run, mesh);
    models::Model::LossOptions options{.main_weight = 1, .z = static_cast<float>(recipe.loss.z)};
    options.mtp_weight.fill(recipe.loss.mtp_scale);
    if (chunk) return rehearse_chunk(run, model, *chunk, whole.tokens(), options);
    const Tensor ids(dry.arena, DType::i32, {whole.tokens()}), targets(dry.arena, DType::i32, {whole.tokens()});
    nn::Loop loop;
    if (model.config().loop) {
      loop = {.steps = loop_steps, .start = Tensor(dry.arena, DType::f32, {seqs.tokens(), model.config().hidden})};
      run.loop = &loop;
    }
    if (rates_answers(recipe)) return TokenGradient(run, model.losses_of(run, ids, targets)).finish();
    if (!recipe.distill.teacher.empty()) return rehearse_distill(recipe, beside, map, run, model, ids, targets);
    models::Model::LossSums sums;
    model.loss(run, ids, targets, options, sums);
  });
}

}  // namespace braid::train
