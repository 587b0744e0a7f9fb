#include "sys/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "sys/env.h"
#include "sys/machine.h"
#include "sys/team.h"

namespace braid::sys {

int default_threads() {
  // Called even if its result is not used: it caps the vector targets, and no kernel runs before a team is chosen.
  const int cores = machine().cores;
  if (env().threads > 0) return env().threads;
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    if (const int n = std::atoi(text); n > 0) return std::min(n, 1024);
  }
  return cores;
}

int team_for(int threads, double operations) {
  constexpr double kOperationsOfAThread = 2e5;  // 3 to 10 us of vector code
  return static_cast<int>(std::clamp(operations / kOperationsOfAThread, 1.0, static_cast<double>(threads)));
}

void parallel(int threads, FunctionRef<void(int, int)> body) { Team::of_process().run(threads, body); }

void parallel_for(int threads, int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  const int64_t grains = (n + grain - 1) / grain;
  parallel(static_cast<int>(std::min<int64_t>(threads, grains)), [&](int thread, int members) {
    const int64_t begin = grains * thread / members * grain;
    const int64_t end = std::min(n, grains * (thread + 1) / members * grain);
    if (begin < end) body(begin, end);
  });
}

void parallel_tasks(int threads, int64_t n, FunctionRef<void(int, int64_t)> body) {
  std::atomic<int64_t> next{0};
  parallel(static_cast<int>(std::min<int64_t>(threads, n)), [&](int part, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(part, i);
  });
}

void parallel_tasks(int threads, int64_t n, FunctionRef<void(int64_t)> body) {
  parallel_tasks(threads, n, [&](int, int64_t i) { body(i); });
}

}  // namespace braid::sys
