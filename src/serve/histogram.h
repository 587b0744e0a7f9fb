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

struct OfRequests : Histogram<21> {
  OfRequests()
      : Histogram{
            .bounds = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}} {}
};
struct OfTokens : Histogram<19> {
  OfTokens()
      : Histogram{.bounds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
                             80}} {}
};

struct Latencies {
  Histogram<22> first_token{.bounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                       1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}};
  // Of a request: until its first pass, from there to its first token, from there to its end, and all of it.
  OfRequests queue{}, prefill{}, decode{}, whole{};
  OfTokens between{};    // two tokens of an answer
  OfTokens per_token{};  // after an answer's first, on average
};

}  // namespace braid::serve
