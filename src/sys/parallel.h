// The only way to run compute on threads: one team per process, grown to the largest size requested and then kept.
// Which thread runs which part never changes a result: parts write to disjoint places and nothing is reduced across
// them. Bodies must not throw, must not start a region themselves and must not wait for each other: a part whose thread
// has not started yet is run by the caller, so parts may run one after the other. All but the waiting is checked.
#pragma once
#include <cstdint>

#include "sys/function_ref.h"

namespace braid::sys {

// Default size of the team: BRAID_THREADS, else OMP_NUM_THREADS, else the cores this process may
// use.
int default_threads();

// How many of `threads` are worth using for `operations` (multiplications and additions, roughly): waking a thread
// costs what it computes in a few microseconds.
int team_for(int threads, double operations);

// body(part, threads) once for each part in [0, threads).
void parallel(int threads, FunctionRef<void(int, int)> body);

// body(begin, end): [0, n) in contiguous parts of about equal size, multiples of `grain` except the last.
void parallel_for(int threads, int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// body(i) for every i in [0, n), handed out one by one: for tasks of uneven size.
void parallel_tasks(int threads, int64_t n, FunctionRef<void(int64_t)> body);
// body(part, i), where parts that run at once differ and are below `threads`: of a workspace with a place for each.
void parallel_tasks(int threads, int64_t n, FunctionRef<void(int, int64_t)> body);

}  // namespace braid::sys
