#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace braid::train {

double learning_rate(const ScheduleRecipe& schedule, double lr, int64_t step, int64_t steps) {
  if (step < schedule.warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  const auto part = [&](int64_t begin, int64_t length) {
    return std::clamp(static_cast<double>(step - begin) / static_cast<double>(std::max<int64_t>(1, length)), 0.0, 1.0);
  };
  const double range = lr - schedule.min_lr;
  if (schedule.kind == "wsd" && schedule.decay > 0)
    return schedule.min_lr + range * (1 - std::sqrt(part(steps - schedule.decay, schedule.decay)));
  if (schedule.kind == "cosine") {
    const int64_t length = schedule.decay > 0 ? schedule.decay : steps - schedule.warmup;
    return schedule.min_lr + range * 0.5 * (1 + std::cos(std::numbers::pi * part(schedule.warmup, length)));
  }
  return lr;
}

}  // namespace braid::train
