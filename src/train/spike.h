// How far a value is above the previous ones, in standard deviations: with [spike], steps whose loss or gradient norm
// is far above its recent mean are skipped (llm.c's rule). The window advances with every step that has a loss, skipped
// or not, so that a lasting change of the data becomes the new mean.
#pragma once
#include <cstdint>
#include <vector>

namespace braid::train {

class SpikeWindow {
 public:
  SpikeWindow(int64_t size, std::vector<double>& values) : size_(size), values_(values) {}
  // 0 while the window is not full. The deviation is at least kFloor times the mean's magnitude: in a window of nearly
  // equal values, every change would otherwise stand out. A window of zeros, as answers without an advantage leave it,
  // has no scale: nothing stands out.
  double z_score(double value) const;
  void push(double value);
  bool full() const { return static_cast<int64_t>(values_.size()) >= size_; }

  static constexpr double kFloor = 5e-3;

 private:
  int64_t size_;
  std::vector<double>& values_;  // oldest first
};

}  // namespace braid::train
