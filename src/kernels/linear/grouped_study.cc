#include "kernels/linear/grouped_study.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/has_cuda.h"
#include "core/philox.h"

namespace braid {

int64_t kept_columns(const GroupedCase& c) {
  return std::clamp<int64_t>(std::llround(c.density * static_cast<double>(c.cols)), 1, c.cols);
}

double GroupedTimes::best() const { return *std::min_element(seconds.begin(), seconds.end()); }

void model_pipelines(GroupedTimes& t, const GpuLimits& limits) {
  const PipelineProblem problem{.tokens = t.of.tokens,
                                .groups = (t.of.rows + t.of.height - 1) / t.of.height,
                                .height = t.of.height,
                                .columns = t.columns,
                                .cols = t.of.cols};
  t.modelled.clear();
  t.by_model.clear();
  for (const int p : t.pipelines)
    t.modelled.push_back(pipeline_seconds(kPipelines[static_cast<size_t>(p)], problem, limits));
  for (const int p : ranked_pipelines(problem, limits)) {
    const auto at = std::find(t.pipelines.begin(), t.pipelines.end(), p);
    if (at != t.pipelines.end()) t.by_model.push_back(static_cast<int>(at - t.pipelines.begin()));
  }
}

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
