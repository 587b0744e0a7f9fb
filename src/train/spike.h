// How far a loss lies over those before it, in standard deviations: steps that come out far above the recent mean
// change nothing when [spike] is on (llm.c's rule).
#pragma once
#include <cstdint>
#include <vector>

namespace braid::train {

class LossWindow {
 public:
  LossWindow(int64_t size, std::vector<double> losses) : size_(size), losses_(std::move(losses)) {}
  // 0 while the window is not full, or where its losses are all alike.
  double z_score(double loss) const;
  void push(double loss);
  const std::vector<double>& losses() const { return losses_; }  // oldest first

 private:
  int64_t size_;
  std::vector<double> losses_;
};

}  // namespace braid::train
