#include "train/running_mean.h"

#include <algorithm>
#include <utility>

#include "sys/parallel.h"

namespace braid::train {
namespace {

constexpr int64_t kGrain = 1024;

}  // namespace

RunningMean::RunningMean(double decay, std::span<const float> values, std::vector<Range> own)
    : decay_(decay), own_(std::move(own)) {
  if (decay > 0) mean_ = parts_of(values, own_);
}

template <class Do>
void RunningMean::each(std::span<const float> values, int threads, Do&& of) {
  int64_t at = 0;
  for (const Range& own : own_) {
    const int64_t mean = at, value = own.begin;
    sys::parallel_for(threads, values.empty() || mean_.empty() ? 0 : own.count, kGrain, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) of(static_cast<size_t>(mean + i), static_cast<size_t>(value + i));
    });
    at += own.count;
  }
}

void RunningMean::follow(int64_t n, std::span<const float> values, int threads) {
  const auto updates = static_cast<double>(n);
  const auto share = static_cast<float>(1 - std::min(decay_, (1 + updates) / (10 + updates)));
  each(values, threads, [&](size_t mean, size_t value) { mean_[mean] += share * (values[value] - mean_[mean]); });
}

void RunningMean::exchange(std::span<float> values, int threads) {
  each(values, threads, [&](size_t mean, size_t value) { std::swap(mean_[mean], values[value]); });
}

sys::BigVector<float> parts_of(std::span<const float> array, std::span<const Range> own) {
  sys::BigVector<float> parts;
  int64_t count = 0;
  for (const Range& r : own) count += r.count;
  parts.reserve(static_cast<size_t>(count));
  for (const Range& r : own) parts.insert(parts.end(), array.begin() + r.begin, array.begin() + r.begin + r.count);
  return parts;
}

}  // namespace braid::train
