// Counts of durations by size, as Prometheus has them. The bounds are vLLM's.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace braid::serve {

template <size_t kBounds>
struct Histogram {
  std::array<double, kBounds> bounds{};       // seconds, rising
  std::array<int64_t, kBounds + 1> counts{};  // up to each bound, and above the last
  double sum = 0;

  void add(double seconds) {
    size_t i = 0;
    while (i < kBounds && seconds > bounds[i]) ++i;
    ++counts[i];
    sum += seconds;
  }
};

struct Latencies {
  Histogram<22> first_token{.bounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                       1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}};
  Histogram<21> whole{
      .bounds = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}};
};

}  // namespace braid::serve
