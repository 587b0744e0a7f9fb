#include "train/spike.h"

#include <algorithm>
#include <cmath>

namespace braid::train {

double SpikeWindow::z_score(double value) const {
  if (!full()) return 0;
  double sum = 0, square = 0;
  for (const double v : values_) sum += v;
  const auto n = static_cast<double>(values_.size());
  const double mean = sum / n;
  for (const double v : values_) square += (v - mean) * (v - mean);
  const double deviation = std::max(std::sqrt(square / n), kFloor * std::fabs(mean));
  return deviation > 0 ? (value - mean) / deviation : 0;
}

void SpikeWindow::push(double value) {
  values_.reserve(static_cast<size_t>(size_) + 1);  // once: later steps do not allocate
  values_.push_back(value);
  if (std::ssize(values_) > size_) values_.erase(values_.begin(), values_.end() - size_);
}

}  // namespace braid::train
