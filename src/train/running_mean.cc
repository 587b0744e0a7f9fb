#include "train/running_mean.h"

#include <algorithm>

#include "sys/parallel.h"

namespace braid::train {
namespace {

constexpr int64_t kGrain = 1024;

}  // namespace

RunningMean::RunningMean(double decay, std::span<const float> values) : decay_(decay) {
  if (decay > 0) mean_.assign(values.begin(), values.end());
}

void RunningMean::follow(int64_t n, std::span<const float> values, int threads) {
  const auto updates = static_cast<double>(n);
  const auto share = static_cast<float>(1 - std::min(decay_, (1 + updates) / (10 + updates)));
  sys::parallel_for(threads, std::ssize(mean_), kGrain, [&](int64_t from, int64_t to) {
    for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i)
      mean_[i] += share * (values[i] - mean_[i]);
  });
}

void RunningMean::exchange(std::span<float> values, int threads) {
  sys::parallel_for(threads, std::ssize(mean_), kGrain, [&](int64_t from, int64_t to) {
    std::swap_ranges(values.begin() + from, values.begin() + to, mean_.begin() + from);
  });
}

}  // namespace braid::train
