// The learning rate of a step. All kinds warm up linearly, lr * (step + 1) / warmup, and then
//   constant  stay
//   wsd       stay, and over the last `decay` steps fall by minus the square root of the part that is done
//             (Haegele et al. 2024): min_lr + (lr - min_lr) (1 - sqrt(part))
//   cosine    fall by half a cosine over `decay` steps, or over all that are left, to min_lr
// Steps count from 0; rates are absolute.
#pragma once
#include <cstdint>
#include <string>

namespace braid::train {

struct ScheduleRecipe {
  std::string kind = "constant";  // constant, wsd, cosine
  int64_t warmup = 0, decay = 0;  // steps
  double min_lr = 0;
};

double learning_rate(const ScheduleRecipe& schedule, double lr, int64_t step, int64_t steps);

}  // namespace braid::train
