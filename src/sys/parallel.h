// The only door to threads for compute. Bodies must not throw and must not call back in here. OpenMP is the pool,
// because oneDNN runs on libgomp too (style.md 28); BRAID_POOL=std swaps in std::thread for TSan and clang.
// Which thread runs which part never changes a result: parts write to disjoint places and nothing is reduced across
// them.
#pragma once
#include <cstdint>

#include "sys/function_ref.h"

namespace braid::sys {

// Size of the team when nobody says otherwise: BRAID_THREADS, else OMP_NUM_THREADS, else the cores this process may
// use.
int default_threads();

// The part of the team that `operations` (multiplications and additions, about) are worth: waking a thread costs what
// it computes in a few microseconds.
int team_for(int threads, double operations);

// body(thread, threads) once on each member of the team.
void parallel(int threads, FunctionRef<void(int, int)> body);

// body(begin, end): [0, n) in contiguous parts of about equal size, multiples of `grain` but for the last.
void parallel_for(int threads, int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// body(i) for every i in [0, n), handed out one by one: for tasks of uneven size.
void parallel_tasks(int threads, int64_t n, FunctionRef<void(int64_t)> body);

}  // namespace braid::sys
