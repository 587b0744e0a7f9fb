#include "sparse/race.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

namespace braid::sparse {
namespace {

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// After a call that is not timed: what ran before has other matrices in the caches.
double timed(const std::function<void()>& run, int64_t calls) {
  run();
  const double begin = thread_seconds();
  for (int64_t i = 0; i < calls; ++i) run();
  return (thread_seconds() - begin) / static_cast<double>(calls);
}

}  // namespace

std::vector<std::vector<double>> race(const std::vector<std::function<void()>>& runs, int rounds, double least) {
  std::vector<std::vector<double>> seconds(runs.size());
  std::vector<int64_t> calls;
  for (const auto& run : runs) {  // a warm-up, too
    const double once = std::max(timed(run, 1), 1e-9);
    calls.push_back(std::clamp<int64_t>(static_cast<int64_t>(std::ceil(least / once)), 1, 100000));
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t k = 0; k < runs.size(); ++k) {
      const size_t at = (k + static_cast<size_t>(round)) % runs.size();
      seconds[at].push_back(timed(runs[at], calls[at]));
    }
  }
  return seconds;
}

double median(std::vector<double> values) {
  const auto mid = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), mid, values.end());
  return *mid;
}

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(std::move(ratios));
}

}  // namespace braid::sparse
