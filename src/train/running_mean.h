// The running mean of weights, [ema]: mean += (1 - d) (weights - mean) after every update, where d grows to `decay` as
// (1 + n) / (10 + n) over the updates n, so that the first values do not dominate a mean of few.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param.h"
#include "sys/big_vector.h"

namespace braid::train {

class RunningMean {
 public:
  // Of the elements `own`, in order. decay 0: no mean is kept.
  RunningMean(double decay, std::span<const float> values, std::vector<Range> own);
  bool kept() const { return !mean_.empty(); }
  // After update number `n`, from 1.
  void follow(int64_t n, std::span<const float> values, int threads);
  // Swaps the mean with the weights.
  void exchange(std::span<float> values, int threads);
  std::span<float> values() { return mean_; }

 private:
  template <class Do>
  void each(std::span<const float> values, int threads, Do&& of);

  double decay_;
  std::vector<Range> own_;
  sys::BigVector<float> mean_;
};

// The elements `own` of an array.
sys::BigVector<float> parts_of(std::span<const float> array, std::span<const Range> own);

}  // namespace braid::train
