#include "train/spike.h"

#include <cmath>

namespace braid::train {

double LossWindow::z_score(double loss) const {
  if (std::ssize(losses_) < size_) return 0;
  double sum = 0, square = 0;
  for (const double l : losses_) sum += l;
  const auto n = static_cast<double>(losses_.size());
  const double mean = sum / n;
  for (const double l : losses_) square += (l - mean) * (l - mean);
  const double deviation = std::sqrt(square / n);
  return deviation > 0 ? (loss - mean) / deviation : 0;
}

void LossWindow::push(double loss) {
  losses_.push_back(loss);
  if (std::ssize(losses_) > size_) losses_.erase(losses_.begin(), losses_.end() - size_);
}

}  // namespace braid::train
