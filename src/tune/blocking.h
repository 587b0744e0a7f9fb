// Which blocking (kernels/linear/linear_blocking.h) of a training product is fastest on this machine: the analytic
// model ranks all, the first few are timed in turns with the default, and those that look fastest once more, since the
// best of several owes part of its gain to luck. Bits are the same, so a choice never shows in a result.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/ctx.h"
#include "core/tensor.h"
#include "kernels/linear/linear_blocking.h"

namespace braid::tune {

// One product on values that are drawn, repeated where it is short. Of one thread the CPU time counts, so that other
// work on the machine adds to it through caches and memory alone.
class BlockingTimer {
 public:
  explicit BlockingTimer(const PackedProduct& p);
  double seconds(const packed::Blocking& b);
  // With the bits of the default: false would be a bug.
  bool same_bits(const packed::Blocking& b);

 private:
  void call(const packed::Blocking& b);
  PackedProduct p_;
  Arena arena_;
  Ctx ctx_;
  Tensor tokens_, other_, y_;  // x or dy; w, or the x of dw; y, dx or dw
  Tensor space_;               // aligned to cache lines as workspaces are: tiles take 1.5 times as long otherwise
};

using BlockingSeconds = std::function<double(const packed::Blocking&)>;

// The medians of `rounds` turns over all, each second turn backwards.
std::vector<double> blocking_medians(std::span<const packed::Blocking> space, int rounds,
                                     const BlockingSeconds& seconds);

struct BlockingSearch {
  int trials = 10;
  double seconds_most = 1.5;  // of measuring; fewer trials where products are long, but three
};
// What is taken must be so much faster than the default, and faster at all in three quarters of the turns.
inline constexpr double kLeastBlockingGain = 1.05;

struct BlockingFinding {
  PackedProduct of{};
  packed::Blocking initial{}, chosen{};
  double gain = 1;    // of the chosen one over the default
  double gflops = 0;  // of the chosen one
  int trials = 0;     // without the default
};
BlockingFinding search_blocking(const PackedProduct& p, const PackedLimits& limits, const BlockingSearch& options,
                                const BlockingSeconds& seconds);

// All three products of matrices [w_rows, w_cols], in the class that training takes here for operands of that type.
struct TrainingMatrix {
  int64_t w_rows = 0, w_cols = 0;
};
packed::Class training_class(DType x);
std::vector<PackedProduct> training_products(const TrainingMatrix& m, int64_t tokens, DType x, int threads);

}  // namespace braid::tune
