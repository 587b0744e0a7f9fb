#include "kernels/linear/grouped_study.h"

#include <algorithm>
#include <numeric>

#include "core/has_cuda.h"
#include "core/philox.h"

namespace braid {

double GroupedTimes::best() const { return *std::min_element(seconds.begin(), seconds.end()); }

#if !BRAID_CUDA
std::vector<GroupedTimes> time_grouped(const std::vector<GroupedCase>&, int, const GpuRoofs&,
                                       const std::function<void(int64_t)>&) {
  return {};
}
#endif

std::vector<double> regret_of(const std::vector<double>& seconds, const std::vector<int>& order) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  std::vector<double> regret;
  double so_far = seconds[static_cast<size_t>(order.at(0))];
  for (const int i : order) {
    so_far = std::min(so_far, seconds[static_cast<size_t>(i)]);
    regret.push_back(so_far / best - 1);
  }
  return regret;
}

std::vector<double> random_regret(const std::vector<double>& seconds, int shuffles) {
  std::vector<double> mean(seconds.size(), 0);
  std::vector<int> order(seconds.size());
  for (int s = 0; s < shuffles; ++s) {
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) {
      const uint32_t r = philox({.seed = 1, .stream = static_cast<uint32_t>(s)}, i)[0];
      std::swap(order[i - 1], order[r % i]);
    }
    const std::vector<double> regret = regret_of(seconds, order);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += regret[i] / shuffles;
  }
  return mean;
}

}  // namespace braid
