// Runs of a known law, for tests.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/philox.h"
#include "law/parametric.h"
#include "law/runs.h"

namespace braid::law {

// Chinchilla's, by Epoch's refit of its points (Besiroglu et al. 2024, https://arxiv.org/abs/2404.10102).
inline const Law kKnown{
    .alpha = 0.3478, .beta = 0.3658, .log_a = std::log(482.01), .log_b = std::log(2085.43), .log_e = std::log(1.8172)};

// A run for each of 9 sizes and 3 seeds, 6 checkpoints each; `noise` is the deviation of log loss that a run's rows
// share, and half as much is each row's own.
inline Runs runs_of(const Law& law, double noise, uint64_t seed) {
  Runs runs;
  for (int size = 0; size < 9; ++size) {
    for (int copy = 0; copy < 3; ++copy) {
      const auto run = static_cast<uint64_t>(runs.count);
      const double shared = normal4({.seed = seed, .stream = 1}, run)[0];
      for (int checkpoint = 0; checkpoint < 6; ++checkpoint) {
        const double own = normal4({.seed = seed, .stream = 2}, 64 * run + static_cast<uint64_t>(checkpoint))[0];
        Row row{.params = 1e7 * std::pow(2.0, size), .tokens = 2e8 * std::pow(3.0, checkpoint), .run = runs.count};
        row.flops = 6 * row.params * row.tokens;
        row.loss = law.loss(row.params, row.tokens) * std::exp(noise * (shared + 0.5 * own));
        runs.rows.push_back(row);
      }
      ++runs.count;
    }
  }
  return runs;
}

// Rows of the Gemstones runs (arXiv 2502.06857), of which the repository that published them has fits: a folder with
// gemstones-hot.csv (a row every 10 B tokens up to 100 B) and gemstones-hot-477.csv (every 2 B), columns run, params
// (active), tokens, flops and loss. They are not part of this repository.
inline const char* gemstones_folder() { return std::getenv("BRAID_GEMSTONES"); }
inline Runs gemstones(const char* file) { return read_runs_file(std::filesystem::path(gemstones_folder()) / file); }
#define BRAID_NEEDS_GEMSTONES() \
  if (!gemstones_folder())      \
  GTEST_SKIP() << "BRAID_GEMSTONES does not name a folder with the published rows (law_fixture.h)"

}  // namespace braid::law
