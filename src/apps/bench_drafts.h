// Generation with and without drafts, of `braid bench --drafts`.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/runner.h"

namespace braid::apps {

struct DraftBench {
  std::vector<int64_t> percent{};  // of the drafts that are right, a list
  int64_t prompt = 0, generate = 0, sequences = 1, repetitions = 5;
  engine::Runner* model = nullptr;  // the draft model, if any
};

// Prints a line of JSON for each share of right drafts, and for the drafts of the draft model: tokens per second with
// drafts, and without, measured in turn, and what differs when all drafts are verified.
int bench_drafts(engine::Runner& runner, const DraftBench& bench);

}  // namespace braid::apps
