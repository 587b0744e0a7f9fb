#include "train/grid_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/tensor.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace braid::train {
namespace {

// Rows of targets as this rank's classes are numbered: `classes` where another rank has it.
Tensor own_targets(Ctx& ctx, const GridLoss& op) {
  const int64_t n = op.targets.dim(0), classes = op.logits.dim(1);
  const Tensor own(ctx.arena, DType::i32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const int64_t target = op.targets.as<int32_t>()[i], at = target - op.first;
    own.mut().as<int32_t>()[i] = static_cast<int32_t>(target < 0 ? -1 : at >= 0 && at < classes ? at : classes);
  }
  return own;
}

// What this rank adds to whether the target of a row is the first of the largest: 1 if it is here and none of this
// rank's comes before it, -1 if this rank has an earlier one. `best`: the first of this rank's largest.
float right_share(int64_t best, int64_t target, int64_t first, int64_t classes, bool largest_here) {
  const bool here = target >= first && target < first + classes;
  if (!largest_here) return 0;
  if (here) return first + best == target ? 1 : 0;
  return target >= first + classes ? -1 : 0;
}

}  // namespace

GridLossSums grid_loss(Ctx& ctx, comm::Group& ranks, const GridLoss& op) {
  const int64_t n = op.logits.dim(0), classes = op.logits.dim(1);
  const Tensor targets = own_targets(ctx, op), loss(ctx.arena, DType::f32, {n}), lse(ctx.arena, DType::f32, {n}),
               top(ctx.arena, DType::f32, {n}), work(ctx.arena, DType::f32, {3 * n});
  run(ctx, CrossEntropyFwd{.logits = op.logits, .targets = targets.view(), .loss = loss.mut(), .lse = lse.mut()});
  float *m = top.mut().as<float>(), *sum = work.mut().as<float>(), *logit = sum + n, *right = logit + n,
        *s = lse.mut().as<float>();
  std::vector<int64_t> best(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const float* row = op.logits.as<float>(i);
    best[static_cast<size_t>(i)] = std::max_element(row, row + classes) - row;
    m[i] = row[best[static_cast<size_t>(i)]];
  }
  ranks.all_reduce(top.view(), top.mut(), comm::Reduction::max).wait();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t target = op.targets.as<int32_t>()[i], at = best[static_cast<size_t>(i)];
    const bool here = target >= op.first && target < op.first + classes;
    const float* row = op.logits.as<float>(i);
    sum[i] = std::exp(s[i] - m[i]);
    logit[i] = here ? row[target - op.first] : 0;
    right[i] = right_share(at, target, op.first, classes, row[at] == m[i]);
  }
  ranks.all_reduce(work.view(), work.mut()).wait();
  GridLossSums sums;
  for (int64_t i = 0; i < n; ++i) {
    s[i] = m[i] + std::log(sum[i]);
    if (op.targets.as<int32_t>()[i] < 0) continue;
    sums.loss += static_cast<double>(s[i] - logit[i]);
    sums.right += right[i] == 1 ? 1 : 0;
  }
  if (op.dlogits) {
    const Tensor weights(ctx.arena, DType::f32, {n});
    fill(weights.mut(), op.weight);
    run(ctx, CrossEntropyBwd{.dloss = weights.view(),
                             .logits = op.logits,
                             .targets = targets.view(),
                             .lse = lse.view(),
                             .dlogits = op.dlogits});
  }
  return sums;
}

GridLossSums add_up(comm::Group& ranks, const GridLossSums& own) {
  // FP64 travels as its bits.
  const auto bits = [](std::vector<double>& values) {
    return MutView(reinterpret_cast<std::byte*>(values.data()), DType::i64, {std::ssize(values)});
  };
  std::vector<double> mine = {own.loss, own.right}, all(2 * static_cast<size_t>(ranks.size()));
  ranks.all_gather(bits(mine), bits(all)).wait();
  GridLossSums sum;
  for (size_t i = 0; i < all.size(); i += 2) {
    sum.loss += all[i];
    sum.right += all[i + 1];
  }
  return sum;
}

}  // namespace braid::train
