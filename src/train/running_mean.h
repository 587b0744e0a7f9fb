// The running mean of weights, [ema]: mean += (1 - d) (weights - mean) after every update, where d grows to `decay` as
// (1 + n) / (10 + n) over the updates n, so that the first values do not dominate a mean of few.
#pragma once
#include <cstdint>
#include <span>

#include "sys/big_vector.h"

namespace braid::train {

class RunningMean {
 public:
  // decay 0: no mean is kept.
  RunningMean(double decay, std::span<const float> values);
  bool kept() const { return !mean_.empty(); }
  // After update number `n`, from 1.
  void follow(int64_t n, std::span<const float> values, int threads);
  // Swaps the mean with the weights.
  void exchange(std::span<float> values, int threads);
  std::span<float> values() { return mean_; }

 private:
  double decay_;
  sys::BigVector<float> mean_;
};

}  // namespace braid::train
