// For tests of code that several ranks run together, on threads of this process.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>
#include <vector>

#include "comm/inproc.h"

namespace braid::support {

// What work(world) gives on every rank, by rank.
template <class Work>
auto on_ranks(int ranks, const comm::Options& options, const Work& work) {
  std::vector<std::invoke_result_t<Work, comm::Group&>> results(static_cast<size_t>(ranks));
  comm::run_in_process(ranks, options,
                       [&](comm::Group& world) { results[static_cast<size_t>(world.rank())] = work(world); });
  return results;
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

}  // namespace braid::support
