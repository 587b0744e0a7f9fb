// Timed passes over random tokens, of `braid bench` and `braid repro`.
#pragma once
#include "apps/bench_report.h"
#include "engine/runner.h"
#include "sys/roofs.h"

namespace braid::apps {

struct Repeats {
  int64_t count = 5;   // runs after a warm-up
  bool lines = false;  // a line for each on standard error, in place of a bar
};

// Runs row's test; fills its samples, its floor, and the roofs, the memory's as it was between the runs. Without
// `memory`, as on ranks, which share the machine's, there is no floor; of ranks the bytes that they sent are counted.
void measure(engine::Runner& runner, BenchRow& row, const sys::ReadRate* memory, const Repeats& repeats);
// The floor of row's whole test, the sum over its passes, on row's roofs.
double floor_of(engine::Runner& runner, const BenchRow& row);

}  // namespace braid::apps
